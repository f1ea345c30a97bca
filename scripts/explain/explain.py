"""Answer why the Transformer is built as it is: measure it, print a table and draw a picture.

    vanilla explain scaling
    vanilla explain heads --updates 400 --output_dir runs/explain
    vanilla explain positions --quick
    vanilla explain all --output_dir docs/pictures --overwrite

{topics}

OUTPUT_DIR/TOPIC.png is the picture, OUTPUT_DIR/TOPIC.json the figures that it shows. Topics with a * train small
models on the demo corpus, about a minute each on one CPU core. The trained models are kept in RUNS_DIR and
used again. docs/questions.md has the questions, the answers and these pictures.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from vanilla_transformer.command_line.parsing import parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.safe_files.atomic_writes import write_json
from vanilla_transformer.scripts.explain import (
    convolution,
    costs,
    dropout,
    heads,
    masked_tokens,
    masking,
    noise,
    norms,
    parallel,
    pooling,
    position_encodings,
    scaling,
    scores,
    subwords,
    warmup,
)
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.training.reports.plots import require_matplotlib
from vanilla_transformer.training.reports.tables import aligned
from vanilla_transformer.training.run_folder.run_directory import versions


# From the pooling of values to the whole model, in the order of the tour.
TOPICS: dict[str, Callable[[ExplainArguments], Explanation]] = {
    "pooling": pooling.explain,
    "scaling": scaling.explain,
    "scores": scores.explain,
    "heads": heads.explain,
    "masking": masking.explain,
    "masked_tokens": masked_tokens.explain,
    "positions": position_encodings.explain,
    "norms": norms.explain,
    "costs": costs.explain,
    "convolution": convolution.explain,
    "parallel": parallel.explain,
    "warmup": warmup.explain,
    "dropout": dropout.explain,
    "noise": noise.explain,
    "subwords": subwords.explain,
}
ALL = "all"


def main(argv: list[str] | None = None) -> None:
    topic, *words = (sys.argv[1:] if argv is None else argv) or ["--help"]
    with errors_as_sentences():
        description = (__doc__ or "").format(topics=describe_topics())
        if topic in ("-h", "--help", "--list"):
            print(f"usage: vanilla explain {{{','.join(TOPICS)},{ALL}}} [options]\n\n{description}")
            print("vanilla explain TOPIC --help lists the options.")
            return
        if topic != ALL and topic not in TOPICS:
            hint = suggestion(topic, TOPICS)
            raise ValueError(f"There is no topic {topic!r}{hint}: choose one of {', '.join(TOPICS)} or {ALL}.")
        (options,) = parse_arguments([ExplainArguments], description, words)
        explain(list(TOPICS) if topic == ALL else [topic], options)


def describe_topics() -> str:
    """One line for each topic: the first line of its docstring."""
    rows = [[f"    {name}", (topic.__doc__ or "").splitlines()[0]] for name, topic in TOPICS.items()]
    return aligned(rows)


def explain(topics: Sequence[str], options: ExplainArguments) -> None:
    """Runs topics one after the other; each prints its tables and writes its files."""
    require_matplotlib()
    folder = Path(options.output_dir)
    files = [folder / f"{topic}.{ending}" for topic in topics for ending in ("png", "json")]
    if not options.overwrite and (existing := [str(path) for path in files if path.exists()]):
        raise ValueError(f"{', '.join(existing[:2])} exists: add --overwrite, or choose another --output_dir.")
    torch.set_num_threads(options.threads)
    for topic in topics:
        torch.manual_seed(0)
        found = TOPICS[topic](options)
        for table in found.tables:
            print(f"\n{table}", flush=True)
        keep(topic, found, folder)
        print(f"\n{folder / topic}.png shows it.", flush=True)


def keep(topic: str, found: Explanation, folder: Path) -> None:
    """Writes the pictures of a topic, and its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in found.pictures:
        picture.save(folder / f"{topic}{picture.suffix}.png")
    tables = [{name: value for name, value in asdict(table).items() if value} for table in found.tables]
    write_json(folder / f"{topic}.json", {"topic": topic, "versions": versions(), "tables": tables})


if __name__ == "__main__":
    main()
