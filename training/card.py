"""The model card of a run: every number in it is read from what the run and its evaluations left, none is typed."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedConfig, PreTrainedModel

from vanilla_transformer.decoding_options import with_defaults
from vanilla_transformer.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.training.plots import read_metrics


METRICS = {
    "sacrebleu": "sacreBLEU",
    "paper_bleu": "tokenised BLEU, compounds split (as in the paper)",
    "tokenized_bleu": "tokenised BLEU",
    "chrf": "chrF",
    "ter": "TER (less is better)",
    "comet": "COMET",
}
# Where things were, not what they were: nobody else has these files.
NOT_IN_CARD = ("output_dir", "logging_dir", "run_name", "num_proc", "push_to_hub", "hub_model_id", "use_cpu")


@dataclass(frozen=True)
class CardOptions:
    """What a run does not know of itself.

    Args:
        repo_id: The model's name on the Hub, or the folder it is in.
        license: Its licence, by the Hub's identifier such as `"apache-2.0"`.
        license_name: The licence's own name, where `license` is `"other"`.
        notes: Markdown to go under the limitations.
        evaluations: Folders or files that `vanilla-evaluate-bleu` wrote.
        example: A sentence and its translation to show.
        dataset: The corpus by its name on the Hub, where the run had it from files.
    """

    repo_id: str
    license: str | None = None
    license_name: str | None = None
    notes: str | None = None
    evaluations: Sequence[str | Path] = ()
    example: tuple[str, str | None] = ("When does the train arrive in Berlin?", None)
    dataset: str | None = None


def model_card(run: str | Path, model: PreTrainedModel, options: CardOptions) -> str:
    """The card of the run in a folder, metadata included. What the run did not record is left out."""
    run = Path(run)
    recipe, description = _recipe(run), _read_json(run / "run.json")
    config, decoding = model.config, with_defaults(model.generation_config)
    results = _results(run, recipe, options, decoding)
    languages = recipe.get("source_lang", "en"), recipe.get("target_lang", "de")
    dataset = options.dataset or recipe.get("dataset")
    name = options.repo_id.rsplit("/", 1)[-1]
    data = ModelCardData(
        language=list(languages),
        license=options.license,
        license_name=options.license_name,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["vanilla_transformer", "attention-is-all-you-need"],
        datasets=[dataset] if dataset and dataset != "demo" and not Path(dataset).exists() else None,
        model_name=name if results else None,
        eval_results=[_metadata(row) for row in results] or None,
    )
    template = files("vanilla_transformer.model_cards").joinpath("template.md.jinja").read_text(encoding="utf-8")
    card = ModelCard.from_template(
        data,
        template_str=template,
        name=name,
        repo_id=options.repo_id,
        source_lang=languages[0],
        target_lang=languages[1],
        parameters=description["parameters"],
        target_folder=None if getattr(config, "target_vocab_size", None) is None else TARGET,
        preset=None if recipe.get("model_name_or_path") else recipe.get("preset"),
        architecture=_architecture(config),
        decoding=decoding,
        results=results,
        curve="learning_curve.png" if (run / "learning_curve.png").is_file() else None,
        stages=[_stage(each, options.dataset if _same_text(each, run) else None) for each in _stages(run)],
        notes=options.notes,
        example_source=options.example[0],
        example_target=options.example[1],
    )
    return str(card)


def rename(path: Path, repo_id: str) -> None:
    """Puts a model's name on the Hub into a card that was written under another."""
    card = path.read_text(encoding="utf-8")
    found = re.search(r'from_pretrained\("(.+?)"', card)
    if found is None or found[1] == repo_id:
        return
    old, new = (name.rsplit("/", 1)[-1] for name in (found[1], repo_id))
    card = card.replace(f'from_pretrained("{found[1]}"', f'from_pretrained("{repo_id}"')
    card = card.replace(f"\n# {old}\n", f"\n# {new}\n").replace(f"\n- name: {old}\n", f"\n- name: {new}\n")
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(card, encoding="utf-8")
    os.replace(temporary, path)


# --- results ---


def _results(run: Path, recipe: dict, options: CardOptions, usual: dict) -> list[dict[str, Any]]:
    """A row for each figure: the run's own, then those of its evaluations."""
    rows = []
    own = _read_json(run / "results.json")
    for split in ("validation", "test"):
        if split in own:
            figures = {"sacrebleu": {"score": own[split]["bleu"], "signature": own[split]["signature"]}}
            rows += _rows(_text(recipe, split, options.dataset), split, figures, f"{split} set")
    for place in map(Path, options.evaluations):
        found = _read_json(place / "results.json" if place.is_dir() else place)
        figures = {name: found[name] for name in METRICS if name in found}
        if not figures:
            raise ValueError(f"{place} is no evaluation: give a folder that vanilla-evaluate-bleu wrote.")
        _require_this_model(found, run, place)
        corpus = found["corpus"]
        text = _text(corpus, "test", options.dataset)
        rows += _rows(text, corpus.get("test_split", "test"), figures, _how(found, usual))
    return rows


def _require_this_model(evaluation: dict, run: Path, place: Path) -> None:
    model = evaluation.get("model")
    if model is not None and Path(model).resolve() != (run / "model").resolve():
        raise ValueError(f"{place} is an evaluation of {model}, not of {run / 'model'}: evaluate that one.")


def _how(evaluation: dict, usual: dict[str, Any]) -> str:
    """What else a reader must know of a figure: how many sentences, and how they were translated if not as usual."""
    decoding = {**usual, **(evaluation.get("decoding") or {})}
    beams, alpha = decoding["num_beams"], decoding["length_penalty"]
    words = [f"{evaluation['sentences']:,} sentences"]
    if evaluation.get("model") is None:
        words.append("translations given")
    elif (beams, alpha) != (usual["num_beams"], usual["length_penalty"]):
        words.append(f"beam {beams}, alpha {alpha}")
    if decoding.get("penalty", "gnmt") != "gnmt":
        words.append(f"penalty {decoding['penalty']}^alpha")
    if decoding.get("max_extra_tokens", 50) != 50:
        words.append(f"at most {decoding['max_extra_tokens']} tokens more than the source")
    loading = evaluation.get("loading") or {}
    plain = {"backend": "torch", "quantization": "float32"}
    words += [loading[name] for name, value in plain.items() if loading.get(name, value) != value]
    return ", ".join(words)


def _rows(text: str, split: str, figures: dict[str, dict], more: str) -> list[dict[str, Any]]:
    return [
        {"data": f"{text}, {more}", "text": text, "split": split, "name": name, "metric": METRICS[name], **figure}
        for name, figure in figures.items()
    ]


def _metadata(row: dict[str, Any]) -> EvalResult:
    return EvalResult(
        task_type="translation",
        dataset_type=row["text"],
        dataset_name=row["data"],
        dataset_split=row["split"],
        metric_type="bleu" if "bleu" in row["name"] else row["name"],
        metric_name=row["metric"],
        metric_value=round(row["score"], 2),
        metric_args={"signature": row["signature"]},
    )


# --- training ---


def _stages(run: Path) -> list[Path]:
    """The runs that made the model: this one, and before it those whose model it went on from."""
    found = [run]
    while start := _recipe(found[0]).get("model_name_or_path"):
        earlier = Path(start).parent
        if not (earlier / "recipe.yaml").is_file() or earlier.resolve() in [each.resolve() for each in found]:
            break
        found.insert(0, earlier)
    return found


def _same_text(run: Path, other: Path) -> bool:
    """Whether two runs learned from the same files: a name that the user gives to one's is also the other's."""
    return _written_recipe(run).get("train_files") == _written_recipe(other).get("train_files")


def _stage(run: Path, dataset: str | None) -> dict[str, Any]:
    recipe = _recipe(run)
    if "model_name_or_path" in recipe and Path(recipe["model_name_or_path"]).exists():
        recipe["model_name_or_path"] = "/".join(Path(recipe["model_name_or_path"]).parts[-2:])
    training = _training(run, recipe, _read_json(run / "run.json"), dataset)
    return {"training": training, "recipe": yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip()}


def _training(run: Path, recipe: dict, description: dict, dataset: str | None) -> list[tuple[str, str]]:
    pairs = description.get("pairs", {}).get("train")
    seconds = _seconds(run)
    threads, processes = description.get("threads"), description.get("processes", 1)
    where = description.get("device", "")
    if where == "cpu":
        where = f"CPU, {threads} thread{'s' if threads != 1 else ''}"
    versions = description.get("versions", {})
    rows = [
        ("data", _text(recipe, "train", dataset) + (f", {pairs:,} pairs" if pairs else "")),
        ("hardware", f"{where}, {processes} process{'es' if processes != 1 else ''}" if where else None),
        ("time", f"{seconds / 60:,.0f} minutes" if seconds else None),
        ("seed", description.get("seed")),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
    return [(label, str(value)) for label, value in rows if value not in (None, "")]


def _seconds(run: Path) -> float | None:
    """Training time, over all the starts of a run: the clock begins anew with each."""
    if not (run / "metrics.jsonl").is_file():
        return None
    times = [entry["train_runtime"] for entry in read_metrics(run / "metrics.jsonl") if "train_runtime" in entry]
    ends = [time for time, following in zip(times, [*times[1:], 0.0], strict=True) if following < time]
    return sum(ends) or None


def _text(corpus: dict, split: str, dataset: str | None) -> str:
    """What a split is called: the dataset, or its own files and where they are from."""
    files = ", ".join(Path(name).name for name in corpus.get(f"{split}_files", []))
    named = corpus.get("dataset") or (f"{dataset}, {files}" if dataset else files)
    return f"{named} ({corpus.get('source_lang', 'en')}-{corpus.get('target_lang', 'de')})"


def _recipe(run: Path) -> dict:
    """recipe.yaml without what says where things were on one machine."""
    recipe = _written_recipe(run)
    kept = {name: value for name, value in recipe.items() if name not in NOT_IN_CARD and value not in ("", None, [])}
    for name in ("train_files", "validation_files", "test_files"):
        if name in kept:
            kept[name] = [Path(file).name for file in kept[name]]
    return kept


def _written_recipe(run: Path) -> dict:
    path = run / "recipe.yaml"
    if not path.is_file():
        raise ValueError(f"{run} has no recipe.yaml: it is not the folder of a training run.")
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _architecture(config: PreTrainedConfig) -> str:
    layers = f"{config.encoder_layers} + {config.decoder_layers} layers, d_model {config.d_model}"
    norm = getattr(config, "norm_placement", "post")
    pieces = f"vocabulary of {config.vocab_size:,} pieces"
    width, heads = config.encoder_ffn_dim, config.encoder_attention_heads
    return f"{layers}, feed-forward {width}, {heads} heads, {norm}-norm, {pieces}"


def _read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
