"""Variants are trained with the same budget, once, and compared in one table and one picture."""

import json

import pytest

from tests.training.runs import write_reversals
from vanilla_transformer.scripts import compare_variants
from vanilla_transformer.training.reports import published_figures
from vanilla_transformer.training.trainer import TranslationTrainer


SIZES = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
VARIANTS = {"paper": {}, "window": {"attention_pattern": "window", "attention_window": 2}, "none": {"dropout": 0.0}}


@pytest.fixture
def recipe(tmp_path):
    """A recipe of a few updates on a few sentences; the words of its command line."""
    files = {
        f"{part}_files": [write_reversals(tmp_path, 20, seed)] for seed, part in enumerate(("validation", "test"))
    }
    content = {
        "variants": VARIANTS,
        "source_lang": "en",
        "target_lang": "de",
        "train_files": [write_reversals(tmp_path, 200, seed=2)],
        **files,
        "vocab_size": 300,
        "preset": "tiny",
        "model_config": SIZES,
        "output_dir": str(tmp_path / "runs"),
        "max_tokens": 128,
        "max_steps": 4,
        "warmup_steps": 2,
        "logging_steps": 1,
        "save_steps": 2,
        "use_cpu": True,
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(content))  # JSON is YAML
    return [str(tmp_path / "recipe.yaml")]


def test_every_variant_gets_a_row_and_is_trained_once(recipe, tmp_path, capsys, monkeypatch):
    chosen = ["--only", "paper", "window"]
    compare_variants.main([*recipe, *chosen])
    folder = tmp_path / "runs"
    rows = json.loads((folder / "comparison.json").read_text())
    assert [row["variant"] for row in rows] == ["paper", "window"]
    for row in rows:
        run = folder / row["variant"]
        assert row["bleu"] == json.loads((run / "results.json").read_text())["test"]["sacrebleu"]["score"]
        assert row["tokens_per_second"] > 0
        assert row["parameters"] == rows[0]["parameters"]  # a window has none of its own
    configs = [json.loads((folder / row["variant"] / "model" / "config.json").read_text()) for row in rows]
    assert [config["attention_pattern"] for config in configs] == ["full", "window"]
    assert [config["d_model"] for config in configs] == [32, 32]
    lines = (folder / "comparison.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| variant", "| ---", "| paper", "| window"]
    assert (folder / "comparison.png").stat().st_size > 1000
    assert "perplexity, validation set" in capsys.readouterr().out

    monkeypatch.setattr(TranslationTrainer, "train", lambda *arguments, **options: pytest.fail("trained again"))
    compare_variants.main([*recipe, *chosen])


def test_losses_stand_beside_published_perplexities_and_those_that_disagree_get_a_second_seed(
    recipe, tmp_path, capsys, monkeypatch
):
    compare_variants.main([*recipe, "--only", "paper", "none", "--logging_steps", "50"])  # more than its updates
    rows = {
        row["variant"]: row["perplexity"] for row in json.loads((tmp_path / "runs" / "comparison.json").read_text())
    }
    # Published is the opposite of what came out, whatever that is.
    opposite = {name: 7.4 * (rows["paper"] / perplexity) ** 20 for name, perplexity in rows.items()}
    monkeypatch.setattr(published_figures, "SAME", 1e-6)
    words = ["--only", "paper", "none", "--published", json.dumps({**opposite, "window": 5.0}), "--second_seed", "9"]
    compare_variants.main([*recipe, *words])
    folder = tmp_path / "runs"
    kept = json.loads((folder / "published.json").read_text())
    assert [len(row["seeds"]) for row in kept["variants"].values()] == [2, 2]
    assert (folder / "none-9" / "results.json").is_file()
    assert (folder / "published.png").stat().st_size > 1000
    assert "Rank correlation" in capsys.readouterr().out

    (folder / "published.json").unlink()
    compare_variants.main([*recipe, "--only", "none", *words[3:]])
    assert not (folder / "published.json").exists(), "the others are compared with the first variant"


def test_an_interrupted_run_ends_the_comparison(recipe, tmp_path, monkeypatch):
    calls = []

    def interrupted(model, corpus, vocabulary, training):
        calls.append((training.output_dir, training.resume_from_checkpoint, training.seed))

    monkeypatch.setattr(compare_variants, "train", interrupted)
    compare_variants.main([*recipe, "--seeds", "3", "4"])
    assert calls == [(str(tmp_path / "runs" / "paper-3"), "auto", 3)]
    assert not (tmp_path / "runs" / "comparison.json").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--only", "papr"], "--only papr: there is no such variant.*paper"),
        (["--variants", "{"], "variants='{' is not valid JSON"),
        (["--published", '{"paper": 5.0}'], "published has no figure for none, window: add it"),
        (["--second_seed", "2"], "second_seed=2 is for variants that disagree with published figures"),
        (["--variants", '{"a": 1}'], "variants: a must map config fields to values, not 1"),
    ],
)
def test_mistakes_in_the_command_get_a_sentence(recipe, options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        compare_variants.main([*recipe, *options])


def test_a_recipe_without_variants_gets_a_sentence():
    with pytest.raises(SystemExit, match="No variants are given: add the key `variants` to the recipe"):
        compare_variants.main(["training/recipes/demo.yaml"])
