"""Tables of text for the terminal."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, numbers_right: bool = False) -> str:
    """Lines with aligned columns.

    Args:
        rows: The cells; all rows have the same number of columns.
        numbers_right: Whether to align every column but the first to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = str.rjust if numbers_right else str.ljust
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(pad, row[1:], widths[1:])]).rstrip() for row in rows)
