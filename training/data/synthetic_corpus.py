"""Corpora with one side written by a model: translating in shards, and writing the pairs with a report."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.bulk_translation.corpus_translation import CorpusTranslation, Reranking
from vanilla_transformer.bulk_translation.shard_formats import Lines
from vanilla_transformer.bulk_translation.shards import ranges_of_size
from vanilla_transformer.bulk_translation.workers import WorkerArguments, launched, translate_shards
from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.safe_files.atomic_writes import one_line, require_room, whole_folder, write_json
from vanilla_transformer.training.data.cleaning import CleaningReport


if TYPE_CHECKING:
    from vanilla_transformer.command_line.inference_arguments import LoadingArguments


TRAIN, REPORT = "train", "report.json"  # train.<language> is one side of the pairs


@dataclass
class SynthesisArguments:
    """The model that translates, and where the pairs go."""

    model: list[str] = key([], "Folder of the model that translates, or its name on the Hub; several are an ensemble.")
    output_dir: str = key("synthetic", "Folder for the pairs and the report.")
    overwrite: bool = key(False, "Replace an older result in the output folder.")
    shard_size: int = key(2048, "Texts translated at a time. A process that is killed loses at most one shard.")
    reverse_model: str | None = key(
        None, "Folder or name of a model of the reverse direction, which chooses among the candidates."
    )
    reverse_weight: float = key(
        1.0, "How much the reverse model counts against the model that translates. Only with --reverse_model."
    )
    candidates: int = key(
        5, "Translations of a text that the reverse model chooses among; at most num_beams. Only with --reverse_model."
    )

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("No model is given: set --model to the folder of the model that translates.")
        if self.shard_size < 1:
            raise ValueError(f"shard_size={self.shard_size} must be at least 1.")
        if self.overwrite and launched():
            raise ValueError("Several processes can't agree to --overwrite: delete the older result before the start.")
        if not self.reverse_model and (self.reverse_weight, self.candidates) != (1.0, 5):
            raise ValueError("--reverse_weight and --candidates need --reverse_model: add it, or leave them out.")

    @property
    def reranking(self) -> Reranking | None:
        """The choice among candidates, if there is one."""
        return Reranking(self.reverse_model, self.reverse_weight, self.candidates) if self.reverse_model else None


def make_corpus(
    arguments: SynthesisArguments,
    languages: tuple[str, str],
    texts: Callable[[], Iterator[str]],
    generation: dict[str, Any],
    loading: "LoadingArguments",
    workers: WorkerArguments,
    write: Callable[[Path, CorpusTranslation], dict[str, Any]],
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Translates texts in shards, and writes the output folder with its report when all shards are there.

    Args:
        arguments: The model and the folder.
        languages: The suffixes of the two files with the pairs.
        texts: Returns the texts to translate, one line each; called more than once, and pickled.
        generation: Options of `Translator.translate`.
        loading: Options of `Translator.from_pretrained`.
        workers: Who translates.
        write: Writes the pairs into a folder, and returns what is to report about them.
        seed: Seed of samples.

    Returns:
        The content of report.json.
    """
    files = (REPORT, *(f"{TRAIN}.{language}" for language in languages))
    report_path = Path(arguments.output_dir) / REPORT
    translation = CorpusTranslation(
        f"{arguments.output_dir}.shards",
        Lines(texts),
        arguments.model,
        loading,
        generation,
        partial(ranges_of_size, size=arguments.shard_size),
        window=arguments.shard_size,
        seed=seed,
        reranking=arguments.reranking,
    )

    def others_did_it() -> bool:
        """Whether other processes of a launcher have done it all, before this one had started or loaded its model."""
        return (
            launched() and report_path.is_file() and read_object(report_path).get("settings") == translation.settings
        )

    if others_did_it():
        return read_object(report_path)
    require_room(arguments.output_dir, made_of=files, overwrite=arguments.overwrite)  # before hours of translation
    translate_shards(translation, workers)

    def write_folder() -> None:
        if others_did_it():
            translation.shards.remove()
            return
        with whole_folder(arguments.output_dir, made_of=files, overwrite=arguments.overwrite) as folder:
            report = {"texts": translation.rows, **write(folder, translation), "settings": translation.settings}
            _require_pairs(report, translation.folder)
            write_json(folder / REPORT, report)
        translation.shards.remove()

    translation.shards.finish(write_folder)
    return read_object(report_path)


def _require_pairs(report: dict[str, Any], folder: str) -> None:
    cleaning = CleaningReport.from_dict(report["cleaning"])
    if not cleaning.kept:
        raise ValueError(
            f"Cleaning left no pair: relax the steps below and start again. {folder} keeps the translations."
            f"\n{cleaning}"
        )


@dataclass
class PairCounts:
    """Counts pairs and their words while they pass."""

    pairs: int = 0
    words: dict[str, int] = field(default_factory=lambda: {"source": 0, "target": 0})

    def count(self, pairs: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
        """Yields the same pairs."""
        for pair in pairs:
            self.pairs += 1
            for side in self.words:
                self.words[side] += len(pair[side].split())
            yield pair

    def mean_words(self) -> dict[str, float]:
        """Returns the mean number of words of each side."""
        return {side: round(number / max(self.pairs, 1), 3) for side, number in self.words.items()}


def write_pairs(folder: Path, languages: tuple[str, str], pairs: Iterable[dict[str, str]]) -> None:
    """Writes pairs as two files with one line for each pair."""
    paths = [folder / f"{TRAIN}.{language}" for language in languages]
    with (
        paths[0].open("w", encoding="utf-8", newline="\n") as sources,
        paths[1].open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for pair in pairs:
            sources.write(f"{one_line(pair['source'])}\n")
            targets.write(f"{one_line(pair['target'])}\n")


def tagged(pairs: Iterable[dict[str, str]], tag: str | None) -> Iterator[dict[str, str]]:
    """Puts a tag before each source, as plain text (Caswell et al. 2019, "Tagged Back-Translation")."""
    for pair in pairs:
        yield {**pair, "source": f"{tag} {pair['source']}"} if tag else pair


def readable_report(report: dict[str, Any], output_dir: str) -> str:
    """Returns the main numbers as text.

    Args:
        report: The content of report.json.
        output_dir: The folder it is in.
    """
    lines = [str(CleaningReport.from_dict(report["cleaning"]))]
    if "bleu_with_originals" in report:
        figure = report["bleu_with_originals"]
        lines.append(f"BLEU against the original targets: {figure['score']:.2f} ({figure['signature']})")
    if "real_pairs_written" in report:
        lines.append(f"real pairs before them: {report['real_pairs_written']:,}")
    words = report["mean_words"]
    lines.append(f"mean words: source {words['source']:.1f}, target {words['target']:.1f}")
    return "\n".join([*lines, f"pairs in {Path(output_dir) / TRAIN}.*, report in {Path(output_dir) / REPORT}"])
