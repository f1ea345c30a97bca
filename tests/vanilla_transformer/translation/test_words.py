import pytest
import torch
from torch.testing import assert_close

from tests.vanilla_transformer.serving.conftest import BUNDLED
from vanilla_transformer import Translator
from vanilla_transformer.translation.words import word_attention, word_spans, words_of_tokens


@pytest.fixture(scope="module")
def bundled():
    return Translator.from_pretrained(BUNDLED, backend="torch")


def words(text):
    return [text[start:end] for start, end in word_spans(text)]


def test_tokens_belong_to_words():
    text = "Über 30 Männer, laufen."
    assert words(text) == ["Über", "30", "Männer", ",", "laufen", "."]
    tokens = ["�", "�", "ber", "3", "0", "Mä", "nner", ",", "lauf", "en", ".", "</s>"]
    assert words_of_tokens(tokens, text) == [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 5, None]
    assert words_of_tokens(["</s>"], "") == [None]
    assert words_of_tokens(["↥", "über", "m", "än", "ner", "</s>"], "Über MÄNNER") == [0, 0, 1, 1, 1, None]


def test_weights_of_words_are_those_of_their_tokens(bundled):
    source = "Two skateboarders jump over a red bench."
    hypothesis = bundled.attend(source, bundled(source))
    attention = word_attention(source, hypothesis)
    target = hypothesis.text
    assert attention.weights.shape == (len(words(target)), len(words(source)) + 1)
    weights = torch.from_numpy(attention.weights)
    assert_close(weights.sum(-1), torch.ones(len(words(target))))
    aligned = {words(target)[row]: words(source)[column] for row, column in enumerate(attention.alignment)}
    assert {"Zwei": "Two", "rote": "red"}.items() <= aligned.items()
    layer = hypothesis.attention[-2].mean(0)
    first = sum(layer[row] for row, owner in enumerate(words_of_tokens(hypothesis.tokens, target)) if owner == 0)
    count = words_of_tokens(hypothesis.tokens, target).count(0)
    assert_close(weights[0, -1], first[-1] / count)
