"""Chunks join to the text, each is within the limit, and sentences stay whole where they can."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.translation.long_texts import split_into_chunks


pytest.importorskip("sentencex")


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab. \n\t\u3000é!"), max_size=120), st.integers(1, 40))
def test_chunks_join_to_the_text_and_keep_the_limit(text, limit):
    chunks = split_into_chunks(text, "en", len, limit)
    assert "".join(chunks) == text
    assert all(len(chunk) <= limit for chunk in chunks)


def test_sentences_are_chunks_and_long_ones_are_split_at_spaces():
    text = "The cat sleeps.  A dog runs and runs and runs. Yes!"
    assert split_into_chunks(text, "en", len, 24) == [
        "The cat sleeps.  ",
        "A dog runs and runs and ",
        "runs. ",
        "Yes!",
    ]
    assert split_into_chunks("x" * 10, "en", len, 4) == ["xx", "xxx", "xx", "xxx"]
