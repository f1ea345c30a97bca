"""Dynamic batching: sentences of different requests are translated together.

An engine translates 30 sentences in little more time than one. So a request waits a few milliseconds for others. While
the engine works, new sentences gather for the next batch.

Clients that get their answers together would send their next sentences together, too, and the engine would rest until
then. So of many sentences, half are left to the next batch: the engine has them while the answers go out.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from vanilla_transformer.translation.translator import Hypothesis

from .errors import RequestError


Options = tuple[tuple[str, Any], ...]  # options of `Translator.translate`, sorted by name
Engine = Callable[..., Sequence[list[Hypothesis]]]
LONGEST_WAIT = 60.0  # seconds
RETRY = {"Retry-After": "1"}


class Waiting(NamedTuple):
    """A sentence that waits for the engine since a time, and the future of its translations, which start with a
    prefix or with anything."""

    sentence: str
    prefix: str | None
    options: Options
    since: float
    future: "asyncio.Future[list[Hypothesis]]"


@dataclass
class Batching:
    """When a batch starts.

    Args:
        seconds: How long the first sentence of a batch waits for others.
        max_sentences: Sentences in a batch. `Translator` sorts them by length and makes its own batches of them.
        halve_from: The number of waiting sentences from which on half of them are left to the next batch; `None` for a
            GPU, on which a batch takes as long as its half.
    """

    seconds: float = 0.005
    max_sentences: int = 128
    halve_from: int | None = 16

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= LONGEST_WAIT:
            raise ValueError(
                f"batch_milliseconds={self.seconds * 1000:g} must be a number from 0 to {LONGEST_WAIT * 1000:,.0f}."
            )
        if self.max_sentences < 1:
            raise ValueError(f"batch_sentences={self.max_sentences} must be at least 1.")


class BatchingTranslator:
    """Translates sentences of many requests in common batches, one batch at a time.

    `start` and `stop` belong to the event loop that calls `translate`.

    Args:
        engine: Translates a list of sentences; it takes options of `Translator.translate`, and runs in a thread.
        batching: When a batch starts.
        max_waiting: Sentences that wait. A request that would exceed it is refused.
        observe: Is called with the size of each batch.
    """

    def __init__(
        self,
        engine: Engine,
        batching: Batching | None = None,
        max_waiting: int = 4096,
        observe: Callable[[int], Any] = int,
    ):
        self._engine, self._observe, self._max_waiting = engine, observe, max_waiting
        self._batching = batching or Batching()
        self._waiting: dict[int, Waiting] = {}  # in the order of arrival
        self._numbers = itertools.count()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._loop: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Number of sentences that wait, those in the engine not counted."""
        return len(self._waiting)

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._translate_batches())

    async def stop(self) -> None:
        """Finishes the batch in the engine. All requests must have been answered before."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    async def translate(
        self, sentences: Sequence[str], options: Mapping[str, Any], prefixes: Sequence[str | None] | None = None
    ) -> list[list[Hypothesis]]:
        """Returns the translations of each sentence, best first; `prefixes` are how they begin.

        If the caller is cancelled, its sentences leave the queue.
        """
        if len(self._waiting) + len(sentences) > self._max_waiting:
            raise RequestError(503, "The server is busy: try again in a moment.", RETRY)
        key = tuple(sorted(options.items()))
        loop = asyncio.get_running_loop()
        jobs = {
            next(self._numbers): Waiting(sentence, prefix, key, loop.time(), loop.create_future())
            for sentence, prefix in zip(sentences, prefixes or [None] * len(sentences), strict=True)
        }
        self._waiting |= jobs
        self._arrived.set()
        try:
            return await asyncio.gather(*(job.future for job in jobs.values()))
        finally:
            for number in jobs:
                self._waiting.pop(number, None)

    async def _translate_batches(self) -> None:
        while True:
            await self._arrived.wait()
            await self._gather()
            if batch := self._next_batch():
                await self._translate_batch(batch)
            if not self._waiting:
                self._arrived.clear()

    async def _gather(self) -> None:
        """Waits for more sentences, unless there are enough or the first has waited while the engine worked."""
        first = next(iter(self._waiting.values()), None)
        if first is not None and len(self._waiting) < self._batching.max_sentences:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(max(first.since + self._batching.seconds - now, 0))

    def _next_batch(self) -> list[Waiting]:
        """Takes the sentences that have waited longest, with the same options, from the queue."""
        options = next((job.options for job in self._waiting.values()), ())
        same = [number for number, job in self._waiting.items() if job.options == options]
        if self._batching.halve_from is not None and len(same) >= self._batching.halve_from:
            same = same[: (len(same) + 1) // 2]
        return [self._waiting.pop(number) for number in same[: self._batching.max_sentences]]

    async def _translate_batch(self, batch: list[Waiting]) -> None:
        self._observe(len(batch))
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._thread, self._outcomes, batch)
        for job, result in zip(batch, results, strict=True):
            if job.future.done():  # the client has gone
                continue
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    def _outcomes(self, batch: list[Waiting]) -> Sequence[list[Hypothesis] | Exception]:
        """Translations or the error of each sentence. After an error each sentence is tried alone: one sentence that
        the engine can't translate must not fail the requests of others."""
        options, prefixes = dict(batch[0].options), [job.prefix for job in batch]
        if any(prefixes):
            options["prefix"] = prefixes
        try:
            return self._engine([job.sentence for job in batch], **options)
        except Exception as error:
            return [error] if len(batch) == 1 else [self._outcomes([job])[0] for job in batch]
