"""A mask-predict model from its recipe to the Hub: training, `Translator`, pipeline, scripts and export."""

import json
from dataclasses import asdict

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from tests.training.runs import final_weights, losses, write_reversals
from vanilla_transformer import MaskPredictForConditionalGeneration, Translator
from vanilla_transformer.models.mask_predict_options import MaskPredictOptions
from vanilla_transformer.scripts import evaluate_bleu, export_to_hub, translate
from vanilla_transformer.training import accelerate_loop as train_accelerate
from vanilla_transformer.training import train


TEXTS = ["a b c", "h g f e d", "b b"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Returns the words of a command line; keywords override the recipe's keys."""
    folder = tmp_path_factory.mktemp("recipe")
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    content = {
        "source_lang": "en",
        "target_lang": "de",
        "train_files": [write_reversals(folder)],
        "validation_files": [write_reversals(folder, 20, seed=1)],
        "vocab_size": 300,
        "model_type": "mask_predict",
        "preset": "tiny",
        "model_config": {**sizes, "max_length_difference": 4},
        "objective": "uniform_masking",
        "iterations": 3,
        "length_candidates": 2,
        "max_tokens": 128,
        "max_steps": 8,
        "warmup_steps": 6,
        "logging_steps": 1,
        "save_steps": 4,
        "use_cpu": True,
    }

    def write(**keys) -> list[str]:
        (folder / "recipe.yaml").write_text(json.dumps({**content, **keys}))  # JSON is YAML
        return [str(folder / "recipe.yaml")]

    return write


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train.main(recipe(output_dir=str(folder), eval_strategy="steps", eval_steps=4))
    return folder


@pytest.fixture(scope="module")
def translator(run):
    return Translator.from_pretrained(run / "model")


def test_a_run_leaves_a_model_with_its_own_decoding(run):
    assert len(losses(run)) == 8
    results = json.loads((run / "results.json").read_text())
    assert results["decoding"] == asdict(MaskPredictOptions(iterations=3, length_candidates=2))
    assert results["validation"]["sacrebleu"]["score"] >= 0
    model = AutoModelForSeq2SeqLM.from_pretrained(run / "model")
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    assert type(model) is MaskPredictForConditionalGeneration
    assert model.config.mask_token_id == tokenizer.mask_token_id == len(tokenizer) - 1
    assert (model.generation_config.iterations, model.generation_config.length_candidates) == (3, 2)


def test_a_stopped_run_resumes_with_the_same_masks(recipe, run, tmp_path):
    stopped = str(tmp_path / "stopped")
    quiet = {"output_dir": stopped, "eval_strategy": "no"}
    train.main(recipe(**quiet, max_steps=4))
    train.main([*recipe(**quiet), "--resume_from_checkpoint", "last"])
    whole, resumed = final_weights(run), final_weights(tmp_path / "stopped")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_glancing_from_a_teacher_trains_in_the_plain_loop_too(recipe, tmp_path):
    train.main(
        recipe(
            output_dir=str(tmp_path / "teacher"),
            max_steps=1,
            model_type="vanilla_transformer",
            objective="cross_entropy",
            iterations=None,
            length_candidates=None,
            model_config={"encoder_layers": 1, "decoder_layers": 1, "d_model": 32},
        )
    )
    keys = {"objective": "glancing", "glancing_ratio": 0.3, "max_steps": 3, "eval_strategy": "no"}
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32}
    start = {"initialize_from": str(tmp_path / "teacher" / "model"), "model_config": sizes}
    train_accelerate.main(recipe(**keys, **start, output_dir=str(tmp_path / "glancing")))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "glancing" / "model")
    assert len(tokenizer) == len(AutoTokenizer.from_pretrained(tmp_path / "teacher" / "model")) + 1


def test_the_translator_decodes_with_the_models_search(translator):
    model, tokenizer = translator.model, translator.tokenizer
    alone = [
        tokenizer.decode(model.generate(**tokenizer(text, return_tensors="pt"))[0], skip_special_tokens=True)
        for text in TEXTS
    ]
    assert translator(TEXTS) == alone
    n_best = list(translator.translate(TEXTS, n_best=3, length_candidates=4, iterations=1))
    assert all(hypotheses[0].score >= hypotheses[1].score >= hypotheses[2].score for hypotheses in n_best)
    assert translator("a b c d e f", length_ratio=0.5) != translator("a b c d e f", length_ratio=2.0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t: t("a", num_beams=2), "num_beams is not an option of MaskPredictForConditionalGeneration"),
        (lambda t: t("a", length_penalty=0.6), "length_penalty is not an option of MaskPredict"),
        (lambda t: t("a", sample=True), "sample=True needs a model that works from left to right"),
        (lambda t: t("a", prefix="b"), "A prefix of 1 tokens is for decoding from left to right"),
        (
            lambda t: t("a", glossary={"a": "b"}),
            "The search of MaskPredictForConditionalGeneration has no glossary: leave it out",
        ),
        (lambda t: t("a", n_best=3), "n_best=3 is more than length_candidates=2 can find"),
        (lambda t: t("a", iterations=0), "iterations=0 must be a whole number of 1 or more"),
        (lambda t: list(t.translate(["a"], attention=True)), "attention=True needs a model that works"),
        (lambda t: list(t.score([("a", "b")])), r"score\(\) needs a model that works"),
        (lambda t: t.attend("a", "b"), r"attend\(\) needs a model that works"),
    ],
)
def test_what_only_autoregressive_models_can_do_is_refused_by_name(translator, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(translator)


def test_ctranslate2_refuses_it_by_name(run):
    with pytest.raises(ValueError, match="'mask_predict'"):
        Translator.from_pretrained(run / "model", backend="ctranslate2")


def test_pipeline_and_scripts_give_the_same_translations(run, translator, tmp_path):
    expected = translator(TEXTS, iterations=2, length_ratio=1.5)
    translation = pipeline("vanilla-translation", model=str(run / "model"), device="cpu")
    found = translation(TEXTS, iterations=2, length_ratio=1.5)
    assert [result["translation_text"] for result in found] == expected

    (tmp_path / "test.en").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "test.de").write_text("".join(f"{text}\n" for text in reversed(TEXTS)))
    options = ["--model", str(run / "model"), "--iterations", "2", "--length_ratio", "1.5"]
    translate.main([*options, "--input", str(tmp_path / "test.en"), "--output", str(tmp_path / "out.de")])
    assert (tmp_path / "out.de").read_text().splitlines() == expected
    evaluate_bleu.main([*options, "--test_files", str(tmp_path / "test"), "--output_dir", str(tmp_path / "scores")])
    results = json.loads((tmp_path / "scores" / "results.json").read_text())
    assert (tmp_path / "scores" / "hypotheses.txt").read_text().splitlines() == expected
    assert results["decoding"]["iterations"] == 2
    with pytest.raises(SystemExit, match="num_beams is not an option of MaskPredictForConditionalGeneration"):
        translate.main([*options, "--num_beams", "4", "--input", str(tmp_path / "test.en")])


def test_the_exported_folder_decodes_the_same_without_this_package(run, tmp_path, capsys):
    export_to_hub.main(["--run", str(run), "--output_dir", str(tmp_path / "hub"), "--example", "a b c"])
    assert "gives the same translations" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "hub").glob("*.py")}
    assert {"configuration_mask_predict.py", "modeling_mask_predict.py", "mask_predict_search.py"} <= names
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "mask-predict: 3 iterations and 2 length candidates" in card
    assert "beam" not in card.split("## Training")[0]


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "several_iterations"), [("uniform_masking", (1, 4)), ("glancing", (1,))])
def test_it_learns_to_reverse_sentences(recipe, objective, several_iterations, tmp_path):
    """From scratch, with the length of every translation. Glancing teaches one pass: a model that makes no mistakes is
    shown no tokens, and forgets what to do with them."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "dropout": 0.0, "max_length_difference": 4}
    keys = {"max_steps": 600, "max_tokens": 1024, "warmup_steps": 100, "logging_steps": 100, "save_steps": 600}
    keys |= {"learning_rate": 0.003, "lr_scheduler_type": "linear"}
    folder = tmp_path / "run"
    corpus = {
        "train_files": [write_reversals(tmp_path, 4000)],
        "validation_files": [write_reversals(tmp_path, 100, seed=1)],
    }
    train.main(recipe(output_dir=str(folder), objective=objective, model_config=sizes, **corpus, **keys))
    translator = Translator.from_pretrained(folder / "model")
    sources, targets = ((tmp_path / f"pairs1.{side}").read_text().splitlines() for side in ("en", "de"))
    for iterations in several_iterations:
        written = translator(sources, iterations=iterations, length_candidates=2)
        assert sum(text == target for text, target in zip(written, targets, strict=True)) >= 90
