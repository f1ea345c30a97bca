"""`--help`: this package's options first and in groups, the library's with `--help_all`, and nothing that misleads."""

import pytest

from vanilla_transformer.command_line.help_text import LIBRARY_GROUP, OFTEN_NEEDED
from vanilla_transformer.training import train


def help_of(capsys, option: str) -> str:
    with pytest.raises(SystemExit):
        train.main([option])
    return capsys.readouterr().out


def options_in(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if line.startswith("  --")}


def test_own_options_come_first_and_in_groups(capsys):
    short, whole = help_of(capsys, "--help"), help_of(capsys, "--help_all")
    groups = [line.rstrip(":") for line in short.splitlines() if line and line[0] != " " and line.endswith(":")]
    assert groups[-5:] == ["text", "vocabulary", "model", "training", "decoding"]
    assert {"--train_files", "--vocab_size", "--preset", "--max_tokens", "--num_beams"} <= options_in(short)
    assert {f"--{name}" for name in OFTEN_NEEDED} <= options_in(short)
    assert "--fsdp_config" not in short
    assert "--adam_beta1" not in options_in(short)
    assert options_in(short) | {"--adam_beta1", "--fsdp_config", "--hub_model_id"} <= options_in(whole)
    assert LIBRARY_GROUP in whole
    assert len(short.splitlines()) < 300


def test_help_says_what_an_option_does(capsys):
    text = help_of(capsys, "--help")
    assert "Turn off --drop_empty." in text
    assert "per_device_train_batch_size" not in text
    assert "--max-tokens" not in text  # one spelling is enough


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "--batch_size", "32"], "'--batch_size' is not an option: batch size is set in tokens: --max_tokens"),
        (["demo", "--lr=0.1"], "the learning rate is --learning_rate"),
        (["demo", "--max_token", "3", "--report_to", "wandb"], r"report_to='wandb' needs .*pip install wandb"),
        (["demo", "--report_to", "wandbb"], r"report_to='wandbb' is no logger .*did you mean 'wandb'"),
        (["finetune", "--train_files", "x"], "languages of the corpus are not known"),
        (
            ["multi30k_en_de", "--train_files", "x"],
            "eval_strategy is 'steps', but there is no text to evaluate on: give --validation_files",
        ),
    ],
)
def test_common_mistakes_end_in_one_sentence_before_any_work(words, message, tmp_path, monkeypatch):
    found = "vanilla_transformer.training.arguments.training_arguments.find_spec"
    monkeypatch.setattr(found, lambda name: None if name == "wandb" else name)
    with pytest.raises(SystemExit, match=message):
        train.main([*words, "--output_dir", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
