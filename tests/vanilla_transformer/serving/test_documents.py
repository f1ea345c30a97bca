import asyncio
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.serving.documents import translate_text


def translated(text, translate, n_best=1):
    async def ranked(sentences):
        return [[translate(sentence, rank) for rank in range(n_best)] for sentence in sentences]

    translator = SimpleNamespace(language="en", target_language="zh", n_best=n_best, translate=ranked)
    return asyncio.run(translate_text(text, translator))


def test_line_breaks_and_spaces_stay():
    text = "  A dog runs.  It sleeps!\n\n\tA cat\r\nsits. "
    seen = []
    assert translated(text, lambda sentence, rank: seen.append(sentence) or sentence.upper()) == [text.upper()]
    assert seen == ["A dog runs.", "It sleeps!", "A cat", "sits."]


def test_the_second_translation_has_the_second_best_of_each_sentence():
    assert translated("One. Two.", lambda sentence, rank: f"{sentence}{rank}", n_best=2) == [
        "One.0 Two.0",
        "One.1 Two.1",
    ]
    assert translated(" \n", lambda sentence, rank: "", n_best=2) == [" \n", " \n"]


@given(st.text(st.sampled_from("aB .!?\n\t\r\x85\u2028\u3000ß。")))
def test_nothing_but_sentences_is_translated(text):
    assert translated(text, lambda sentence, rank: sentence) == [text]
