"""The trainer and the plain loop: they learn, they agree, and they go on where they were killed."""

import json
import random
import shutil

import pytest
import torch
import yaml
from torch.testing import assert_close
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration, beam_search
from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training import train_accelerate
from vanilla_transformer.training.ema import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TranslationTrainer
from vanilla_transformer.training.training_arguments import TranslationTrainingArguments


def write_reversals(folder, number: int = 400, seed: int = 0) -> str:
    """A task whose answer is the source backwards, as a corpus of files."""
    draw = random.Random(seed)
    sources = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 7))] for _ in range(number)]
    (folder / f"pairs{seed}.en").write_text("".join(" ".join(words) + "\n" for words in sources))
    (folder / f"pairs{seed}.de").write_text("".join(" ".join(reversed(words)) + "\n" for words in sources))
    return str(folder / f"pairs{seed}")


@pytest.fixture
def recipe(tmp_path):
    """A recipe for a run of a few seconds; keywords override its keys."""

    def write(**keys) -> list[str]:
        config = {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "d_model": 32,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
        }
        content = {
            "train_files": [write_reversals(tmp_path)],
            "validation_files": [write_reversals(tmp_path, 20, seed=1)],
            "vocab_size": 300,
            "preset": "tiny",
            "model_config": {**config, "dropout": 0.0, **keys.pop("model_config", {})},
            "output_dir": str(tmp_path / "run"),
            "max_tokens": 128,
            "max_steps": 12,
            "warmup_steps": 6,
            "logging_steps": 1,
            "save_steps": 4,
            "eval_steps": 6,
            "eval_strategy": "steps",
            "use_cpu": True,
            **keys,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps(content))  # JSON is YAML
        return [str(path)]

    return write


def losses(folder) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def final_weights(folder) -> dict[str, torch.Tensor]:
    """All but the biases of the keys: adding one vector to every key changes no attention weight, so their gradient is
    rounding noise, which Adam blows up to full steps."""
    state = AutoModelForSeq2SeqLM.from_pretrained(folder / "model").state_dict()
    return {name: tensor for name, tensor in state.items() if not name.endswith("k_proj.bias")}


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
    assert results["averaged"] == ["checkpoint-4", "checkpoint-8", "checkpoint-12"]
    assert results["validation"]["signature"].startswith("nrefs:1")
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


def test_the_plain_loop_gives_the_trainers_losses_and_weights(recipe, tmp_path):
    keys = {"average_checkpoints": 0, "gradient_accumulation_steps": 2}
    train_script.main(recipe(output_dir=str(tmp_path / "trainer"), **keys))
    arguments = train_script.parse_recipe("", recipe(output_dir=str(tmp_path / "loop"), **keys))
    in_loop = train_accelerate.train(*arguments)
    assert in_loop == pytest.approx(losses(tmp_path / "trainer"), rel=1e-4)
    for name, tensor in final_weights(tmp_path / "loop").items():
        assert_close(tensor, final_weights(tmp_path / "trainer")[name], rtol=1e-4, atol=1e-5)


def test_a_run_goes_on_mid_epoch_where_it_stopped(recipe, tmp_path):
    """With dropout, so that the state of the random numbers counts too; the newest checkpoint is only half written."""
    keys = {"model_config": {"dropout": 0.1}, "save_total_limit": 3, "seed": 3}
    train_script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    train_script.main(recipe(output_dir=str(tmp_path / "parts"), **keys))
    parts = tmp_path / "parts"
    (parts / "checkpoint-12" / "complete").unlink()
    (parts / "checkpoint-12" / "optimizer.pt").write_bytes(b"half")
    train_script.main([*recipe(output_dir=str(parts), **keys), "--resume_from_checkpoint", "last"])
    assert losses(parts) == losses(tmp_path / "whole")
    for name, tensor in final_weights(parts).items():
        assert_close(tensor, final_weights(tmp_path / "whole")[name], rtol=0, atol=0)


def test_every_mistake_ends_in_a_sentence(recipe, tmp_path):
    with pytest.raises(SystemExit, match=r"key 'max_token' that nothing reads. Did you mean 'max_tokens'"):
        train_script.main(recipe(max_token=3))
    with pytest.raises(SystemExit, match=r"no run in .* to go on with"):
        train_script.main([*recipe(), "--resume_from_checkpoint", "last"])
    with pytest.raises(SystemExit, match=r"no preset 'tinny'"):
        train_script.main(recipe(preset="tinny"))
    train_script.main(recipe(max_steps=4, output_dir=str(tmp_path / "done")))
    with pytest.raises(SystemExit, match=r"already holds a run.*--resume_from_checkpoint last"):
        train_script.main(recipe(output_dir=str(tmp_path / "done")))
    with pytest.raises(SystemExit, match=r"checkpoint-4 was trained with encoder_layers=1, but this run has 2"):
        train_script.main(
            [
                *recipe(output_dir=str(tmp_path / "done"), model_config={"encoder_layers": 2}),
                "--resume_from_checkpoint",
                "last",
            ]
        )
    with pytest.raises(SystemExit, match=r"tokenizer has \d+ pieces but the model's vocab_size is 262"):
        train_script.main(recipe(model_config={"vocab_size": 262}, output_dir=str(tmp_path / "mismatch")))


def test_a_loss_that_is_not_a_number_ends_the_run_and_keeps_the_last_good_checkpoint(recipe, tmp_path):
    command = recipe(rate_factor=1e30, max_steps=40, save_steps=1, save_total_limit=2, eval_strategy="no")
    with pytest.raises(SystemExit, match=r"(?s)stopped being a number before step \d+.*rate_factor"):
        train_script.main(command)
    for path in (tmp_path / "run").glob("checkpoint-*"):
        state = AutoModelForSeq2SeqLM.from_pretrained(path).state_dict()
        assert all(tensor.isfinite().all() for tensor in state.values()), path


# --- the model in trainers ---


def reversal_data(number: int):
    draw = random.Random(0)
    sources = [[draw.randint(4, 11) for _ in range(draw.randint(3, 8))] for _ in range(number)]
    return [{"input_ids": [*ids, 2], "labels": [*reversed(ids), 2]} for ids in sources]


def test_reversal_is_learned_to_the_last_token(tmp_path):
    from datasets import Dataset

    torch.manual_seed(1)
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=260, d_model=64, encoder_layers=2, decoder_layers=2, dropout=0.0, label_smoothing=0.0
    )
    model = VanillaTransformerForConditionalGeneration(config)
    args = TranslationTrainingArguments(
        output_dir=str(tmp_path), max_steps=1400, warmup_steps=300, learning_rate=3e-3, max_tokens=512,
        lr_scheduler_type="linear", save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none", seed=1,
    )  # fmt: skip
    trainer = TranslationTrainer(
        model, args, tokenizer=tokenizer, train_dataset=Dataset.from_list(reversal_data(4000))
    )
    trainer.train()
    unseen = reversal_data(4200)[4000:]
    batch = tokenizer.pad({"input_ids": [pair["input_ids"] for pair in unseen]}, return_tensors="pt")
    outputs = model.eval().generate(**batch, max_new_tokens=12).tolist()
    for output, pair in zip(outputs, unseen, strict=True):
        assert output[1 : 1 + len(pair["labels"])] == pair["labels"]


def test_the_stock_trainer_trains_this_model_untouched(tmp_path):
    from datasets import Dataset

    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", vocab_size=260, encoder_layers=1, decoder_layers=1)
    )
    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), max_steps=30, per_device_train_batch_size=32, learning_rate=1e-3, use_cpu=True,
        label_smoothing_factor=0.1, predict_with_generate=True, train_sampling_strategy="group_by_length",
        gradient_accumulation_steps=2, logging_steps=5, eval_strategy="steps", eval_steps=15, report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model, args=args, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        train_dataset=Dataset.from_list(reversal_data(600)), eval_dataset=Dataset.from_list(reversal_data(20)),
    )  # fmt: skip
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[-1] < logged[0] < 8
    assert trainer.predict(Dataset.from_list(reversal_data(4))).predictions.shape[0] == 4


def test_sixty_four_pairs_are_learned_by_heart(tmp_path):
    from datasets import Dataset

    from vanilla_transformer.training.corpus import tokenize
    from vanilla_transformer.training.demo.grammar import demo_corpus

    pairs = [{"source": pair["en"], "target": pair["de"]} for pair in demo_corpus("validation", 64)]
    tokenizer = train_tokenizer(
        [text for pair in pairs for text in pair.values()], vocab_size=500, show_progress=False
    )
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset(
            "tiny",
            vocab_size=500,
            encoder_layers=2,
            decoder_layers=2,
            dropout=0.0,
            label_smoothing=0.0,
            initializer_gain=1.0,
        )
    )
    args = TranslationTrainingArguments(
        output_dir=str(tmp_path), max_steps=150, warmup_steps=50, rate_factor=0.3, max_tokens=2000,
        save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none",
    )  # fmt: skip
    dataset = tokenize(Dataset.from_list(pairs), tokenizer, keep_text=True)
    trainer = TranslationTrainer(model, args, tokenizer=tokenizer, train_dataset=dataset, eval_dataset=dataset)
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] < 0.1
    assert metrics["eval_bleu"] > 95


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


def test_one_file_needs_no_brackets(recipe, tmp_path):
    train_script.main(recipe(train_files=write_reversals(tmp_path), max_steps=2))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["pairs"]["train"] == 400


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
    assert json.loads((tmp_path / "whole" / "results.json").read_text())["validation"]["bleu"] >= 0
    train_script.main(recipe(output_dir=str(tmp_path / "parts"), **keys))
    (tmp_path / "parts" / "checkpoint-8" / "complete").unlink()
    train_script.main([*recipe(output_dir=str(tmp_path / "parts"), **keys), "--resume_from_checkpoint", "last"])
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_early_stopping_stops_and_asks_for_evaluations(recipe, tmp_path):
    with pytest.raises(SystemExit, match="early_stopping needs evaluations"):
        train_script.main(recipe(early_stopping=2, eval_strategy="no"))
    train_script.main(recipe(early_stopping=1, rate_factor=1e-9, eval_steps=2, save_steps=2, max_steps=50))
    assert len(losses(tmp_path / "run")) < 20


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


def test_a_refused_run_leaves_no_vocabulary_for_the_next(recipe, tmp_path):
    with pytest.raises(SystemExit, match="no preset 'tinny'"):
        train_script.main(recipe(preset="tinny", vocab_size=268, max_steps=2))
    train_script.main(recipe(vocab_size=264, max_steps=2))
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run" / "model")) == 264


def test_an_option_changes_one_field_of_the_recipes_model(recipe, tmp_path):
    for words in (["--model_config", '{"dropout": 0.25}'], ['--model_config={"dropout": 0.25}']):
        model, *_ = train_script.parse_recipe("", [*recipe(max_steps=2), *words])
        fields = (model.model_config[name] for name in ("dropout", "encoder_layers", "d_model"))
        assert tuple(fields) == (0.25, 1, 32)
    assert train_script.parse_recipe("", [*recipe(), "--model_config", "null"])[0].model_config is None
    for mistake in ("[1]", "3", "{"):
        with pytest.raises(SystemExit, match="model_config"):
            train_script.main([*recipe(), "--model_config", mistake])


def test_a_trained_model_keeps_its_shape(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    start = ["--model_name_or_path", str(tmp_path / "run" / "model"), "--output_dir", str(tmp_path / "tuned")]
    with pytest.raises(SystemExit, match=r"model_config sets encoder_layers=2, but the trained model .* has 1"):
        train_script.main([*recipe(), *start, "--model_config", '{"encoder_layers": 2}'])
    with pytest.raises(SystemExit, match=r"model_config sets 'banana', which the model .* has no field of"):
        train_script.main([*recipe(), *start, "--model_config", '{"banana": 2}'])
    train_script.main([*recipe(max_steps=2, eval_strategy="no"), *start, "--model_config", '{"dropout": 0.3}'])
    config = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "tuned" / "model").config
    assert (config.dropout, config.encoder_layers) == (0.3, 1)


def test_the_recipe_of_a_run_is_all_of_it_but_the_secrets(recipe, tmp_path, monkeypatch):
    keys = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-5}, "learning_rate": 1e-3}
    words = [*recipe(max_steps=2, eval_strategy="no", **keys), "--hub_token=hf_secret"]
    monkeypatch.setattr("sys.argv", ["vanilla-train", *words, "--hub-token", "hf_secret"])
    train_script.main(words)
    written = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert written["lr_scheduler_kwargs"] == {"min_lr": 1e-5}
    assert not {"hub_token", "fsdp_config", "gradient_checkpointing_kwargs"} & written.keys()
    for name in ("run.json", "recipe.yaml"):
        assert "hf_secret" not in (tmp_path / "run" / name).read_text()


def test_a_run_that_died_before_its_first_checkpoint_starts_again(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    for path in (tmp_path / "run").glob("checkpoint-*"):
        shutil.rmtree(path)
    with pytest.raises(SystemExit, match="already holds a run"):
        train_script.main(recipe(max_steps=2))
    shutil.rmtree(tmp_path / "run" / "model")
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    assert (tmp_path / "run" / "model").is_dir()


def test_going_on_from_the_middle_leaves_no_later_checkpoints_to_be_taken_for_its_own(recipe, tmp_path):
    train_script.main(recipe())
    middle = str(tmp_path / "run" / "checkpoint-4")
    with pytest.raises(SystemExit, match=r"has checkpoints after checkpoint-4, up to checkpoint-12: move them away"):
        train_script.main([*recipe(), "--resume_from_checkpoint", middle])


def test_early_stopping_counts_on_after_a_pause(recipe, tmp_path, monkeypatch):
    """An evaluation that never gets better: three of them end the run, wherever it paused."""
    monkeypatch.setattr("vanilla_transformer.training.trainer.bleu", lambda *_: (1.0, "signature"))
    keys = {"early_stopping": 3, "eval_steps": 2, "save_steps": 2, "max_steps": 40}
    train_script.main(
        recipe(**{**keys, "max_steps": 6})
    )  # the first evaluation is the best so far, two are not better
    train_script.main([*recipe(**keys), "--resume_from_checkpoint", "last"])
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 8


def test_the_finished_model_decodes_as_the_recipe_says(recipe, tmp_path, monkeypatch):
    searches = []
    real = beam_search.search

    def watched(model, input_ids, generation_config, **options):
        searches.append((generation_config.num_beams, generation_config.length_penalty))
        return real(model, input_ids, generation_config=generation_config, **options)

    monkeypatch.setattr(beam_search, "search", watched)
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
    assert results["decoding"] == {"num_beams": 3, "length_penalty": 1.2}
    settings = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "tuned" / "model").generation_config
    assert (settings.num_beams, settings.length_penalty) == (3, 1.2)


def test_a_greedy_model_is_saved_and_scored(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no", num_beams=1, length_penalty=0.6))
    settings = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "model").generation_config
    assert (settings.num_beams, settings.length_penalty) == (1, None)


def test_going_on_with_other_data_is_refused(recipe, tmp_path):
    train_script.main(recipe(max_steps=4))
    with pytest.raises(SystemExit, match=r"was started with max_tokens=128, not 64"):
        train_script.main([*recipe(max_steps=8, max_tokens=64), "--resume_from_checkpoint", "last"])


def test_the_moving_average_by_hand():
    model = torch.nn.Linear(2, 1)
    average = ExponentialMovingAverage(0.9)
    average.on_train_begin(None, None, None, model=model)
    expected = model.weight.detach().clone()
    for _ in range(5):
        torch.nn.init.normal_(model.weight)
        average.on_step_end(None, None, None, model=model)
        expected = 0.9 * expected + 0.1 * model.weight.detach()
    assert_close(average.state["weight"], expected)
    with pytest.raises(ValueError, match=r"ema_decay=1.5"):
        ExponentialMovingAverage(1.5)


def test_a_given_learning_rate_is_the_learning_rate(recipe, tmp_path):
    keys = {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "max_steps": 4, "eval_strategy": "no"}
    train_script.main(recipe(**keys))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["learning_rate"] for line in lines if "learning_rate" in line) <= 1e-3
    train_script.main([str(tmp_path / "run" / "recipe.yaml"), "--output_dir", str(tmp_path / "again")])
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_config": {"dropout": 2}}, r"dropout=2 must be at least 0 and less than 1"),
        ({"model_config": {"d_model": "big"}}, r"d_model.*expected int"),
        ({"warmup_steps": 0}, r"warmup_steps=0"),
        ({"lr_scheduler_type": "linear"}, r"linear needs a learning_rate"),
        ({"learning_rate": 1e-3, "rate_factor": 2.0}, r"both given"),
        ({"label_smoothing_factor": 0.1}, r"label_smoothing_factor is for the stock trainer"),
        ({"per_device_train_batch_size": 16}, r"per_device_train_batch_size is for the stock trainer.*max_tokens"),
        ({"eval_beams": 0}, r"eval_beams=0 must be a whole number of 1 or more"),
        ({"num_train_epochs": 2}, r"num_train_epochs=2 does nothing beside max_steps=12: set max_steps to -1"),
        ({"generation_max_length": 9}, r"generation_max_length is for the stock trainer"),
        ({"warmup_steps": None}, r"has a key 'warmup_steps' without a value"),
        ({"max_words": [3]}, r"has max_words=\[3\], but max_words takes one value"),
        ({"vocab_size": 300.5}, r"vocab_size.*invalid int value: '300.5'"),
        ({"num_beams": True}, r"num_beams.*invalid int value: 'True'"),
        ({"num_beams": 0}, r"num_beams=0 must be a whole number of 1 \(greedy\) or more"),
        ({"num_beams": "five"}, r"num_beams.*invalid int value: 'five' \(see --help\)"),
        ({"length_penalty": 11}, r"length_penalty=11.0 must lie between -10 and 10"),
        ({"average_checkpoints": -1}, r"average_checkpoints=-1"),
        ({"vocabulary_pairs": 0}, r"vocabulary_pairs=0 must be at least 1"),
        ({"source_lang": False}, r"source_lang=False is not text.*quotes"),
        ({"model_config": {"banana": 1}}, r"'banana' is not a field"),
    ],
)
def test_a_bad_value_ends_in_a_sentence(recipe, keys, message, capsys):
    with pytest.raises(SystemExit, match=message):
        train_script.main(recipe(**keys))
    assert "usage" not in capsys.readouterr().err


def test_a_mistyped_option_ends_in_a_sentence(recipe):
    with pytest.raises(SystemExit, match=r"'--max-stepz' is none of the options\. Did you mean 'max_steps'\?"):
        train_script.main([*recipe(), "--max-stepz", "3"])
