"""Corpora with one side written by a model: translating in parts, and writing the pairs with a report.

A part is a few thousand texts. Each is translated by itself and written to a file of its own, and its samples have a
seed of their own. So a run that is killed at any time continues with the next part, and its result has the same bytes
as that of a run that was never killed.
"""

import hashlib
import json
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer import Translator
from vanilla_transformer.atomic_writes import one_line, require_room, whole_folder, write_json, write_lines
from vanilla_transformer.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.training.arguments import LoadingArguments, key
from vanilla_transformer.training.cleaning import CleaningReport
from vanilla_transformer.training.corpus_files import lines_in_files


TRAIN, REPORT = "train", "report.json"  # train.<language> is one side of the pairs
SETTINGS = "settings.json"


@dataclass
class SynthesisArguments:
    """The model that translates, and where the pairs go."""

    model: list[str] = key([], "Folder of the model that translates, or its name on the Hub; several are an ensemble.")
    output_dir: str = key("synthetic", "Folder for the pairs and the report.")
    overwrite: bool = key(False, "Replace an older result in the output folder.")
    part_size: int = key(2048, "Texts translated at a time. A run that is killed loses at most one part.")

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("No model is given: set --model to the folder of the model that translates.")


def make_corpus(
    arguments: SynthesisArguments,
    languages: tuple[str, str],
    texts: Callable[[], Iterable[str]],
    generation: dict[str, Any],
    loading: LoadingArguments,
    write: "Callable[[Path, TranslatedParts], dict[str, Any]]",
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Translates texts in parts, and writes the output folder with its report when all parts are there.

    Args:
        arguments: The model and the folder.
        languages: The suffixes of the two files with the pairs.
        texts: Returns the texts to translate; called more than once.
        generation: Options of `Translator.translate`.
        loading: Options of `Translator.from_pretrained`.
        write: Writes the pairs into a folder, and returns what is to report about them.
        seed: Seed of samples.

    Returns:
        The content of report.json.
    """
    files = (REPORT, *(f"{TRAIN}.{language}" for language in languages))
    require_room(arguments.output_dir, made_of=files, overwrite=arguments.overwrite)  # before hours of translation
    number, digest = number_and_digest(texts())
    settings = {
        "model": arguments.model,
        "content of the model": digest_of_models(arguments.model),
        "content of the input": digest,
        **generation,
        "seed": seed,
        **asdict(loading),
    }
    parts = TranslatedParts(f"{arguments.output_dir}.parts", settings, size=arguments.part_size)
    translator = Translator.from_pretrained(arguments.model, window=arguments.part_size, **vars(loading))
    parts.translate(translator, texts(), seed=seed, total=number, progress=sys.stderr.isatty(), **generation)
    with whole_folder(arguments.output_dir, made_of=files, overwrite=arguments.overwrite) as folder:
        report = {"texts": number, **write(folder, parts), "settings": settings}
        cleaning = CleaningReport.from_dict(report["cleaning"])
        if not cleaning.kept:
            raise ValueError(
                f"Cleaning left no pair: relax the steps below and start again. {parts.folder} keeps the translations."
                f"\n{cleaning}"
            )
        write_json(folder / REPORT, report)
    parts.remove()
    return report


class TranslatedParts:
    """The translations of many texts, in files of a folder until the work is done.

    Args:
        folder: The folder. It is created, or continued if it was begun with the same settings.
        settings: Everything that the translations depend on.
        size: Number of texts in a part.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any], *, size: int):
        if size < 1:
            raise ValueError(f"part_size={size} must be at least 1.")
        self.folder, self.size, self.number = Path(folder), size, 0
        settings = json.loads(json.dumps({**settings, "part_size": size}))
        if (self.folder / SETTINGS).is_file():
            self._require_same(settings)
        else:
            write_json(self.folder / SETTINGS, settings)

    def translate(
        self, translator: Translator, texts: Iterable[str], *, seed: int, total: int, progress: bool, **options: Any
    ) -> None:
        """Translates the parts that are not there yet.

        Args:
            translator: The translator.
            texts: All texts, one line each.
            seed: Seed of samples; each part has its own seed, made of this one and its number.
            total: Number of texts, for the progress bar.
            progress: Whether to show the progress bar.
            options: Those of `Translator.translate`.
        """
        texts = iter(texts)
        with logging.tqdm(total=total, desc="translating", unit=" texts", disable=not progress) as bar:
            while part := list(islice(texts, self.size)):
                path = self._path(self.number)
                if not path.is_file():
                    translator.backend.set_seed(zlib.crc32(f"{seed} {self.number}".encode()) % 2**31)
                    hypotheses = translator.translate(part, **options)
                    write_lines(path, [one_line(best.text) for n_best in hypotheses for best in n_best])
                self.number += 1
                bar.update(len(part))

    def lines(self) -> Iterator[str]:
        """Yields all translations, those of the first text first."""
        return lines_in_files([str(self._path(number)) for number in range(self.number)])

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.txt"

    def _require_same(self, settings: dict[str, Any]) -> None:
        before = json.loads((self.folder / SETTINGS).read_text(encoding="utf-8"))
        for name in sorted(before.keys() | settings.keys()):
            if before.get(name) != settings.get(name):
                raise ValueError(
                    f"{self.folder} was begun with {name}={before.get(name)!r}, not {settings.get(name)!r}: continue "
                    "it with the same options, or delete that folder to start again."
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


# --- what translations depend on ---


def number_and_digest(texts: Iterable[str]) -> tuple[int, str]:
    """Returns the number of texts and a digest of them all."""
    digest, number = hashlib.sha256(), 0
    for text in texts:
        digest.update(f"{text}\n".encode("utf-8", "surrogatepass"))
        number += 1
    return number, digest.hexdigest()[:16]


def digest_of_models(names: Iterable[str]) -> list[str | None]:
    """Returns a digest of the files of each model in a folder; `None` for a name on the Hub."""
    return [_digest_of_model(Path(name)) if Path(name).is_dir() else None for name in names]


def _digest_of_model(folder: Path) -> str:
    digest = hashlib.sha256()
    patterns = ("*.json", "*.safetensors", f"{TARGET}/*.json")
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
