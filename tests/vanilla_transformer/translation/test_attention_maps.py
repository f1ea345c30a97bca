"""Pages get every weight that a model computed, to four digits, under the words and tokens it belongs to."""

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer import Translator
from vanilla_transformer.translation.attention_maps import AttentionMaps, attention_data
from vanilla_transformer.translation.words import word_attention


SOURCE = "A dog 🐕 runs in the snow."


def test_the_data_hold_the_weights_of_words_and_of_all_heads():
    bundled = Translator.from_pretrained("multi30k-en-de-tiny", backend="torch")
    hypothesis = bundled.attend(SOURCE, bundled(SOURCE))
    data = attention_data(SOURCE, hypothesis)
    assert (data["sentence"], data["translation"]) == (SOURCE, hypothesis.text)
    assert data["source"] == ["A", "dog", "🐕", "runs", "in", "the", "snow", ".", "</s>"]
    assert "".join(data["target"]) == hypothesis.text.replace(" ", "")
    weights = torch.from_numpy(word_attention(SOURCE, hypothesis).weights)
    assert_close(torch.tensor(data["weights"]), weights, rtol=0, atol=6e-5)
    kinds = {maps["kind"]: maps for maps in data["heads"]}
    assert list(kinds) == ["encoder self-attention", "decoder self-attention", "cross attention"]
    assert all(maps["explanation"].endswith(".") for maps in kinds.values())
    assert_close(torch.tensor(kinds["cross attention"]["weights"]), hypothesis.attention, rtol=0, atol=6e-5)
    assert kinds["decoder self-attention"]["columns"] == hypothesis.read_tokens
    assert "heads" not in attention_data(SOURCE, hypothesis, heads=False)


def test_attention_that_is_no_full_matrix_is_refused():
    with pytest.raises(ValueError, match=r"shape \[1, 1, 2, 3\], but 2 tokens attend to 2"):
        AttentionMaps("encoder self-attention", torch.ones(1, 1, 2, 3), ["a", "b"], ["a", "b"], "", "")
