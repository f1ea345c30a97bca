"""Fit how sure a model is to how often it is right, and store that with the model.

    vanilla calibrate --model runs/demo/model --files data/val    # data/val.en + data/val.de
    vanilla calibrate --model runs/demo/model --files data/val --other_text everyday.en

The model translates the sources. For words of a given probability, the share that the references have becomes their
confidence. It is written into the folder's generation_config.json, and `confidence=True` and `--confidence` use it.

The command prints the expected calibration error (ECE) before and after, each half of the pairs with a calibration
that is fitted to the other half. With --other_text it also prints how well the confidence of a sentence tells these
texts from those of --files: the area under the ROC curve (AUC), 0.5 for chance and 1 for always.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean

from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.command_line.inference_arguments import LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.hub.saved_files import GENERATION_CONFIG, RECORD, find_model, read_record, read_settings
from vanilla_transformer.safe_files.atomic_writes import write_json
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.safe_files.standard_streams import on_terminal
from vanilla_transformer.training.data.corpus_files import pairs_in_files
from vanilla_transformer.training.data.corpus_languages import languages_of_models
from vanilla_transformer.training.evaluation.calibration import (
    area_under_curve,
    calibration_error,
    fit_calibration,
    right_words,
)
from vanilla_transformer.training.reports.tables import aligned
from vanilla_transformer.translation.confidence import CALIBRATION, Calibration


@dataclass
class CalibrationArguments:
    """Which model to calibrate, and with which pairs."""

    model: str = key("runs/demo/model", "Folder of the model, whose decoding settings get the calibration.")
    files: list[str] = key(
        [], "Pairs that the model was not trained on: a prefix such as data/val, two files, or a table."
    )
    source_lang: str | None = key(None, "Suffix or column of the source side; by default the model's language.")
    target_lang: str | None = key(None, "Suffix or column of the target side; by default the model's language.")
    columns: list[str] = key([], "Names of the columns of .tsv and .csv files without a header line.")
    other_text: list[str] = key([], "Files with source text of another kind, which the confidence should tell apart.")

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("No pairs are given: set --files.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        options, loading = parse_arguments([CalibrationArguments, LoadingArguments], __doc__, argv)
        print(aligned([(name, f"{value:.4f}") for name, value in calibrate(options, loading).items()]))


def calibrate(options: CalibrationArguments, loading: LoadingArguments) -> dict[str, float]:
    """Writes the calibration; returns the errors before and after."""
    record, path = read_record(options.model), Path(find_model(options.model)) / GENERATION_CONFIG
    if not record and not path.is_file():
        raise ValueError(f"{path} does not exist: give the folder of one model that was saved on this computer.")
    given = Languages(options.source_lang, options.target_lang)
    languages = languages_of_models(given, [options.model], loading)
    if not languages:
        raise ValueError(f"{options.model} records no languages: set --source_lang and --target_lang.")
    pairs = list(pairs_in_files(options.files, str(languages.source), str(languages.target), options.columns))
    other_texts = list(lines_in_files(options.other_text))
    if options.other_text and not any(map(str.strip, other_texts)):
        raise ValueError(f"other_text {' '.join(options.other_text)} has no text to tell apart: leave it out.")
    translator = Translator.from_pretrained(options.model, **vars(loading))
    translator.calibration = Calibration()  # bare probabilities, not those of an earlier calibration
    direction = languages._asdict() if len(translator.directions) > 1 else {}

    def translate(texts: Sequence[str]) -> list[Hypothesis]:
        names = {f"{side}_lang": language for side, language in direction.items()}
        progress = on_terminal(sys.stderr)
        return [best for (best,) in translator.translate(texts, confidence=True, progress=progress, **names)]

    translations = translate([source for source, _ in pairs])
    # For each sentence the probabilities of its words, and which of them are right.
    probabilities = [[math.exp(word.log_probability) for word in each.words or ()] for each in translations]
    right = [right_words(each.words or (), target) for each, (_, target) in zip(translations, pairs, strict=True)]
    calibration = fit_calibration(list(chain(*probabilities)), list(chain(*right)))
    results = errors(probabilities, right)
    if options.other_text:
        others = translate(other_texts)
        other = [[math.exp(word.log_probability) for word in each.words or ()] for each in others]
        for name, line in (("before", Calibration()), ("after", calibration)):
            of_pairs, of_others = ([fmean(map(line, row)) for row in rows if row] for rows in (probabilities, other))
            results[f"AUC {name}"] = area_under_curve(of_pairs, of_others)
    if record:
        settings = {**record["generation_config"], CALIBRATION: asdict(calibration)}
        write_json(path.with_name(RECORD), {**record, "generation_config": settings})
    else:
        write_json(path, {**read_settings(path), CALIBRATION: asdict(calibration)})
    return results


def errors(probabilities: list[list[float]], right: list[list[bool]]) -> dict[str, float]:
    """Returns the calibration errors of words and sentences, before and after. Each half is measured with what is
    fitted to the other half."""
    halves = [slice(0, None, 2), slice(1, None, 2)]
    lines = [fit_calibration(list(chain(*probabilities[half])), list(chain(*right[half]))) for half in halves]
    results = {}
    for name, line_of in (("before", [Calibration()] * 2), ("after", lines[::-1])):
        confidences, outcomes = [], []
        for half, line in zip(halves, line_of, strict=True):
            confidences += [list(map(line, row)) for row in probabilities[half] if row]
            outcomes += [row for row in right[half] if row]
        results[f"ECE of words {name}"] = calibration_error(list(chain(*confidences)), list(chain(*outcomes)))
        results[f"ECE of sentences {name}"] = calibration_error(
            list(map(fmean, confidences)), list(map(fmean, outcomes))
        )
    return results


if __name__ == "__main__":
    main()
