"""The recipes that come with the package: found by name, listed, and copied.

vanilla train demo                           # the same as vanilla train training/recipes/demo.yaml
vanilla train --list_recipes
vanilla train demo --save_recipe mine.yaml   # a copy to change
vanilla train demo --max_steps 500 --save_recipe mine.yaml
"""

import json
import re
from collections.abc import Collection
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from textwrap import fill
from typing import Any

import yaml

from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.safe_files.atomic_writes import write_text


FOLDER = Path(str(files("vanilla_transformer.training"))) / "recipes"


def recipe_names() -> list[str]:
    """Returns the names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_recipe(name_or_path: str) -> Path:
    """Returns the file of a recipe. A file of that name is preferred to the recipe that comes with the package."""
    if Path(name_or_path).is_file():
        return Path(name_or_path)
    names = recipe_names()
    if name_or_path in names:
        return FOLDER / f"{name_or_path}.yaml"
    hint = suggestion(Path(name_or_path).stem, names)
    raise ValueError(
        f"There is no recipe {name_or_path!r}{hint}: give a name ({', '.join(names)}), the path of a YAML file, or "
        "only options (see --help)."
    )


def describe_recipes() -> str:
    """Returns each recipe's name and the beginning of its comment: the sentences that begin in its first line."""
    names = recipe_names()
    width = max(map(len, names))
    return "\n".join(
        fill(f"{name:<{width}}  {_beginning(name)}", 119, subsequent_indent=" " * (width + 2), break_on_hyphens=False)
        for name in names
    )


def _beginning(name: str) -> str:
    lines = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    text = " ".join(comment)
    end = re.compile(r"(?<!al)\.(?= |$)").search(text, len(comment[0]) - 1)  # "et al." ends no sentence
    return text[: end.end()] if end else text


def save_recipe(name_or_path: str, copy: str, content: dict[str, Any]) -> None:
    """Copies a recipe to a new file, with its comments and with other values.

    Args:
        name_or_path: The recipe.
        copy: The new file.
        content: The values of all keys. Keys of the recipe that it lacks are dropped.
    """
    if Path(copy).exists():
        raise ValueError(f"{copy} exists: choose another name, or delete it.")
    path = find_recipe(name_or_path)
    text, before = path.read_text(encoding="utf-8"), _read(path)
    for name in before | content:
        if name in before and before[name] == content.get(name, before):
            continue
        line = f"{name}: {json.dumps(content[name], ensure_ascii=False)}" if name in content else ""
        old = re.compile(rf"^{name}:[^#\n]*(#.*)?\n(?:[ \t]+.*\n)*", re.MULTILINE)
        comment = match[1] if (match := old.search(text)) else None
        new = f"{line}  {comment}".rstrip() + "\n" if line and comment else f"{line}\n" * bool(line)
        text = text[: match.start()] + new + text[match.end() :] if match else text + new
    write_text(Path(copy), text)


class _Loader(yaml.SafeLoader):
    """Reads 1e-5 as a number. YAML 1.1 requires a point in it and else reads text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_recipe(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Reads a recipe, and refuses keys that no option has."""
    recipe = _read(path)
    for name in recipe:
        if name not in known:
            hint = suggestion(str(name), known)
            raise ValueError(f"The recipe {path} has an unknown key {name!r}{hint}: see --help for all keys.")
    return recipe


def _read(path: Path) -> dict[str, Any]:
    try:
        recipe = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"The recipe {path} is not valid YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(
            f"The recipe {path} holds a {type(recipe).__name__}: it must be lines of the form `key: value`."
        )
    return recipe
