"""`--help` has the main options in groups, `--help all` every option, and no text misleads."""

import pytest

from vanilla_transformer.command_line.help_text import LIBRARY_GROUP, OFTEN_NEEDED
from vanilla_transformer.training import train


def help_of(capsys, *words: str) -> str:
    with pytest.raises(SystemExit):
        train.main(list(words))
    return capsys.readouterr().out


def options_in(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if line.startswith("  --")}


def test_the_main_options_fill_about_a_screen_and_all_come_in_groups(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "119")
    short, whole = help_of(capsys, "--help"), help_of(capsys, "--help", "all")
    groups = [line.rstrip(":") for line in whole.splitlines() if line and line[0] != " " and line.endswith(":")]
    assert groups[-6:] == ["text", "vocabulary", "model", "training", "decoding", LIBRARY_GROUP]
    assert {"--train_files", "--vocab_size", "--preset", "--max_tokens", "--num_beams"} <= options_in(short)
    assert {"--adam_beta1", "--fsdp_config", "--r_drop"} <= options_in(whole) - options_in(short)
    assert {f"--{name}" for name in OFTEN_NEEDED} <= options_in(whole)
    assert options_in(short) < options_in(whole)
    assert len(short.splitlines()) < 70
    assert "accelerate launch" in whole
    assert "accelerate launch" not in short  # the description ends after its first commands
    assert "more options: --help all" in short


def test_help_says_what_an_option_does(capsys):
    text = help_of(capsys, "--help", "all")
    assert "Turn off --drop_empty." in text
    assert "--max-tokens" not in text  # one spelling is enough
    assert "--overwrite " not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "--batch_size", "32"], "'--batch_size' is not an option: batch size is set in tokens: --max_tokens"),
        (["demo", "--lr=0.1"], "the learning rate is --learning_rate"),
        (["demo", "--dropout", "0.2"], r"""field of the model: --model_config '\{"dropout": 0.2\}'"""),
        (["demo", "--d-model=64"], r"""field of the model: --model_config '\{"d_model": 64\}'"""),
        (["demo", "--label_smoothing", "0"], r"""field of the model: --model_config '\{"label_smoothing": 0\}'"""),
        (["demo", "--dropuot", "0.2"], r"'--dropuot' is not an option \(did you mean 'dropout'\?\)"),
        (["demo", "--max_tokens", "3", "--report_to", "wandb"], r"report_to='wandb' needs .*pip install wandb"),
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
