"""Every recipe and every Accelerate configuration is read by the code that will read it."""

from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from transformers import AutoConfig

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.command_line.parsing import parse_arguments
from vanilla_transformer.scripts import compare_variants
from vanilla_transformer.training import train


FOLDER = Path(train.__file__).parent
RECIPES = sorted((FOLDER / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_understood_to_the_last_key(path):
    recipe = yaml.safe_load(path.read_text())
    has_text = {"dataset", "train_files"} & recipe.keys()
    files = [] if has_text else ["--train_files", "data/train"]  # finetune is for text of your own
    options = ["--use_cpu", *files]
    if "variants" in recipe:
        parts = parse_arguments(compare_variants.TYPES, "", [str(path), *options])
    else:
        parts = train.parse_recipe("", [path.stem, *options])
    model, _, vocabulary, _ = parts[-4:]
    for name, value in recipe.items():
        if name != "bf16":
            holder = next(each for each in parts if hasattr(each, name))
            found = getattr(holder, name)
            assert getattr(found, "value", found) == value, name
    fields = {"vocab_size": vocabulary.vocab_size, **(model.model_config or {})}
    if model.model_type == "vanilla_transformer":
        for variant in recipe.get("variants", {"": {}}).values():
            VanillaTransformerConfig.from_preset(model.preset, **{**fields, **variant})
    else:
        config = AutoConfig.for_model(model.model_type, **fields)
        assert fields.keys() <= config.to_dict().keys()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_tells_how_to_run_it_and_what_each_key_is_for(path):
    text = path.read_text()
    assert any(command in text for command in ("vanilla train", "vanilla variants", "train.py", "make demo"))
    keys = [
        line for line in text.splitlines() if line and not line.lstrip().startswith("#") and not line.endswith(":")
    ]
    assert not [line for line in keys if " # " not in line]


def test_the_papers_numbers_are_in_its_recipes():
    base, big = (
        yaml.safe_load((FOLDER / "recipes" / f"wmt14_en_de_{size}.yaml").read_text()) for size in ("base", "big")
    )
    assert base["tokens_per_update"] == big["tokens_per_update"] == 25_000
    assert (base["max_steps"], big["max_steps"]) == (100_000, 300_000)
    assert (base["average_checkpoints"], big["average_checkpoints"]) == (5, 20)
    assert base["save_total_limit"] > base["average_checkpoints"]
    assert base["warmup_steps"] == big["warmup_steps"] == 4000


@pytest.mark.parametrize("path", sorted((FOLDER / "accelerate_configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_accelerate_configuration_is_understood(path):
    config = load_config_from_file(str(path))
    content = yaml.safe_load(path.read_text())
    assert config.num_processes == content["num_processes"]
    assert config.distributed_type.value == content["distributed_type"]
