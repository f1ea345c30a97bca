"""The recipes that come with the package: found by name, listed, and copied.

vanilla train demo                           # the same as vanilla train training/recipes/demo.yaml
vanilla train --list_recipes
vanilla train demo --save_recipe mine.yaml   # a copy to change
"""

from importlib.resources import files
from pathlib import Path

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
    """Returns a line for each recipe: its name, and the first line of its comment."""
    lines = [(name, (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]) for name in recipe_names()]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {comment.removeprefix('#').strip()}" for name, comment in lines)


def save_recipe(name_or_path: str, copy: str) -> None:
    """Copies a recipe, with its comments, to a new file."""
    if Path(copy).exists():
        raise ValueError(f"{copy} exists: choose another name, or delete it.")
    write_text(Path(copy), find_recipe(name_or_path).read_text(encoding="utf-8"))
