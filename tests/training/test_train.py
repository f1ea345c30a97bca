"""`vanilla train`: complete runs, resumed runs, and runs that are refused."""

import json
from dataclasses import asdict

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers import trainer as library_trainer

from tests.training.runs import final_weights, losses, write_reversals
from vanilla_transformer import Translator
from vanilla_transformer.engines.torch_engine import TorchBackend
from vanilla_transformer.hub.languages import load_languages
from vanilla_transformer.models.search_options import BeamSearchOptions
from vanilla_transformer.training import accelerate_loop
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.evaluation.evaluator import Evaluator
from vanilla_transformer.training.run_folder.checkpoint_averaging import average, load_states


def test_a_run_leaves_everything_behind(recipe, tmp_path, capsys):
    train_script.main(recipe())
    run = tmp_path / "run"
    names = {path.name for path in run.iterdir()}
    assert {
        "recipe.yaml",
        "run.json",
        "metrics.jsonl",
        "learning_curve.png",
        "results.json",
        "tokenizer",
        "model",
    } <= names
    assert "validation.hypotheses.txt" in names
    assert [line for line in (run / "metrics.jsonl").read_text().splitlines() if "eval_bleu" in line]
    assert len(losses(run)) == 12
    description = json.loads((run / "run.json").read_text())
    assert description["pairs"] == {"train": 400, "validation": 20}
    assert description["seed"] == 42
    assert "sacrebleu" in description["versions"]
    results = json.loads((run / "results.json").read_text())
    kept = ["checkpoint-8", "checkpoint-12"]  # not one of the first half
    bleu = results["validation_bleu_of"]
    assert results["averaged"] == (kept if bleu["mean"] >= bleu["last"] else [])
    assert results["validation"]["sacrebleu"]["signature"].startswith("nrefs:1")
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(run / "model"),
        AutoTokenizer.from_pretrained(run / "model"),
    )
    assert model.config.use_cache, "training turns the cache off; a saved model must have it on"
    output = model.generate(**tokenizer("a b c", return_tensors="pt"), max_new_tokens=5)
    assert isinstance(tokenizer.decode(output[0], skip_special_tokens=True), str)
    assert "model in" in capsys.readouterr().out


def test_a_run_repeats_itself_from_the_recipe_it_wrote(recipe, tmp_path):
    train_script.main(recipe())
    train_script.main([str(tmp_path / "run" / "recipe.yaml"), "--output_dir", str(tmp_path / "again")])
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


@pytest.mark.parametrize("computes", [True, False])
def test_the_precision_that_auto_chose_is_said_and_kept(recipe, tmp_path, capsys, monkeypatch, computes):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": computes})
    train_script.main(recipe(bf16="auto", max_steps=2, eval_strategy="no"))
    precision = "bfloat16" if computes else "float32"
    assert f"training in {precision}" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "results.json").read_text())["precision"] == precision
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text()).get("bf16", False) is computes


def test_accumulating_four_batches_is_one_batch_of_all_four(recipe, tmp_path):
    """The same pairs in each update, so the same losses and weights."""
    keys = {"save_strategy": "no", "eval_strategy": "no", "average_checkpoints": 0, "max_steps": 3}
    train_script.main(recipe(max_tokens=100_000, output_dir=str(tmp_path / "whole"), **keys))
    train_script.main(
        recipe(max_tokens=900, gradient_accumulation_steps=4, output_dir=str(tmp_path / "pieces"), **keys)
    )
    assert len(losses(tmp_path / "whole")) == len(losses(tmp_path / "pieces")) == 3
    assert losses(tmp_path / "pieces") == pytest.approx(losses(tmp_path / "whole"), rel=1e-4)
    for name, tensor in final_weights(tmp_path / "pieces").items():
        assert_close(tensor, final_weights(tmp_path / "whole")[name], rtol=1e-3, atol=1e-4)


def test_a_run_resumes_mid_epoch_where_it_stopped(recipe, tmp_path, monkeypatch):
    """With dropout, so that the random state matters; the newest checkpoint is incomplete."""
    keys = {"model_config": {"dropout": 0.1}, "save_total_limit": 3, "seed": 3}
    train_script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    train_script.main(recipe(output_dir=str(tmp_path / "parts"), **keys))
    parts = tmp_path / "parts"
    (parts / "checkpoint-12" / "complete").unlink()
    (parts / "checkpoint-12" / "optimizer.pt").write_bytes(b"half")
    warnings: list[str] = []
    monkeypatch.setattr(library_trainer.logger, "warning", warnings.append)
    train_script.main([*recipe(output_dir=str(parts), **keys), "--resume_from_checkpoint", "last"])
    assert not any("missing keys" in warning for warning in warnings)  # of tied weights
    assert losses(parts) == losses(tmp_path / "whole")
    for name, tensor in final_weights(parts).items():
        assert_close(tensor, final_weights(tmp_path / "whole")[name], rtol=0, atol=0)


def test_resuming_a_finished_run_makes_no_further_update(recipe, tmp_path):
    train_script.main(recipe())
    run = tmp_path / "run"
    before, weights = losses(run), final_weights(run)
    (run / "results.json").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12, "lo')  # half a line, as a power cut leaves it
    train_script.main([*recipe(), "--resume_from_checkpoint", "last"])
    assert (run / "results.json").is_file()
    assert not (run / "checkpoint-13").exists()
    for name, tensor in final_weights(run).items():
        assert_close(tensor, weights[name], rtol=0, atol=0)
    assert before


def test_resuming_before_later_checkpoints_is_refused(recipe, tmp_path):
    train_script.main(recipe())
    middle = str(tmp_path / "run" / "checkpoint-4")
    with pytest.raises(SystemExit, match=r"has checkpoints after checkpoint-4, up to checkpoint-12: move them away"):
        train_script.main([*recipe(), "--resume_from_checkpoint", middle])


@pytest.mark.parametrize(
    ("module", "files"), [(train_script, "optimizer*"), (train_script, "model*"), (accelerate_loop, "optimizer*")]
)
def test_a_damaged_state_of_a_checkpoint_gets_a_sentence(recipe, tmp_path, module, files):
    keys = {"average_checkpoints": 0, "max_steps": 4, "save_strategy": "steps"}
    module.main(recipe(**keys))
    for state in (tmp_path / "run" / "checkpoint-4").glob(files):
        state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(SystemExit, match=r"checkpoint-4 can't be resumed from, .* damaged \(.+\): move it away"):
        module.main([*recipe(**{**keys, "max_steps": 5}), "--resume_from_checkpoint", "last"])


@pytest.mark.parametrize("module", [train_script, accelerate_loop])
def test_training_for_another_direction_says_so_and_is_recorded(recipe, tmp_path, capsys, module):
    keys = {"average_checkpoints": 0, "max_steps": 1, "save_strategy": "no", "eval_strategy": "no"}
    module.main(recipe(**keys))
    assert "now trained for" not in (said := capsys.readouterr().out)
    assert "1 process(es)" in said
    trained, corpus = tmp_path / "run" / "model", write_reversals(tmp_path)
    words = ["--model_name_or_path", str(trained), "--train_files", f"{corpus}.de", f"{corpus}.en", "--max_steps", "1"]
    words += ["--use_cpu", "true", "--save_strategy", "no", "--eval_strategy", "no", "--average_checkpoints", "0"]
    module.main([*words, "--max_tokens", "128", "--output_dir", str(tmp_path / "again")])
    assert f"{trained} translates en-de and is now trained for de-en." in capsys.readouterr().out
    assert load_languages(tmp_path / "again" / "model") == ("de", "en")


def test_every_mistake_ends_in_a_sentence(recipe, tmp_path):
    with pytest.raises(SystemExit, match=r"unknown key 'max_token' \(did you mean 'max_tokens'\?\): see --help"):
        train_script.main(recipe(max_token=3))
    with pytest.raises(SystemExit, match=r"no run in .* to resume"):
        train_script.main([*recipe(), "--resume_from_checkpoint", "last"])
    with pytest.raises(SystemExit, match=r"no preset 'tinny'"):
        train_script.main(recipe(preset="tinny"))
    train_script.main(recipe(max_steps=4, output_dir=str(tmp_path / "done")))
    with pytest.raises(SystemExit, match=r"already holds a run.*--resume_from_checkpoint last"):
        train_script.main(recipe(output_dir=str(tmp_path / "done")))
    with pytest.raises(SystemExit, match=r"'encoder_layers': 1.*, not model_config=.*'encoder_layers': 2"):
        train_script.main(
            [
                *recipe(output_dir=str(tmp_path / "done"), model_config={"encoder_layers": 2}),
                "--resume_from_checkpoint",
                "last",
            ]
        )
    with pytest.raises(SystemExit, match=r"tokenizer has \d+ tokens but the model's vocab_size is 262"):
        train_script.main(recipe(model_config={"vocab_size": 262}, output_dir=str(tmp_path / "mismatch")))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"warmup_steps": 12}, [r"warmup_steps=12 updates does not end before max_steps=12"]),
        ({"warmup_steps": 11}, []),
        ({"eval_steps": 12}, ["There is no evaluation before the end"]),
        ({"eval_strategy": "no"}, ["There is no evaluation before the end"]),
        ({"max_steps": -1, "warmup_steps": 1000}, []),
    ],
)
def test_settings_that_ruin_a_run_get_a_warning(recipe, keys, expected):
    *_, args = train_script.parse_recipe("", recipe(**keys))
    said = train_script.warnings_about(args)
    assert len(said) == len(expected)
    assert all(part in sentence for part, sentence in zip(expected, said, strict=True))


def test_references_of_another_length_are_refused_before_the_training(recipe, tmp_path):
    (tmp_path / "short.de").write_text("a\n")
    keys = {"test_files": [write_reversals(tmp_path, 20, seed=5)], "references": [f"test={tmp_path / 'short.de'}"]}
    with pytest.raises(SystemExit, match=r"short\.de"):
        train_script.main(recipe(max_steps=2, **keys))
    assert not (tmp_path / "run" / "run.json").exists()


def test_weights_that_leave_no_pair_are_refused(recipe):
    for weight, message in [(0.001, r"train_weights=\[0.001\] leave no training pair"), (1e9, "at most 1,000")]:
        with pytest.raises(SystemExit, match=message):
            train_script.main(recipe(max_steps=2, train_weights=[weight]))


def test_a_refused_run_leaves_no_vocabulary_for_the_next(recipe, tmp_path):
    with pytest.raises(SystemExit, match="no preset 'tinny'"):
        train_script.main(recipe(preset="tinny", vocab_size=268, max_steps=2))
    train_script.main(recipe(vocab_size=264, max_steps=2))
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run" / "model")) == 264


def test_a_moving_average_becomes_the_final_model_and_survives_a_resume(recipe, tmp_path):
    keys = {"ema_decay": 0.5, "eval_strategy": "no", "max_steps": 8}
    train_script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    states = [AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "whole" / name) for name in ("checkpoint-8", "model")]
    last, final = (model.state_dict()["lm_head.weight"] for model in states)
    assert not torch.equal(last, final)
    assert json.loads((tmp_path / "whole" / "results.json").read_text())["ema_decay"] == 0.5

    train_script.main(recipe(output_dir=str(tmp_path / "parts"), **keys))
    (tmp_path / "parts" / "checkpoint-8" / "complete").unlink()
    train_script.main([*recipe(output_dir=str(tmp_path / "parts"), **keys), "--resume_from_checkpoint", "last"])
    for name, tensor in final_weights(tmp_path / "parts").items():
        assert_close(tensor, final_weights(tmp_path / "whole")[name], rtol=0, atol=0)


def test_noise_and_bpe_dropout_reach_training(recipe, tmp_path):
    keys = {"eval_strategy": "no", "max_steps": 3, "save_strategy": "no", "average_checkpoints": 0}
    train_script.main(recipe(output_dir=str(tmp_path / "plain"), **keys))
    for name, noise in [("noise", {"prefix_replace": 0.3, "prefix_drop": 0.2}), ("dropout", {"bpe_dropout": 0.5})]:
        train_script.main(recipe(output_dir=str(tmp_path / name), **keys, **noise))
        assert losses(tmp_path / name) != losses(tmp_path / "plain"), name
    train_script.main(recipe(output_dir=str(tmp_path / "noise2"), **keys, prefix_replace=0.3, prefix_drop=0.2))
    assert losses(tmp_path / "noise2") == losses(tmp_path / "noise")


@pytest.mark.slow
def test_a_run_with_bpe_dropout_repeats_and_resumes_exactly(recipe, tmp_path):
    keys = {"bpe_dropout": 0.3, "prefix_drop": 0.1, "eval_strategy": "no", "save_steps": 15, "max_steps": 20}
    keys |= {"average_checkpoints": 0, "max_tokens": 256}  # an epoch has about 13 updates
    train_script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    train_script.main(recipe(output_dir=str(tmp_path / "parts"), **keys))
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    (tmp_path / "parts" / "checkpoint-20" / "complete").unlink()
    train_script.main([*recipe(output_dir=str(tmp_path / "parts"), **keys), "--resume_from_checkpoint", "last"])
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    for name, tensor in final_weights(tmp_path / "parts").items():
        assert_close(tensor, final_weights(tmp_path / "whole")[name], rtol=0, atol=0)


def test_the_mean_of_checkpoints_is_kept_only_if_it_is_better(recipe, tmp_path, monkeypatch):
    keys = {"average_if_better": True, "eval_strategy": "no", "max_steps": 8}
    for name, bleu in [("better", {"last": 1.0, "mean": 2.0}), ("worse", {"last": 2.0, "mean": 1.0})]:
        scores = iter(bleu.values())
        monkeypatch.setattr(Evaluator, "bleu", lambda *_, scores=scores: next(scores))
        train_script.main(recipe(output_dir=str(tmp_path / name), **keys))
        folders = [tmp_path / name / f"checkpoint-{step}" for step in (4, 8)]
        averaged = folders if name == "better" else []
        results = json.loads((tmp_path / name / "results.json").read_text())
        assert results["averaged"] == [folder.name for folder in averaged]
        assert results["validation_bleu_of"] == bleu
        expected = average(load_states(averaged or folders[-1:]))
        for weight, tensor in load_file(tmp_path / name / "model" / "model.safetensors").items():
            assert_close(tensor, expected[weight], rtol=0, atol=0)
    with pytest.raises(SystemExit, match="average_if_better needs a validation set"):
        train_script.main(recipe(output_dir=str(tmp_path / "none"), validation_files=[], **keys))
    with pytest.raises(SystemExit, match="set average_checkpoints to 2 or more and ema_decay to 0"):
        train_script.main(recipe(output_dir=str(tmp_path / "ema"), ema_decay=0.9, **keys))


def test_one_file_needs_no_brackets_and_the_model_records_its_languages(recipe, tmp_path):
    train_script.main(recipe(train_files=write_reversals(tmp_path), max_steps=2))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["pairs"]["train"] == 400
    assert load_languages(tmp_path / "run" / "model") == ("en", "de")


def test_several_test_sets_and_references(recipe, tmp_path):
    prefix = write_reversals(tmp_path, 20, seed=1)
    sets = {"test_sets": [f"one={prefix}", f"two={prefix}"], "references": [f"two={prefix}.en"]}
    train_script.main(recipe(max_steps=2, eval_strategy="no", **sets))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["one"]["loss"] == results["validation"]["loss"]
    assert results["one"]["sacrebleu"]["signature"].startswith("nrefs:1|")
    assert results["two"]["sacrebleu"]["signature"].startswith("nrefs:2|")
    assert (tmp_path / "run" / "two.hypotheses.txt").is_file()


def test_separate_vocabularies_train_and_load(recipe, tmp_path):
    train_script.main(recipe(separate=True, max_steps=4, vocab_size=280))
    folder = tmp_path / "run" / "model"
    model, target = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder, subfolder="target"),
    )
    assert model.config.target_vocab_size == len(target)


def test_a_streamed_corpus_trains_resumes_and_is_evaluated(recipe, tmp_path):
    keys = {"streaming": True, "max_steps": 8, "save_steps": 4}
    train_script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    assert json.loads((tmp_path / "whole" / "results.json").read_text())["validation"]["sacrebleu"]["score"] >= 0
    train_script.main(recipe(output_dir=str(tmp_path / "parts"), **keys))
    (tmp_path / "parts" / "checkpoint-8" / "complete").unlink()
    train_script.main([*recipe(output_dir=str(tmp_path / "parts"), **keys), "--resume_from_checkpoint", "last"])
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_early_stopping_stops_and_asks_for_evaluations(recipe, tmp_path):
    with pytest.raises(SystemExit, match="early_stopping needs evaluations"):
        train_script.main(recipe(early_stopping=2, eval_strategy="no"))
    train_script.main(recipe(early_stopping=1, rate_factor=1e-9, eval_steps=2, save_steps=2, max_steps=50))
    assert len(losses(tmp_path / "run")) < 20


def test_early_stopping_keeps_its_count_after_a_resume(recipe, tmp_path, monkeypatch):
    """BLEU never improves: three such evaluations end the run, also with a resume in between."""
    figures = {"sacrebleu": {"score": 1.0, "signature": "signature"}}
    monkeypatch.setattr(
        "vanilla_transformer.training.evaluation.evaluator.score_dataset", lambda *_, **options: figures
    )
    keys = {"early_stopping": 3, "eval_steps": 2, "save_steps": 2, "max_steps": 40}
    # The first evaluation is the best so far, and two are not better.
    train_script.main(recipe(**{**keys, "max_steps": 6}))
    train_script.main([*recipe(**keys), "--resume_from_checkpoint", "last"])
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 8


def test_the_finished_model_decodes_as_the_recipe_says(recipe, tmp_path, monkeypatch):
    searches = []
    real = TorchBackend.generate

    def watched(self, sources, prefixes, *, search, **options):
        searches.append((search.num_beams, search.length_penalty))
        return real(self, sources, prefixes, search=search, **options)

    monkeypatch.setattr(TorchBackend, "generate", watched)
    train_script.main(recipe(max_steps=2, eval_strategy="no", length_penalty=1.2))
    assert set(searches) == {(4, 1.2)}
    settings = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "model").generation_config
    assert (settings.num_beams, settings.length_penalty) == (4, 1.2)
    searches.clear()
    start = ["--model_name_or_path", str(tmp_path / "run" / "model"), "--output_dir", str(tmp_path / "tuned")]
    keys = {"num_beams": 3, "eval_beams": 2, "eval_steps": 2}
    train_script.main([*recipe(max_steps=2, **keys), *start])
    assert set(searches) == {(2, 1.2), (3, 1.2)}  # eval_beams is for measuring on the way
    results = json.loads((tmp_path / "tuned" / "results.json").read_text())
    assert results["decoding"] == asdict(BeamSearchOptions(num_beams=3, length_penalty=1.2))
    settings = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "tuned" / "model").generation_config
    assert (settings.num_beams, settings.length_penalty) == (3, 1.2)


@pytest.mark.parametrize(("model_type", "decoded_by"), [("rnn_search", "generate"), ("marian", "Translator")])
def test_results_say_whose_bleu_they_have(recipe, tmp_path, capsys, model_type, decoded_by):
    train_script.main(recipe(model_type=model_type, max_steps=2, eval_strategy="no"))
    assert json.loads((tmp_path / "run" / "results.json").read_text())["decoded_by"] == decoded_by
    said = "BLEU is that of Translator: generate() of MarianMTModel is transformers' own search."
    assert (said in capsys.readouterr().out) == (decoded_by == "Translator")


def test_a_greedy_model_is_saved_and_scored(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no", num_beams=1, length_penalty=0.6))
    settings = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "model").generation_config
    assert (settings.num_beams, settings.length_penalty) == (1, None)


def test_a_given_learning_rate_is_the_learning_rate(recipe, tmp_path):
    keys = {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "max_steps": 4, "eval_strategy": "no"}
    train_script.main(recipe(**keys))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["learning_rate"] for line in lines if "learning_rate" in line) <= 1e-3
    train_script.main([str(tmp_path / "run" / "recipe.yaml"), "--output_dir", str(tmp_path / "again")])
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


def test_a_lora_run_resumes_and_its_final_model_has_the_adapter_in_its_weights(recipe, tmp_path):
    train_script.main(recipe())
    keys = {"model_name_or_path": str(tmp_path / "run" / "model"), "lora_rank": 2, "model_config": {}}
    keys |= {"learning_rate": 0.01, "average_checkpoints": 2, "test_files": [write_reversals(tmp_path, 20, seed=5)]}

    def tuned(name: str, *words: str, **more):
        train_script.main([*recipe(output_dir=str(tmp_path / name), **keys, **more), *words])
        return tmp_path / name

    whole = tuned("whole")
    tuned("parts", max_steps=8)
    parts = tuned("parts", "--resume_from_checkpoint", "last")
    assert losses(parts) == losses(whole)
    before, after = final_weights(tmp_path / "run"), final_weights(whole)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed
    assert all(name.endswith("proj.weight") or ".fc" in name for name in changed)
    translator = Translator.from_pretrained(whole / "model")
    sources = (tmp_path / "pairs5.en").read_text().splitlines()
    assert translator(sources) == (whole / "test.hypotheses.txt").read_text().splitlines()
    with pytest.raises(SystemExit, match="was started with lora_rank=2, not lora_rank=3"):
        tuned("parts", "--resume_from_checkpoint", "last", "--lora_rank", "3")
    with pytest.raises(SystemExit, match="lora_rank=1000000 is above the model's width, 32"):
        tuned("high", "--lora_rank", "1000000")
    with pytest.raises(SystemExit, match="lora_rank=2 must be 1 or more, and adapts a trained model"):
        train_script.main(recipe(lora_rank=2))
