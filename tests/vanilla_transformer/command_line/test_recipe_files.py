"""Recipes are found by name, listed, and copied with their comments."""

import re

import pytest
import yaml

from vanilla_transformer.command_line.recipe_files import (
    FOLDER,
    describe_recipes,
    find_recipe,
    recipe_names,
    save_recipe,
)
from vanilla_transformer.training import train


def test_a_recipe_is_found_by_name_and_a_file_of_that_name_first(tmp_path, monkeypatch):
    assert find_recipe("demo") == FOLDER / "demo.yaml"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("dataset: demo\n")
    assert find_recipe("demo").read_text() == "dataset: demo\n"
    message = r"There is no recipe 'dmo' \(did you mean 'demo'\?\): give a name \(course, demo, "
    with pytest.raises(ValueError, match=message):
        find_recipe("dmo")


def test_every_recipe_is_listed_with_what_it_is(capsys):
    train.main(["--list_recipes"])
    text = capsys.readouterr().out
    assert text == describe_recipes() + "\n"
    recipes = re.split(r"\n(?! )", text.rstrip())
    assert [recipe.split()[0] for recipe in recipes] == recipe_names()
    for recipe in recipes:  # whole sentences
        assert len(recipe.split()) > 5
        assert recipe.endswith(".")


def test_a_copy_of_a_recipe_has_its_comments_and_replaces_nothing(tmp_path, capsys):
    copy = tmp_path / "mine.yaml"
    train.main(["demo", "--save_recipe", str(copy)])
    assert copy.read_text(encoding="utf-8") == (FOLDER / "demo.yaml").read_text(encoding="utf-8")
    assert f"vanilla train {copy}" in capsys.readouterr().out
    assert yaml.safe_load(copy.read_text())["dataset"] == "demo"
    with pytest.raises(ValueError, match=r"mine\.yaml exists: choose another name"):
        save_recipe("demo", str(copy), {})


def test_a_copy_takes_the_options_of_the_command_line(tmp_path):
    copy = tmp_path / "mine.yaml"
    options = [
        "--max_steps",
        "9",
        "--model_config",
        '{"dropout": 0.5}',
        "--eval_beams",
        "2",
        "--save_recipe",
        str(copy),
    ]
    train.main(["multi30k_en_de", "--directions", "en-fr", "fr-en", *options, "--temperature", "3"])
    was = yaml.safe_load((FOLDER / "multi30k_en_de.yaml").read_text())
    now = yaml.safe_load(copy.read_text())
    assert now["model_config"] == {**was["model_config"], "dropout": 0.5}
    changed = {"max_steps": 9, "eval_beams": 2, "directions": ["en-fr", "fr-en"], "temperature": 3.0}
    assert {name: now[name] for name in changed} == changed
    assert not {"source_lang", "target_lang"} & now.keys()
    others = was.keys() - {*changed, "model_config", "source_lang", "target_lang"}
    assert {name: now[name] for name in others} == {name: was[name] for name in others}
    assert copy.read_text().count("#") > 15, "comments stay"
    with pytest.raises(SystemExit):
        train.main(["demo", "--max_stps", "9", "--save_recipe", str(tmp_path / "wrong.yaml")])
