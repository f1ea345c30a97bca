"""Count what an update and a search cost on a GPU, beside MarianMT of the same size. No GPU is needed.

    vanilla benchmark device --preset base --vocab_size 37000
    vanilla benchmark device --preset big --rows 100 --length 31

Kernels, memory traffic and peak memory are those of one training update in bfloat16 with a fused Adam, counted on the
meta device. Waits are moments when the host waits for the device: in an update for the model and its loss, in a search
for each step. Those of a search are counted on a small model, because they do not depend on its size. Where there is a
GPU, the times of the same updates are measured, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.from_and_to_marian import config_to_marian, to_marian
from vanilla_transformer.hub.loading import find_device
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.devices import without_looking
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL, LabelSmoothedCrossEntropy
from vanilla_transformer.models.modeling_vanilla_transformer import shift_right
from vanilla_transformer.scripts.benchmarks.equal_work import make_endless
from vanilla_transformer.scripts.benchmarks.measuring import seconds_of
from vanilla_transformer.scripts.benchmarks.peers import SMOOTHING, Batch, configuration, make_learner
from vanilla_transformer.scripts.benchmarks.report import OutputArguments, Table, report
from vanilla_transformer.training.objectives.cross_entropy import Objective
from vanilla_transformer.training.reports.device_costs import (
    CROSS_ENTROPY,
    Accelerated,
    Count,
    costs_of_update,
    peak_memory_of_graph,
    shape_of_batch,
    shape_of_model,
)


OURS, MARIAN = "vanilla_transformer", "MarianMT"
ROUNDS = 20


@dataclass
class DeviceBenchmarkArguments(OutputArguments):
    """Size of the models and of the batch."""

    preset: str = key("base", "Size of the models.")
    vocab_size: int = key(37000, "Tokens in the joint vocabulary.")
    rows: int = key(800, "Sentence pairs in the batch.")
    length: int = key(31, "Tokens of each source and of each target.")
    device: str | None = key(None, "Device whose times are measured; default: a GPU if there is one.")

    def __post_init__(self) -> None:
        for name in ("rows", "length"):
            if getattr(self, name) < 2:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 2.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([DeviceBenchmarkArguments], __doc__, argv)
        report(options, tables(options))


def tables(options: DeviceBenchmarkArguments) -> Iterator[Table]:
    """The tables: an update, evaluation and compiler, searches, and times where there is a GPU."""
    config = configuration(options.preset, options.vocab_size)
    size = f"{options.preset}, vocabulary of {options.vocab_size:,}, {options.rows} x {options.length} tokens"
    yield count_updates(config, options, size)
    yield count_peaks(config, options, size)
    yield count_searches()
    device = find_device(options.device)
    if device.type != "cpu":
        yield measure_times(config, options, device, size)


# --- updates ---


def count_updates(config: VanillaTransformerConfig, options: DeviceBenchmarkArguments, size: str) -> Table:
    """Kernels, traffic, peak and waits of an update, and the share of the loss."""
    batch = shape_of_batch(options.rows, options.length, options.length)
    rows: dict[str, dict[str, Any]] = {}
    for name, model, objective in (
        (OURS, shape_of_model(config), CROSS_ENTROPY),
        (MARIAN, shape_of_model(config_to_marian(config)), marian_loss),
    ):
        costs = costs_of_update(model, batch, objective, answers_reads=name == MARIAN)
        rows[name] = {
            **{"kernels": costs.kernels, "traffic, GB": costs.traffic / 1e9, "peak, GB": costs.peak_memory / 1e9},
            **{"TFLOP": costs.flops / 1e12, "waits": waits_of_update(model, objective)},
        }
    for name, loss in ((OURS, loss_of_states), (MARIAN, loss_of_logits)):
        with Count() as count, Accelerated():
            loss(config, batch["labels"])
        rows[f"{name}, loss alone"] = {"kernels": count.kernels, "traffic, GB": count.traffic / 1e9}
    formats = {"kernels": "{:,}", "traffic, GB": "{:.1f}", "peak, GB": "{:.1f}", "TFLOP": "{:.2f}", "waits": "{}"}
    return Table(f"a training update, counted; {size}, bfloat16", formats, rows)


def marian_loss(model: PreTrainedModel, inputs: Batch, num_items_in_batch: Any = None) -> torch.Tensor:
    """MarianMT's update: all logits, and torch's label-smoothed loss."""
    labels, config = inputs["labels"], model.config
    shifted = shift_right(labels, config.decoder_start_token_id, config.pad_token_id)
    sources = {name: value for name, value in inputs.items() if name != "labels"}
    return _cross_entropy(model(**sources, decoder_input_ids=shifted, use_cache=False).logits, labels)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    flat = logits.flatten(0, 1), labels.flatten()
    return F.cross_entropy(*flat, ignore_index=IGNORED_LABEL, label_smoothing=SMOOTHING)


def loss_of_states(config: VanillaTransformerConfig, labels: torch.Tensor) -> None:
    states, weight = _output_layer(config, labels)
    LabelSmoothedCrossEntropy(SMOOTHING).of_states(states, weight, labels, labels.numel()).backward()


def loss_of_logits(config: VanillaTransformerConfig, labels: torch.Tensor) -> None:
    states, weight = _output_layer(config, labels)
    _cross_entropy(F.linear(states, weight), labels).backward()


def _output_layer(config: VanillaTransformerConfig, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    shapes = (*labels.shape, config.d_model), (config.vocab_size, config.d_model)
    return tuple(torch.empty(shape, device="meta", requires_grad=True) for shape in shapes)


def waits_of_update(model: PreTrainedModel, objective: Objective) -> int:
    """How often the host waits for an update of a padded batch."""
    costs = costs_of_update(model, shape_of_batch(2, 4, 4, padding=True), objective, answers_reads=True)
    return sum(costs.waits.values())


# --- peaks ---


def count_peaks(config: VanillaTransformerConfig, options: DeviceBenchmarkArguments, size: str) -> Table:
    """Peak memory of an evaluation beside training, and of a compiled graph beside eager."""
    shape = (options.rows, options.length, options.length)
    rows: dict[str, dict[str, Any]] = {}
    for name, form in ((OURS, config), (MARIAN, config_to_marian(config))):
        model, batch = shape_of_model(form), shape_of_batch(*shape)
        costs = costs_of_update(model, batch, training=False, answers_reads=name == MARIAN)
        rows[f"{name}, evaluation of the loss"] = {"peak, GB": costs.peak_memory / 1e9}
    for name, compiled in (("without torch.compile", False), ("with torch.compile", True)):
        peak = peak_memory_of_graph(config, *shape, compiled=compiled)
        rows[f"{OURS}, forward and backward {name}"] = {"peak, GB": peak / 1e9}
    note = "The last two are in float32 and with attention in single operations: what the compiler is given."
    return Table(f"peak memory, counted; {size}", {"peak, GB": "{:.1f}"}, rows, notes=[note])


# --- searches ---


def count_searches() -> Table:
    """Waits of each step of a search, from the difference of a long and a short one."""
    rows = {}
    for name, model in small_models().items():
        model.bfloat16()  # as on a GPU: packed steps are for float32 on a CPU
        search = {"custom_generate": beam_search.search} if name == OURS else {}
        count = partial(waits_of_search, model, **search)
        rows[name] = {
            f"{title}, waits per step": (count(beams, 40) - count(beams, 10)) / 30
            for title, beams in (("beam of 4", 4), ("greedy", 1))
        }
    columns = next(iter(rows.values()))
    return Table("searches, counted", dict.fromkeys(columns, "{:.1f}"), rows)


def small_models() -> dict[str, PreTrainedModel]:
    """Two small models with the same weights, whose hypotheses never end."""
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(configuration("tiny", 50))
    make_endless(model)
    return {OURS: model.eval(), MARIAN: to_marian(model)}


@torch.no_grad()
def waits_of_search(model: PreTrainedModel, beams: int, length: int, **options: Any) -> int:
    """How often the host waits for a search of so many steps."""
    ids = torch.tensor([[5, 6, 7, 2], [5, 6, 2, 0]])
    mask = ids.ne(0).long()
    with without_looking(), Count("cpu") as count:
        output = model.generate(
            input_ids=ids, attention_mask=mask, num_beams=beams, max_new_tokens=length, do_sample=False, **options
        )
    assert output.shape[1] == length + 1
    return sum(count.waits.values())


# --- times ---


def measure_times(
    config: VanillaTransformerConfig, options: DeviceBenchmarkArguments, device: torch.device, size: str
) -> Table:
    """Updates on a real device."""
    ids = torch.randint(5, config.vocab_size, (options.rows, options.length), device=device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    rows = {}
    for name in (OURS, MARIAN):
        learner = make_learner(name, config, device=device, dtype="bfloat16")
        learner(batch)  # to warm up
        seconds = median(seconds_of(partial(learner, batch), device) for _ in range(ROUNDS))
        rows[name] = {"ms": seconds * 1000, "target tokens/s": ids.numel() / seconds}
    formats = {"ms": "{:.1f}", "target tokens/s": "{:,.0f}"}
    return Table(f"a training update, measured on {device}; {size}, bfloat16", formats, rows)
