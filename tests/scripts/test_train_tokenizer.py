import json

import pytest
from transformers import AutoTokenizer

from vanilla_transformer.scripts import train_tokenizer


LANGUAGES = ("--source_lang", "en", "--target_lang", "de")


@pytest.fixture
def files(tmp_path):
    for language, word in [("en", "sentence"), ("de", "Satz")]:
        lines = "".join(f"{word} {n} {'ab' * (n % 7)}\n" for n in range(300))
        (tmp_path / f"train.{language}").write_text(lines)
    return str(tmp_path / "train")


def test_a_joint_vocabulary_from_files(files, tmp_path, capsys):
    output = tmp_path / "out" / "tokenizer"
    train_tokenizer.main(["--train_files", files, *LANGUAGES, "--vocab_size", "300", "--output_dir", str(output)])
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert len(tokenizer) == 300
    assert tokenizer.decode(tokenizer("Satz sentence")["input_ids"], skip_special_tokens=True) == "Satz sentence"
    printed = capsys.readouterr().out
    assert "pairs loaded" in printed
    assert f"written to {output}" in printed


def test_separate_vocabularies(files, tmp_path):
    output = tmp_path / "tokenizer"
    options = ["--separate", "--vocab_size", "300"]
    train_tokenizer.main(["--train_files", files, *LANGUAGES, *options, "--output_dir", str(output)])
    source, target = AutoTokenizer.from_pretrained(output), AutoTokenizer.from_pretrained(output, subfolder="target")
    assert len(source.tokenize("sentence")) < len(source.tokenize("Satz"))
    assert len(target.tokenize("Satz")) < len(target.tokenize("sentence"))


def test_a_recipe_with_options_on_top(files, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    languages = "source_lang: en\ntarget_lang: de\n"
    keys = f"train_files: [{files}]\nvocab_size: 280\noutput_dir: {tmp_path / 'a'}\nlowercase: true\n"
    recipe.write_text(languages + keys)
    train_tokenizer.main([str(recipe), "--vocab_size", "290"])
    assert len(AutoTokenizer.from_pretrained(tmp_path / "a")) == 290
    saved = json.loads((tmp_path / "a" / "tokenizer.json").read_text())
    assert "Lowercase" in json.dumps(saved["normalizer"])


def test_nothing_is_overwritten_unasked_or_left_half_done(files, tmp_path):
    output = tmp_path / "tokenizer"
    command = ["--train_files", files, *LANGUAGES, "--vocab_size", "300", "--output_dir", str(output)]
    train_tokenizer.main(command)
    before = (output / "tokenizer.json").read_bytes()
    with pytest.raises(SystemExit, match=r"already there.*--overwrite"):
        train_tokenizer.main([*command, "--lowercase"])
    assert (output / "tokenizer.json").read_bytes() == before
    train_tokenizer.main([*command, "--lowercase", "--overwrite"])
    assert (output / "tokenizer.json").read_bytes() != before
    (output / "mine.txt").touch()
    with pytest.raises(SystemExit, match=r"tokenizer holds mine.txt, no part of an older result"):
        train_tokenizer.main([*command, "--overwrite"])
    with pytest.raises(SystemExit, match="vocab_size=20 can't hold"):
        train_tokenizer.main(
            ["--train_files", files, *LANGUAGES, "--vocab_size", "20", "--output_dir", str(tmp_path / "new")]
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer", "train.de", "train.en"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.yaml"], "There is no recipe 'nothing.yaml'"),
        ([], "No corpus is given"),
        (["--train_files", "/nowhere/train", *LANGUAGES], "no file '/nowhere/train'"),
    ],
)
def test_a_mistake_ends_in_one_sentence(arguments, message):
    with pytest.raises(SystemExit, match=message):
        train_tokenizer.main(arguments)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("vocab_sice: 3\n", "has an unknown key 'vocab_sice' (did you mean 'vocab_size'?)"),
        ("- a\n- b\n", "holds a list: it must be lines of the form"),
        ("a: [1\n", "is not valid YAML"),
    ],
)
def test_a_recipe_with_a_mistake(tmp_path, recipe, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe)
    with pytest.raises(SystemExit) as error:
        train_tokenizer.main([str(path)])
    assert message in str(error.value)
