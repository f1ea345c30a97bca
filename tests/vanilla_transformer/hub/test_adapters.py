"""LoRA: PEFT knows which layers of our models to adapt, and a saved model has the adapter in its weights."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from tests.conftest import SMALL
from tests.small_models import lively
from vanilla_transformer import (
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.hub.adapters import add_adapter, has_adapter, merged
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.hub.loading import load_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer


peft = pytest.importorskip("peft")

TEXTS = ["The cat sleeps.", "A dog runs in the garden.", "A dog."]
WITHOUT_TARGET_MODULES = """
import sys
import vanilla_transformer
assert "peft" not in sys.modules
import peft
from transformers import AutoModelForSeq2SeqLM
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_2_SEQ_LM"))
print(sorted({name.split(".")[-4] for name, _ in model.named_parameters() if "lora_A" in name}))
"""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A model with its tokenizer, whose texts have different translations."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)
    torch.manual_seed(1)
    config = VanillaTransformerConfig(**{**SMALL, "vocab_size": len(tokenizer)})
    folder = tmp_path_factory.mktemp("model")
    lively(VanillaTransformerForConditionalGeneration(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def drawn(model, seed: int = 0):
    """An adapter starts as nothing: this one changes translations."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
    return model.eval()


def translations(model, tokenizer) -> list[list[int]]:
    options = {"num_beams": 1, "max_new_tokens": 12}
    return [model.generate(**tokenizer(text, return_tensors="pt"), **options)[0].tolist() for text in TEXTS]


def test_peft_needs_no_target_modules_and_the_package_does_not_import_peft(model_folder):
    command = [sys.executable, "-c", WITHOUT_TARGET_MODULES, str(model_folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.stdout.strip() == "['q_proj', 'v_proj']", done.stderr[-2000:]


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_peft_adapts_the_other_models_too(make_mask_model, attention):
    sizes = dict.fromkeys(("embedding_size", "hidden_size", "attention_size", "readout_size"), 12)
    recurrent = RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=23, attention=attention, **sizes))
    for model in (recurrent, make_mask_model()):
        assert has_adapter(peft.get_peft_model(model, peft.LoraConfig()))


def test_an_adapter_is_all_that_is_trained_and_merging_gives_a_plain_model(make_model, batch):
    model = make_model()
    plain = copy.deepcopy(model)
    add_adapter(model, 4)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert not [name for name in trained if "lm_head" in name or "embed" in name]
    drawn(model)
    whole = merged(model, None, [])
    assert has_adapter(model)  # it is as it was
    assert_close(whole(**batch).logits, model(**batch).logits)
    assert not torch.allclose(whole(**batch).logits, plain(**batch).logits, atol=1e-2)
    assert whole.state_dict().keys() == plain.state_dict().keys()
    assert all(parameter.requires_grad for parameter in whole.parameters())
    assert not hasattr(whole, "peft_config")


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_export_has_the_adapters_translations(model_folder, tmp_path, wrapped):
    tokenizer, _ = load_tokenizers(model_folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    before = translations(model, tokenizer)
    if wrapped:
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_2_SEQ_LM"))
    else:
        add_adapter(model, 4)
    adapted = translations(drawn(model), tokenizer)
    assert adapted != before
    export(model, tmp_path, tokenizer, card="# model")
    assert translations(AutoModelForSeq2SeqLM.from_pretrained(tmp_path), tokenizer) == adapted
    assert "vanilla_beam_search" in json.loads((tmp_path / "generation_config.json").read_text()).values()


def test_a_merge_that_changes_translations_is_refused(model_folder, monkeypatch):
    tokenizer, _ = load_tokenizers(model_folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    add_adapter(model, 4)
    drawn(model)
    monkeypatch.setattr(peft.tuners.lora.Linear, "merge", lambda layer, safe_merge: None)  # the adapter is lost
    with pytest.raises(ValueError, match=r"With its adapter merged, the model translates '.*' differently"):
        merged(model, tokenizer, TEXTS)
