"""What the library raises where a model's files can't be loaded, and why that is in a few words."""

from pickle import UnpicklingError

from safetensors import SafetensorError


LOADING_ERRORS = (OSError, ValueError, RuntimeError, EOFError, UnpicklingError, SafetensorError)


def reason_of(error: Exception) -> str:
    """The first line of what the library says, without its end."""
    if isinstance(error, UnpicklingError):
        return "they hold more than tensors, and nothing else is unpickled: ask for them in safetensors"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .:") if lines else "a file is empty or cut short"
