"""The name of the running command, as its usage and its errors show it."""

import sys
from pathlib import Path


NAME: str | None = None  # `vanilla train`; `None` for a script that runs by itself


def program_name() -> str:
    """Returns `vanilla train` or, for `python training/train.py`, the name of the file."""
    return NAME or Path(sys.argv[0]).name
