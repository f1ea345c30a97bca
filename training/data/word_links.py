"""Links between the tokens of training pairs, from the statistical aligner eflomal (Östling and Tiedemann 2016,
"Efficient Word Alignment with Markov Chain Monte Carlo").

Each target token has the source token that it is most probably the translation of, or none; the ends of both sentences
belong together. eflomal draws random numbers without a seed. So the links of a run are computed once and kept in its
folder, in Pharaoh's format: `0-0 1-2` links source token 1 with target token 2.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from datasets import Dataset, Features, IterableDataset, List, Value, concatenate_datasets

from vanilla_transformer.safe_files.atomic_writes import write_lines


LINKS = "links"  # the column: source and target token of the first link, then of the second, ...


def with_links(dataset: Dataset | IterableDataset, folder: Path, *, compute: bool = True) -> Dataset:
    """Adds a column with the links of each pair, and computes them if the folder does not have them.

    Args:
        dataset: Tokenised pairs.
        folder: The folder of the run.
        compute: Whether they may be computed. A run that is resumed needs those that it began with.
    """
    if isinstance(dataset, IterableDataset):
        raise ValueError("guided_alignment needs the corpus on disk, to be aligned: set streaming to false.")
    path = folder / f"links.{_digest(dataset)}.txt"
    if not path.is_file():
        if not compute:
            raise ValueError(f"{path} is missing: restore it, or train again in a new output_dir.")
        write_lines(path, align(dataset["input_ids"], dataset["labels"]))
    column = Dataset.from_generator(
        _rows_of,
        gen_kwargs={"path": path, "changed": path.stat().st_mtime_ns},
        features=Features({LINKS: List(Value("int32"))}),
    )
    return concatenate_datasets([dataset, column], axis=1)


def _digest(dataset: Dataset) -> str:
    """Returns a digest of the tokens of both sides."""
    digest = hashlib.sha256()
    for table in dataset.with_format("arrow").iter(batch_size=10_000):
        for name in ("input_ids", "labels"):
            column = table[name].combine_chunks()
            for numbers in (column.value_lengths(), column.flatten()):
                digest.update(numbers.to_numpy().tobytes())
    return digest.hexdigest()[:16]


def _rows_of(path: Path, changed: int) -> Iterator[dict[str, list[int]]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield {LINKS: [int(index) for index in line.replace("-", " ").split()]}


def align(sources: Iterable[Sequence[int]], targets: Iterable[Sequence[int]]) -> Iterator[str]:
    """Yields the links of each pair of token ids, which both end with the end of sentence, in Pharaoh's format."""
    try:
        from eflomal import Aligner
    except ImportError as error:
        raise ImportError(
            "guided_alignment needs the aligner eflomal: pip install 'vanilla-transformer[alignment]'"
        ) from error
    sources, targets = list(sources), list(targets)
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as links:
        lines = ([" ".join(map(str, ids[:-1])) for ids in side] for side in (sources, targets))
        Aligner().align(*lines, links_filename_fwd=links.name)
        for source, target, line in zip(sources, targets, links, strict=True):
            yield f"{line.strip()} {len(source) - 1}-{len(target) - 1}".strip()
