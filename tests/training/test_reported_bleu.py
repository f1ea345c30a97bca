"""A model of any recipe has one decoding: its BLEU is that of `generate`, the pipeline, `Translator` and
`vanilla evaluate`, with this package and without it."""

import json
import os
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForSeq2SeqLM, pipeline

from tests.training.conftest import SIZES
from vanilla_transformer import Translator
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET, language_tag, language_tags
from vanilla_transformer.scripts import evaluate_bleu
from vanilla_transformer.training import train
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments


RECIPES = {path.stem: path for path in (Path(train.__file__).parent / "recipes").glob("*.yaml")}
# Without and with decoding options, each architecture, several languages, a trained model that is continued.
CHEAP = ("demo", "demo_mask_predict", "everyday_from_english", "finetune", "multi30k_en_de", "rnn_search_demo")
# The recipe whose model takes the place of a trained one.
STARTS = {"finetune": "demo", "everyday_again": "everyday_from_english"}
# Keys of the corpus and of the machine.
REPLACED = (
    *("dataset", "dataset_config", "dataset_revision", "test_files", "test_sets", "references", "train_weights"),
    *("num_proc", "tokens_per_update", "dataloader_num_workers", "early_stopping"),
)
TYPES = (ModelArguments, CorpusArguments, VocabularyArguments, TranslationTrainingArguments)
KEYS = {field.name for arguments in TYPES for field in fields(arguments)}  # without those of `vanilla variants`


class Runs:
    """Short runs of recipes on a corpus of reversed letters, each made once."""

    def __init__(self, folder: Path):
        self.folder, draw = folder, random.Random(0)
        for split, number in (("train", 200), ("val", 6)):
            lines = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 7))] for _ in range(number)]
            for language in ("en", "de", "fr", "es", "zh", "cs"):
                words = lines if language == "en" else [line[::-1] for line in lines]
                (folder / f"{split}.{language}").write_text("".join(" ".join(line) + "\n" for line in words))
        self.texts = (folder / "val.en").read_text().splitlines()

    def __getitem__(self, name: str) -> Path:
        """Returns the folder of a run, and trains it first if it is not there yet."""
        folder = self.folder / name
        if not folder.is_dir():
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps(self._shortened(name, yaml.safe_load(RECIPES[name].read_text()))))
            train.main([str(path)])
        return folder

    def _shortened(self, name: str, recipe: dict[str, Any]) -> dict[str, Any]:
        files = {"train_files": self._files(recipe, "train"), "validation_files": self._files(recipe, "val")}
        fields, model = recipe.get("model_config") or {}, {}
        if name in STARTS or "model_name_or_path" in recipe:
            model["model_name_or_path"] = str(self[STARTS.get(name, "multi30k_en_de")] / "model")
        else:
            fields = {**fields, **SIZES[recipe.get("model_type", "vanilla_transformer")]}
        if "initialize_from" in recipe:
            model["initialize_from"] = str(self["multi30k_en_de"] / "model")
            fields["encoder_attention_heads"] = fields["decoder_attention_heads"] = 4  # the teacher's
        kept = {key: value for key, value in recipe.items() if key in KEYS and key not in REPLACED}
        lengths = {"max_steps": 6, "warmup_steps": 2, "save_steps": 3, "max_tokens": 256, "vocab_size": 600}
        quietly = {"eval_strategy": "no", "use_cpu": True, "bf16": False, "output_dir": str(self.folder / name)}
        return {**kept, **files, **model, "model_config": fields, **lengths, **quietly}

    def _files(self, recipe: dict[str, Any], split: str) -> list[str]:
        path = str(self.folder / split)
        pairs = {"-".join(sorted(direction.split("-"))) for direction in recipe.get("directions", ())}
        return [f"{pair}={path}" for pair in sorted(pairs)] or [path]  # a bitext serves both directions


WITHOUT_THE_PACKAGE = """
import json, os, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
generated = {}
for folder, (texts, target) in json.load(sys.stdin).items():
    tokenizer, target_tokenizer = (
        AutoTokenizer.from_pretrained(path, trust_remote_code=True) for path in (folder, os.path.join(folder, target))
    )
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    outputs = model.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
    generated[folder] = target_tokenizer.batch_decode(outputs, skip_special_tokens=True)
print(json.dumps(generated))
"""


@pytest.mark.parametrize(
    "names", [CHEAP, pytest.param(sorted(RECIPES.keys() - CHEAP), marks=pytest.mark.slow)], ids=["cheap", "rest"]
)
def test_every_road_gives_the_text_that_was_scored(tmp_path, names):
    runs = Runs(tmp_path)
    scored: dict[str, tuple[list[str], str]] = {}
    expected: dict[str, list[str]] = {}
    for name in names:
        run, languages = runs[name], yaml.safe_load((runs[name] / "recipe.yaml").read_text())
        (source, target), *_ = [each.split("-") for each in languages.get("directions") or ()] or [
            (languages["source_lang"], languages["target_lang"])
        ]
        translator = Translator.from_pretrained(run / "model", backend="torch")
        tags = language_tags(translator.tokenizer)
        texts = [f"{language_tag(target)} {text}" if tags else text for text in runs.texts]
        if source != "en":
            texts = (tmp_path / f"val.{source}").read_text().splitlines()
        direction = f"{source}-{target}." if languages.get("directions") else ""
        lines = (run / f"validation.{direction}hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
        one_line = [" ".join(text.split()) for text in translator(texts)]
        assert one_line == lines, name

        model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(run / "model"), translator.tokenizer
        outputs = model.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
        generated = translator.target_tokenizer.batch_decode(outputs, skip_special_tokens=True)
        assert generated == translator(texts), name
        pipe = pipeline("vanilla-translation", model=str(run / "model"))
        assert [row["translation_text"] for row in pipe(texts, split_sentences=False)] == generated, name

        words = ["--model", str(run / "model"), "--test_files", str(tmp_path / "val"), "--backend", "torch"]
        words += ["--source_lang", source, "--target_lang", target, "--output_dir", str(tmp_path / "evaluated" / name)]
        evaluate_bleu.main(words)
        written = (tmp_path / "evaluated" / name / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
        assert [" ".join(line.split()) for line in written] == lines, name
        has_target = (run / "model" / TARGET).is_dir()
        scored[str(run / "model")] = (texts, TARGET if has_target else "")
        expected[str(run / "model")] = generated

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE],
        input=json.dumps(scored),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == expected
