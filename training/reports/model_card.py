"""The model card of a run. Every number in it is read from the files of the run and of its evaluations."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedConfig, PreTrainedModel

from vanilla_transformer.hub.check_export import SENTENCES
from vanilla_transformer.hub.languages import DIRECTIONS, Directions, Languages, directions_of
from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.models.search_options import BeamSearchOptions
from vanilla_transformer.models.searches import options_of
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET, language_tag
from vanilla_transformer.safe_files.atomic_writes import write_text
from vanilla_transformer.training.arguments.corpus_arguments import files_by_name
from vanilla_transformer.training.data.demo_corpus import SOURCE
from vanilla_transformer.training.evaluation.metrics import COMPOUND_BLEUS
from vanilla_transformer.training.evaluation.results import RESULTS, figures_of, read_results
from vanilla_transformer.training.reports.plots import read_metrics


METRICS = {
    "sacrebleu": "sacreBLEU",
    "compound_bleu": "tokenised BLEU, compounds split",
    "compound_bleu_ascii_output": "tokenised BLEU, compounds split, plain quotes in the output",
    "compound_bleu_ascii_both": "tokenised BLEU, compounds split, plain quotes on both sides",
    "tokenized_bleu": "tokenised BLEU",
    "chrf": "chrF",
    "chrf++": "chrF++",
    "ter": "TER (lower is better)",
}
# Test sets for which the paper reports BLEU with compounds split. Elsewhere nobody does, and the card leaves it out.
PAPER_TEST_SETS = ("wmt14", "newstest2013", "newstest2014")
# What the card calls a type of model, and its tags on the Hub.
TRANSFORMER = ('the Transformer of "Attention Is All You Need"', ["attention-is-all-you-need"])
TITLES = {
    "rnn_search": ("a recurrent encoder-decoder (RNNsearch, Bahdanau et al. 2015)", ["rnn_search", "gru"]),
    "mask_predict": (
        'the conditional masked language model of "Mask-Predict" (Ghazvininejad et al. 2019)',
        ["mask_predict", "non-autoregressive"],
    ),
}
EVERY = "all directions"  # in the name of a corpus with several
# Paths and settings of one machine.
NOT_IN_CARD = ("output_dir", "logging_dir", "run_name", "num_proc", "push_to_hub", "hub_model_id", "use_cpu")


@dataclass(frozen=True)
class CardOptions:
    """What the card says beyond the files of the run.

    Args:
        repo_id: The name of the model on the Hub, or its folder.
        license: The licence, as the Hub's identifier such as `"apache-2.0"`.
        license_name: The name of the licence if `license` is `"other"`.
        description: What the model is for, in a sentence. The server's page shows it.
        try_with: Texts to try the model with, on the Hub's page and the server's.
        notes: Markdown text for the limitations.
        evaluations: Folders or results.json files that `vanilla evaluate` wrote.
        example: A sentence and its translation.
        dataset: The name of the corpus on the Hub, if the run read it from files.
    """

    repo_id: str
    license: str | None = None
    license_name: str | None = None
    description: str | None = None
    try_with: Sequence[str] = ()
    notes: str | None = None
    evaluations: Sequence[str | Path] = ()
    example: tuple[str, str | None] = (SENTENCES[0], None)
    dataset: str | None = None


def require_license(name: str) -> None:
    """Refuses what can't be an identifier of a licence. The Hub checks at a push whether it knows the licence."""
    if not re.fullmatch(r"[a-z0-9.+-]+", name):
        raise ValueError(
            f"license={name!r} is no identifier of a licence on the Hub: give one such as apache-2.0 or cc-by-4.0, or "
            "other with --license_name."
        )


def model_card(run: str | Path, model: PreTrainedModel, options: CardOptions) -> str:
    """The card of a run, metadata included. What the run did not record is left out."""
    run = Path(run)
    recipe = _recipe(run)
    results = _results(run, recipe, options, asdict(options_of(model)))
    template = files("vanilla_transformer.model_cards").joinpath("template.md.jinja").read_text(encoding="utf-8")
    directions = directions_of(model.config) or (_languages(recipe),)
    variables = _variables(run, recipe, model, options, directions)
    return str(
        ModelCard.from_template(
            _metadata(recipe, results, options, directions, model.config.model_type),
            template_str=template,
            results=results,
            **variables,
        )
    )


def _metadata(
    recipe: dict[str, Any],
    results: list[dict[str, Any]],
    options: CardOptions,
    directions: Directions,
    model_type: str,
) -> ModelCardData:
    """The YAML header of the card."""
    dataset = options.dataset or recipe.get("dataset")
    return ModelCardData(
        description=options.description,
        widget=[{"text": text} for text in options.try_with] or None,
        language=list(dict.fromkeys(language for direction in directions for language in direction)),
        license=options.license,
        license_name=options.license_name,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["vanilla_transformer", *TITLES.get(model_type, TRANSFORMER)[1]],
        datasets=[dataset] if dataset and dataset != "demo" and not Path(dataset).exists() else None,
        model_name=_short_name(options.repo_id) if results else None,
        eval_results=[_eval_result(row) for row in results] or None,
    )


def _variables(
    run: Path, recipe: dict[str, Any], model: PreTrainedModel, options: CardOptions, directions: Directions
) -> dict[str, Any]:
    """The variables of the template, without the results."""
    targets = dict.fromkeys(direction.target for direction in directions)
    tag = language_tag(str(next(iter(targets)))) + " " if len(targets) > 1 else ""
    return {
        "name": _short_name(options.repo_id),
        "repo_id": options.repo_id,
        "translates": _translates(directions),
        "tags": list(map(language_tag, map(str, targets))) if tag else [],
        "parameters": _read_json(run / "run.json")["parameters"],
        "target_folder": None if getattr(model.config, "target_vocab_size", None) is None else TARGET,
        "preset": None if recipe.get("model_name_or_path") else recipe.get("preset"),
        "title": TITLES.get(model.config.model_type, TRANSFORMER)[0],
        "architecture": _architecture(model.config),
        "decoding": asdict(options_of(model)),
        "curve": "learning_curve.png" if (run / "learning_curve.png").is_file() else None,
        "stages": [
            _stage(stage, options.dataset if _same_training_files(stage, run) else None) for stage in _stages(run)
        ],
        "notes": options.notes,
        "robustness": _robustness(options),
        "example_source": json.dumps(tag + options.example[0].removeprefix(tag), ensure_ascii=False),
        "example_target": options.example[1],
    }


def _translates(directions: Directions) -> str:
    """What the model translates, with a line break where the sentence has one."""
    if len(directions) == 1:
        return "\ninto ".join(map(str, directions[0]))
    return f"in\n{len(directions)} directions: {', '.join(map(str, directions))}"


def _languages(recipe: dict[str, Any]) -> Languages:
    """The languages of a corpus."""
    return Languages(recipe.get("source_lang"), recipe.get("target_lang"))


def _short_name(repo_id: str) -> str:
    return repo_id.rsplit("/", 1)[-1]


def rename(path: Path, repo_id: str) -> None:
    """Replaces the name of the model in a card that was written under another name."""
    card = path.read_text(encoding="utf-8")
    match = re.search(r'from_pretrained\("(.+?)"', card)
    if match is None or match[1] == repo_id:
        return
    old, new = _short_name(match[1]), _short_name(repo_id)
    card = card.replace(f'from_pretrained("{match[1]}"', f'from_pretrained("{repo_id}"')
    card = card.replace(f"\n# {old}\n", f"\n# {new}\n").replace(f"\n- name: {old}\n", f"\n- name: {new}\n")
    write_text(path, card)


# --- results ---


def _results(
    run: Path, recipe: dict[str, Any], options: CardOptions, model_decoding: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row for each score: first those of the run, then those of its evaluations."""
    rows = []
    run_results = read_results(run)
    for split, result in run_results.items():
        corpus_name = _corpus_name(_with_test_sets(recipe), split, options.dataset)
        conditions = f"{split} set" if split in ("validation", "test") else "test set"
        dataset_id = _dataset_id(recipe, split, options.dataset)
        for direction, figures in _by_direction(result).items():
            name = corpus_name.replace(EVERY, direction)
            rows += _rows(name, split, dataset_id, figures, conditions, direction=direction)
    for path in _evaluation_files(options.evaluations):
        rows += _evaluation_rows(path, run, options.dataset, model_decoding)
    return _each_once(rows)


def _robustness(options: CardOptions) -> list[dict[str, str]]:
    """For each evaluation of robustness a row: BLEU without case in each form, and the share that is lost."""
    rows = []
    for path in _evaluation_files(options.evaluations):
        evaluation = read_results(path)
        if forms := evaluation.get("robustness"):
            row = {"data": _corpus_name(evaluation["corpus"], "test", options.dataset)}
            rows.append(row | {name: f"{each['lowercase']:.1f} ({each['lost']:.0%})" for name, each in forms.items()})
    return rows


def _by_direction(result: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """The figures of a result: those of each of several directions, and last their mean."""
    directions = result.get(DIRECTIONS, {}) if isinstance(result, dict) else {}
    figures = {name: figures_of(of_direction) for name, of_direction in directions.items()}
    return {**figures, f"mean of {len(figures)} directions" if figures else "": figures_of(result)}


def _evaluation_files(folders: Sequence[str | Path]) -> list[Path]:
    """The results.json files of evaluations. That of several test sets has one in each subfolder."""
    paths: list[Path] = []
    for folder in map(Path, folders):
        inside = sorted(folder.glob(f"*/{RESULTS}"))
        paths += inside if folder.is_dir() and inside and not (folder / RESULTS).is_file() else [folder]
    return paths


def _each_once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leaves out a score of the run that an evaluation repeats: same data, same score, same signature."""
    last = {(row["text"], row["name"], f"{row['score']:.2f}", row["signature"]): row for row in rows}
    return list(last.values())


def _with_test_sets(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe with the files of its further test sets under keys like those of `test_files`."""
    test_sets = files_by_name("test_sets", recipe.get("test_sets", []))
    return {**recipe, **{f"{name}_files": files for name, files in test_sets.items()}}


def _evaluation_rows(
    path: Path, run: Path, dataset: str | None, model_decoding: dict[str, Any]
) -> list[dict[str, Any]]:
    evaluation = read_results(path)
    scores = figures_of(evaluation)
    if not scores:
        raise ValueError(f"{path} is not an evaluation: give a folder that vanilla evaluate wrote.")
    _require_this_model(evaluation, run, path)
    corpus = evaluation["corpus"]
    corpus_name = _corpus_name(corpus, "test", dataset)
    split = corpus.get("test_set") or corpus.get("test_split", "test")
    dataset_id = _dataset_id(corpus, "test", dataset)
    if not any(name in corpus_name.lower() for name in PAPER_TEST_SETS):
        scores = {name: score for name, score in scores.items() if name not in COMPOUND_BLEUS}
    return _rows(corpus_name, split, dataset_id, scores, _conditions(evaluation, model_decoding))


def _require_this_model(evaluation: dict[str, Any], run: Path, path: Path) -> None:
    model = evaluation.get("model")
    if model is not None and Path(model).resolve() != (run / "model").resolve():
        raise ValueError(f"{path} is an evaluation of {model}, not of {run / 'model'}: evaluate that one.")


# Words for the options of a search.
DECODING_WORDS = {
    **{"num_beams": "beam", "length_penalty": "alpha"},
    **{"length_candidates": "length candidates", "length_ratio": "length ratio", "length_alpha": "length alpha"},
}


def _conditions(evaluation: dict[str, Any], model_decoding: dict[str, Any]) -> str:
    """The number of sentences, and every setting of the evaluation that is not the model's default."""
    decoding = {**model_decoding, **(evaluation.get("decoding") or {})}
    words = [f"{evaluation['sentences']:,} sentences"]
    if evaluation.get("model") is None:
        words.append("translations from a file")
    elif any(decoding.get(name) != value for name, value in model_decoding.items()):
        named = [name for name in model_decoding if name not in ("penalty", "max_extra_tokens")]
        words += [f"{DECODING_WORDS.get(name, name)} {decoding[name]}" for name in named]
    if decoding.get("penalty", BeamSearchOptions.penalty) != BeamSearchOptions.penalty:
        words.append(f"penalty {decoding['penalty']}^alpha")
    if decoding["max_extra_tokens"] != BeamSearchOptions.max_extra_tokens:
        words.append(f"at most {decoding['max_extra_tokens']} tokens more than the source")
    loading = evaluation.get("loading") or {}
    defaults = {"backend": "torch", "quantization": "float32"}
    words += [loading[name] for name, default in defaults.items() if loading.get(name, default) != default]
    return ", ".join(words)


def _rows(
    corpus_name: str,
    split: str,
    dataset_id: str,
    scores: dict[str, dict[str, Any]],
    conditions: str,
    *,
    direction: str = "",
) -> list[dict[str, Any]]:
    common = {"data": f"{corpus_name}, {conditions}", "text": corpus_name, "split": split, "dataset_id": dataset_id}
    common["direction"] = direction
    return [{**common, "name": name, "metric": METRICS.get(name, name), **score} for name, score in scores.items()]


def _eval_result(row: dict[str, Any]) -> EvalResult:
    return EvalResult(
        task_type="translation",
        dataset_type=row["dataset_id"],
        dataset_name=row["data"],
        dataset_config=row["direction"] or None,  # without it, the scores of all directions would become one entry
        dataset_split=row["split"],
        metric_type="bleu" if "bleu" in row["name"] else row["name"],
        metric_name=row["metric"],
        metric_value=round(row["score"], 2),
        metric_args={"signature": row["signature"]},
    )


# --- training ---


def _stages(run: Path) -> list[Path]:
    """The runs that made the model, in order: each started from the model of the run before it."""
    runs = [run]
    while start := _recipe(runs[0]).get("model_name_or_path"):
        earlier = Path(start).parent
        if not (earlier / "recipe.yaml").is_file() or earlier.resolve() in [stage.resolve() for stage in runs]:
            break
        runs.insert(0, earlier)
    return runs


def _same_training_files(run: Path, other: Path) -> bool:
    """Whether two runs were trained on the same files, so that the user's name for the corpus holds for both."""
    return _complete_recipe(run).get("train_files") == _complete_recipe(other).get("train_files")


def _stage(run: Path, dataset: str | None) -> dict[str, Any]:
    recipe = _recipe(run)
    if "model_name_or_path" in recipe and Path(recipe["model_name_or_path"]).exists():
        recipe["model_name_or_path"] = "/".join(Path(recipe["model_name_or_path"]).parts[-2:])
    training = _training(run, recipe, _read_json(run / "run.json"), dataset)
    return {"training": training, "recipe": yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip()}


def _training(
    run: Path, recipe: dict[str, Any], description: dict[str, Any], dataset: str | None
) -> list[tuple[str, str]]:
    """The rows of the table about training: label and value."""
    pairs = description.get("pairs", {}).get("train")
    seconds = _seconds(run)
    versions = description.get("versions", {})
    rows = [
        ("data", _corpus_name(recipe, "train", dataset) + (f", {pairs:,} pairs" if pairs else "")),
        ("hardware", _hardware(description)),
        ("precision", read_results(run).get("precision")),
        ("time", f"{seconds / 60:,.0f} minutes" if seconds else None),
        ("seed", description.get("seed")),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    return [(label, str(value)) for label, value in rows if value not in (None, "")]


def _hardware(description: dict[str, Any]) -> str:
    """The hardware of each start of a run, once where it did not change."""
    starts = description.get("starts") or [description]
    return ", then ".join(name for name, _ in groupby(map(_hardware_of_start, starts)) if name)


def _hardware_of_start(start: dict[str, Any]) -> str | None:
    device, threads = start.get("device"), start.get("threads")
    processes = start.get("processes", 1)
    if not device:
        return None
    if device == "cpu":
        device = f"CPU, {threads} thread{'s' if threads != 1 else ''}"
    return f"{device}, {processes} process{'es' if processes != 1 else ''}"


def _seconds(run: Path) -> float | None:
    """Training time in seconds, summed over all starts of a run. The clock of each start begins at zero."""
    if not (run / "metrics.jsonl").is_file():
        return None
    times = [entry["train_runtime"] for entry in read_metrics(run / "metrics.jsonl") if "train_runtime" in entry]
    ends = [time for time, following in zip(times, [*times[1:], 0.0], strict=True) if following < time]
    return sum(ends) or None


def _corpus_name(corpus: dict[str, Any], split: str, dataset: str | None) -> str:
    """The name of a split: the dataset, or its files. The user's name of a dataset goes before a single file only: of
    several files, some may come from elsewhere."""
    names = _short_names(corpus.get(f"{split}_files", []))
    if dataset and len(names) <= 1:
        names = [dataset, *names]
    name = corpus.get("dataset") or ", ".join(names)
    source = f", from {SOURCE}" if name == "demo" and split == "train" else ""
    return f"{name} ({EVERY if corpus.get(DIRECTIONS) else _languages(corpus)}){source}"


def _dataset_id(corpus: dict[str, Any], split: str, dataset: str | None) -> str:
    """An identifier for the card's metadata: the dataset on the Hub, or else the name of the files."""
    name = corpus.get("dataset") or dataset
    if name and not Path(name).is_dir():
        return name
    return "-".join(_short_names(_with_test_sets(corpus).get(f"{split}_files", []))).replace("/", "-") or split


def _short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of paths: as few as tell them apart, because the folders of one machine say nothing to others."""
    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return []


def _recipe(run: Path) -> dict[str, Any]:
    """recipe.yaml without the paths of one machine."""
    recipe = {
        name: value
        for name, value in _complete_recipe(run).items()
        if name not in NOT_IN_CARD and value not in ("", None, [])
    }
    for name in ("train_files", "validation_files", "test_files"):
        if name in recipe:
            recipe[name] = _short_names(recipe[name])
    for name in ("test_sets", "references"):
        if name in recipe:
            named = files_by_name(name, recipe[name])
            recipe[name] = [f"{each}={Path(file).name}" for each, files in named.items() for file in files]
    return recipe


def _complete_recipe(run: Path) -> dict[str, Any]:
    path = run / "recipe.yaml"
    if not path.is_file():
        raise ValueError(f"{run} has no recipe.yaml: it is not the folder of a training run.")
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _architecture(config: PreTrainedConfig) -> str:
    describe = ARCHITECTURES.get(config.model_type, _describe_transformer)
    return f"{describe(config)}, vocabulary of {config.vocab_size:,} tokens"


def _describe_transformer(config: PreTrainedConfig) -> str:
    layers = f"{config.encoder_layers} + {config.decoder_layers} layers, d_model {config.d_model}"
    norm = getattr(config, "norm_placement", "post")
    return f"{layers}, feed-forward {config.encoder_ffn_dim}, {config.encoder_attention_heads} heads, {norm}-norm"


def _describe_rnn_search(config: PreTrainedConfig) -> str:
    context = "one fixed context" if config.attention == "none" else f"{config.attention} attention"
    return f"GRUs of width {config.hidden_size}, {context}, embeddings of width {config.embedding_size}"


ARCHITECTURES = {"rnn_search": _describe_rnn_search}


def _read_json(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
