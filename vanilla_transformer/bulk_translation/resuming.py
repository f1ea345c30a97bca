"""Resuming a translation that writes one file: the lines that it has are skipped."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import TextIO


CHECKED_LINES = 4  # translated again before a run is resumed


def skip_finished_lines(
    lines: Iterator[str],
    file: TextIO,
    for_each: int,
    translate: Callable[[list[str]], list[str]],
    *,
    details: int = 0,
) -> int:
    """Skips the input lines whose translations a file already has, and cuts off an unfinished end of the file.

    The last few of those lines are translated again. If the results differ from what the file has, it was made of
    another input, with another model or with other options, and the run is refused.

    Args:
        lines: The input.
        file: The partial output, at its beginning.
        for_each: Number of output lines for each input line.
        translate: Returns the output for each of some input lines, without scores.
        details: How many details, such as the score, the lines of the file begin with. They are not compared: their
            last digits depend on the batch.

    Returns:
        The number of lines that are skipped.
    """
    number, end, finished = 0, 0, deque[bytes](maxlen=CHECKED_LINES)
    whole_lines = takewhile(lambda line: line.endswith(b"\n"), file.buffer)
    for group in zip(*[whole_lines] * for_each, strict=False):
        finished.append(b"".join(line.split(b"\t", details)[-1] for line in group))
        number, end = number + 1, end + sum(map(len, group))
    sources = deque(islice(lines, number), maxlen=CHECKED_LINES)
    if len(sources) < len(finished) or translate(list(sources)) != [output.decode() for output in finished]:
        raise ValueError(
            f"The .partial file was not made by this command: its last lines are not the translations of the lines up "
            f"to {number:,} of this input. Resume with the same model, input and options, or leave out --resume."
        )
    file.buffer.seek(end)
    file.buffer.truncate()
    print(f"resumed after line {number:,}; line numbers in warnings count from there", file=sys.stderr)
    return number
