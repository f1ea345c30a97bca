"""Importing the package costs nothing, and the auto classes and the pipeline find it in whatever order it is used."""

import subprocess
import sys
from pathlib import Path

import pytest


FOLDER = Path(__file__).parents[3] / "model_cards" / "multi30k-en-de-tiny"
SMALL = "d_model=16, vocab_size=50, encoder_layers=1, decoder_layers=1"
PROGRAMS = {
    "nothing is imported": """
import sys, vanilla_transformer
print(sorted({"torch", "transformers"} & sys.modules.keys()))
""",
    "the package first": f"""
import vanilla_transformer
from transformers import AutoConfig, AutoModelForSeq2SeqLM
for model_type in ("vanilla_transformer", "mask_predict", "rnn_search"):
    assert AutoConfig.for_model(model_type).model_type == model_type
print(type(AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model("vanilla_transformer", {SMALL}))).__name__)
""",
    "the library first, and a config of one's own": f"""
from transformers import AutoModel, pipeline
import vanilla_transformer
from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig
print(type(AutoModel.from_config(VanillaTransformerConfig({SMALL}))).__name__)
pipe = pipeline("vanilla-translation", model=FOLDER)
print(pipe("Two dogs run. A cat sleeps.")["translation_text"])
""",
    "names of the package": """
from vanilla_transformer import TranslationPipeline, Translator
from transformers import pipeline
print(pipeline("vanilla-translation", model=FOLDER)("Two dogs run.")["translation_text"])
print(Translator.from_pretrained("multi30k-en-de-tiny")("A cat sleeps."))
""",
}
EXPECTED = {
    "nothing is imported": "[]",
    "the package first": "VanillaTransformerForConditionalGeneration",
    "the library first, and a config of one's own": (
        "VanillaTransformerModel\nZwei Hunde laufen. Eine Katze schläft."
    ),
    "names of the package": "Zwei Hunde laufen.\nEine Katze schläft.",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_the_models(name):
    code = f"FOLDER = {str(FOLDER)!r}\n{PROGRAMS[name]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == EXPECTED[name]
