"""Translating a corpus in shards: resumably, with constant memory, by one process or by many.

Each shard is translated by itself, and its samples have a seed of their own. So the result does not depend on who
translates which shard, nor on how often a process is killed: it has the same bytes as that of one process that was
never stopped.
"""

import hashlib
import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.bulk_translation.shard_formats import Corpus
from vanilla_transformer.bulk_translation.shards import CountRows, Range, Shards
from vanilla_transformer.command_line.inference_arguments import LoadingArguments
from vanilla_transformer.hub.installed import missing_for_torch
from vanilla_transformer.hub.saved_files import CONFIG, find_file, find_model
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.safe_files.atomic_writes import new_file
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.translation.glossary import Glossary
from vanilla_transformer.translation.reranking import RerankingTranslator


@dataclass(frozen=True)
class Reranking:
    """A choice among candidates: options of `RerankingTranslator`.

    Args:
        model: Folder or name of the model of the reverse direction.
        weight: How much it counts.
        candidates: Number of translations it chooses among.
    """

    model: str
    weight: float
    candidates: int


@dataclass
class CorpusTranslation:
    """What to translate, how, and where to. It can be pickled, so that other processes can do the same.

    Args:
        folder: The folder of the shards.
        corpus: The texts.
        models: Folders of the model or of an ensemble, or names on the Hub.
        loading: Options of `Translator.from_pretrained`.
        generation: Options of `Translator.translate`.
        divide: Returns the ranges of the shards of so many rows.
        window: Texts that are read ahead and sorted by length.
        seed: Seed of samples; each shard has its own seed, made of this one and its number.
        reranking: The choice among candidates, if there is one.
        only_shards: Numbers of the shards that this process may translate; by default all of them.
    """

    folder: str
    corpus: Corpus
    models: Sequence[str]
    loading: LoadingArguments
    generation: dict[str, Any]
    divide: Callable[[int], list[Range]]
    window: int = 4096
    seed: int = 0
    reranking: Reranking | None = None
    only_shards: Collection[int] | None = None
    rows: int = field(init=False)
    settings: dict[str, Any] = field(init=False)
    shards: Shards = field(init=False)

    def __post_init__(self) -> None:
        self.rows, digest = self.corpus.number_and_digest()
        self.settings = json.loads(json.dumps(self._settings(digest)))

    def begin(self) -> Translator | RerankingTranslator:
        """Begins the folder or continues it, and returns the translator. Options that can't be used are refused."""
        translator = self.load()
        translator.translate([], **self.generation)  # wrong options are not written down
        self.shards = Shards(
            self.folder, self.settings, self.divide(self.rows), suffix=self.corpus.suffix, only=self.only_shards
        )
        return translator

    def load(self) -> Translator | RerankingTranslator:
        """Loads the translator, on the GPU of this process if there are several of both."""
        options = {**vars(self.loading), "device": self.loading.device or device_of_process()}
        translator = Translator.from_pretrained(list(self.models), window=self.window, **options)
        if self.reranking is None:
            return translator
        reverse = Translator.from_pretrained(self.reranking.model, window=self.window, **options)
        return RerankingTranslator(
            translator, reverse, weight=self.reranking.weight, candidates=self.reranking.candidates
        )

    def join(self) -> None:
        """Joins the shards to one file, in one process; returns when it is there."""

        def write() -> None:
            with new_file(self.shards.whole) as temporary:
                self.corpus.join(self.shards.files(), temporary)

        self.shards.finish(write)
        self.shards.tidy()

    def lines(self) -> Iterator[str]:
        """Yields the lines of all shards of a corpus of lines."""
        return lines_in_files(map(str, self.shards.files()))

    def _engine(self) -> dict[str, str]:
        """Returns what decodes, if that depends on what is installed: all workers must have the same."""
        if self.loading.backend != "auto" or len(self.models) > 1:
            return {}
        from vanilla_transformer.engines.auto_engine import why_torch

        (model,) = self.models
        try:
            reason = why_torch(model, self.loading.device, revision=self.loading.revision)
        except ValueError:
            return {}  # a model that is not there is reported when it is loaded
        return {"engine": "ctranslate2" if reason is None else "torch"}

    def _settings(self, digest: str) -> dict[str, Any]:
        """Returns everything that the result depends on. Not the device: workers may have different ones."""
        loading = {name: value for name, value in asdict(self.loading).items() if name not in ("device", "verbose")}
        glossary = self.generation.get("glossary")
        terms = {"glossary": glossary.targets} if isinstance(glossary, Glossary) else {}
        reranking = {}
        if self.reranking is not None:
            (content,) = digest_of_models([self.reranking.model], self.loading.revision)
            reranking = {"reranking": {**asdict(self.reranking), "content of the model": content}}
        return {
            "model": list(self.models),
            **self._engine(),
            "content of the model": digest_of_models(self.models, self.loading.revision),
            "content of the input": digest,
            **self.corpus.settings(),
            **self.generation,
            **terms,
            **reranking,
            **loading,
            "window": self.window,
            "seed": self.seed,
            "shards": len(self.divide(self.rows)),
        }


class ShardWorker:
    """Translates shards in one process.

    Args:
        translation: What to translate.
        translator: Its translator; by default it is loaded.
    """

    def __init__(self, translation: CorpusTranslation, translator: Translator | RerankingTranslator | None = None):
        self.translation = translation
        self.translator = translator or translation.load()
        self.reader = _Reader(translation.corpus)

    def work(self) -> None:
        """Translates until all shards are done."""
        self.translation.shards.work(self._translate)

    def work_on(self, number: int) -> None:
        """Translates one shard, or waits for another process that is doing so."""
        self.translation.shards.work_on(number, self._translate)

    def _translate(self, number: int, count_rows: CountRows) -> None:
        translation = self.translation
        start, stop = translation.shards.ranges[number]
        self.translator.backend.set_seed(zlib.crc32(f"{translation.seed} {number}".encode()) % 2**31)
        rows = deque[Any]()  # those whose translation is not there yet, at most a window

        def texts() -> Iterator[str]:
            for row in self.reader.read(start, stop):
                rows.append(row)
                yield translation.corpus.text_of(row)

        def translated() -> Iterator[tuple[Any, list[Hypothesis]]]:
            options = {"numbers": count(start + 1), **translation.generation}
            for done, hypotheses in enumerate(self.translator.translate(texts(), **options), start=1):
                yield rows.popleft(), hypotheses
                count_rows(done)

        with new_file(translation.shards.file(number)) as temporary:
            translation.corpus.write(temporary, translated())


class _Reader:
    """Reads ranges of a corpus. Files are read from their beginning, so ranges in ascending order are read fastest.

    Args:
        corpus: The corpus.
    """

    def __init__(self, corpus: Corpus):
        self.corpus, self.rows, self.position = corpus, corpus.rows(), 0

    def read(self, start: int, stop: int) -> Iterator[Any]:
        """Yields the rows of a range. The corpus must not have changed."""
        if start < self.position:
            self.rows, self.position = self.corpus.rows(), 0
        self.position += sum(1 for _ in islice(self.rows, start - self.position))
        for row in islice(self.rows, stop - start):
            self.position += 1
            yield row
        if self.position != stop:
            raise ValueError(
                f"The input ends after row {self.position:,} but had {stop:,}: it was changed. Restore it."
            )


def device_of_process() -> str | None:
    """Returns the GPU of one of several processes that torchrun, Accelerate or --processes has started."""
    rank = os.environ.get("LOCAL_RANK")
    if rank is None or missing_for_torch():
        return None
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return None
    return f"{accelerator.type}:{int(rank) % torch.accelerator.device_count()}"


# --- what translations depend on ---


def digest_of_models(names: Iterable[str], revision: str = "main") -> list[str | None]:
    """Returns a digest of the files of each model in a folder, and the commit of one on the Hub."""
    paths = [Path(find_model(name)) for name in names]
    return [_digest_of_model(path) if path.is_dir() else _commit_of(str(path), revision) for path in paths]


def _digest_of_model(folder: Path) -> str:
    digest = hashlib.sha256()
    patterns = ("*.json", "*.safetensors", f"{TARGET}/*.json")
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _commit_of(name: str, revision: str) -> str | None:
    try:
        return Path(str(find_file(name, CONFIG, revision=revision))).parent.name
    except ValueError:
        return None  # a model that is not there is reported when it is loaded
