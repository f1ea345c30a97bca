import asyncio
import threading

import pytest

from vanilla_transformer import Hypothesis
from vanilla_transformer.serving.batching import Batching, BatchingTranslator
from vanilla_transformer.serving.errors import RequestError


class Engine:
    """Translates to upper case, when it is allowed to."""

    def __init__(self):
        self.batches, self.may_work = [], threading.Event()
        self.may_work.set()

    def __call__(self, sentences, **options):
        self.may_work.wait()
        self.batches.append((sentences, options))
        if "bad" in sentences:
            raise ValueError("can't translate this")
        return [[Hypothesis(sentence.upper())] for sentence in sentences]


def run(test, engine, batching=None, **options):
    """Runs a coroutine function with a translator that is started and stopped."""

    async def around():
        translator = BatchingTranslator(engine, batching, **options)
        await translator.start()
        try:
            return await test(translator)
        finally:
            engine.may_work.set()
            await translator.stop()

    return asyncio.run(around())


async def texts(translator, sentences, **options):
    return [hypotheses[0].text for hypotheses in await translator.translate(sentences, options)]


async def in_queue(translator, number):
    while translator.waiting != number:
        await asyncio.sleep(0)


def test_requests_are_translated_together_and_each_gets_its_own_answer():
    async def test(translator):
        requests = [[f"s{index}", f"t{index}"] for index in range(50)]
        return requests, await asyncio.gather(*(texts(translator, request) for request in requests))

    engine, sizes = Engine(), []
    requests, answers = run(test, engine, Batching(0.001, 64, halve_from=None), observe=sizes.append)
    assert answers == [[text.upper() for text in request] for request in requests]
    assert sizes == [64, 36]


def test_half_of_many_sentences_are_left_for_the_engine_while_answers_go_out():
    async def test(translator):
        return await asyncio.gather(*(texts(translator, [str(number)]) for number in range(50)))

    sizes = []
    answers = run(test, Engine(), Batching(0.001, 20, halve_from=16), observe=sizes.append)
    assert answers == [[str(number)] for number in range(50)]
    assert sizes == [20, 15, 15]


def test_different_options_are_different_batches():
    async def test(translator):
        return await asyncio.gather(*(texts(translator, ["a"], num_beams=1 + index % 2) for index in range(4)))

    engine = Engine()
    assert run(test, engine) == [["A"]] * 4
    assert engine.batches == [(["a", "a"], {"num_beams": 1}), (["a", "a"], {"num_beams": 2})]


def test_a_full_queue_refuses_instead_of_growing():
    async def test(translator):
        first = asyncio.create_task(texts(translator, ["a"]))
        await in_queue(translator, 1)
        await in_queue(translator, 0)  # the engine has it
        waiting = asyncio.create_task(texts(translator, ["b", "c", "d"]))
        await in_queue(translator, 3)
        with pytest.raises(RequestError, match="busy") as refused:
            await texts(translator, ["e", "f"])
        assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "1"})
        engine.may_work.set()
        assert await first + await waiting == ["A", "B", "C", "D"]

    engine = Engine()
    engine.may_work.clear()
    run(test, engine, max_waiting=4)


def test_a_client_that_goes_away_frees_its_place():
    async def test(translator):
        first = asyncio.create_task(texts(translator, ["a"]))
        await in_queue(translator, 1)
        await in_queue(translator, 0)
        gone = asyncio.create_task(texts(translator, ["b", "c"]))
        await in_queue(translator, 2)
        gone.cancel()
        await in_queue(translator, 0)
        engine.may_work.set()
        assert await first + await texts(translator, ["d"]) == ["A", "D"]

    engine = Engine()
    engine.may_work.clear()
    run(test, engine)
    assert [sentences for sentences, _ in engine.batches] == [["a"], ["d"]]


def test_a_sentence_that_fails_does_not_fail_others():
    async def test(translator):
        requests = (["good"], ["bad"], ["fine"])
        return await asyncio.gather(*(texts(translator, request) for request in requests), return_exceptions=True)

    good, error, fine = run(test, Engine())
    assert (good, fine) == (["GOOD"], ["FINE"])
    assert str(error) == "can't translate this"
