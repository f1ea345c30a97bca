"""results.json, as a run and `vanilla evaluate` write it.

An evaluation has the result of one test set. A run has a result for each of its sets under the name of the set, and
beside them how the model was made (`averaged`, `ema_decay`, `precision`, `decoding`, `decoded_by`). `decoded_by` is
"generate" if `generate` of the saved model gives the scored translations, and "Translator" for other models of
transformers, whose `generate` is another search. A result has

    sacrebleu, chrf ...    {"score": 34.1, "signature": "nrefs:1|case:mixed|..."} for each measure of metrics.py
    loss, perplexity       in a run only
    sentences, corpus, decoding, loading, lengths, by_source_length, against_baseline ...    in an evaluation only
"""

from pathlib import Path
from typing import Any

from vanilla_transformer.hub.loading import read_object


RESULTS = "results.json"


def read_results(folder: str | Path) -> dict[str, Any]:
    """Returns the content of results.json in a folder, or of a file with another name; nothing if there is none."""
    path = Path(folder) / RESULTS if Path(folder).is_dir() else Path(folder)
    results = read_object(path) if path.is_file() else {}
    if any(isinstance(result, dict) and "bleu" in result for result in results.values()):
        raise ValueError(
            f"{path} was written by an earlier version: repeat the command that trained the model with "
            "--resume_from_checkpoint last to write it again."
        )
    return results


def figures_of(result: Any) -> dict[str, dict[str, Any]]:
    """Returns score and signature of each measure in a result; nothing for another entry of a run's results."""
    entries = result.items() if isinstance(result, dict) else ()
    return {name: figure for name, figure in entries if isinstance(figure, dict) and "signature" in figure}
