"""Measure translation from text to text, with the same weights in different engines.

    vanilla benchmark decode --model runs/demo/model --input data/test.en --references data/test.de --sentences 1000
    vanilla benchmark decode --preset base --input data/test.en --num_beams 4
    vanilla benchmark decode --preset base --input data/test.en --equal_work

The reference is a loop over MarianMT's `generate` on the lines in file order, 32 at a time. The `Translator` sorts the
lines by length, and computes with torch and, if it is installed, with CTranslate2 in float32 and int8. With
--references each system has its BLEU, which shows the cost of int8.

With --equal_work all systems get one batch of --batch_size lines of similar length, and no translation ends before
--length tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer import Translator, VanillaTransformerForConditionalGeneration
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.from_and_to_marian import load, to_marian
from vanilla_transformer.engines.ctranslate2_engine import PATIENCE, CTranslate2Backend
from vanilla_transformer.hub.loading import load_tokenizers
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.search_options import SearchOptions
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.scripts.benchmarks.equal_work import EqualWork, make_endless
from vanilla_transformer.scripts.benchmarks.measuring import (
    RATIO,
    MeasurementArguments,
    conditions,
    gpu_notes,
    seconds_of,
    set_up,
    speed_ratios,
    take_turns,
)
from vanilla_transformer.scripts.benchmarks.peers import configuration
from vanilla_transformer.scripts.benchmarks.report import Table, report
from vanilla_transformer.training.evaluation.metrics import bleu, require_same_number


REFERENCE = "MarianMT generate"
# The engines beside torch: their names in tables, and the packages that convert a model and run it.
ENGINES = {"ctranslate2": ("CTranslate2", ("ctranslate2",))}


@dataclass
class TranslationBenchmarkArguments(MeasurementArguments):
    """The text."""

    input: list[str] = key([], "Files with text to translate, one sentence per line.")
    references: list[str] = key([], "Files with reference translations, for scores.")
    sentences: int = key(200, "Number of lines to translate.")
    rounds: int = key(3, "Number of rounds.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.input:
            raise ValueError("Give --input: the text to translate.")
        if self.sentences < 1:
            raise ValueError(f"--sentences {self.sentences} must be at least 1.")


@dataclass
class DecodeBenchmarkArguments(TranslationBenchmarkArguments):
    """The model, and the beams."""

    model: str | None = key(None, "A trained model; all systems get its weights.")
    preset: str | None = key(None, "Random weights of this size instead of --model, decoded to a fixed length.")
    vocab_size: int = key(10000, "With --preset: tokens in the vocabulary, which is learned from the text.")
    batch_size: int = key(32, "Lines in a batch; the Translator makes its own batches.")
    length: int = key(20, "With --preset: tokens in each translation.")
    num_beams: list[int] = key([4, 1], "Beam sizes to measure; 1 is greedy.")
    engines: list[str] = key(list(ENGINES), "Engines to measure besides torch, if they are installed.")
    equal_work: bool = key(False, "With --preset: one batch, and the same number of steps for all systems.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.engines:
            if name not in ENGINES:
                raise ValueError(f"--engines {name} is unknown: choose from {', '.join(ENGINES)}.")
        if self.equal_work and (not self.preset or self.dtype != "float32" or self.device not in (None, "cpu")):
            raise ValueError("--equal_work measures random weights in float32 on the CPU: give --preset.")
        if bool(self.model) == bool(self.preset):
            raise ValueError("Give either --model or --preset: the model that translates.")
        if self.preset and self.references:
            raise ValueError(f"--preset {self.preset}: random weights have no useful BLEU, leave out --references.")
        for name in ("batch_size", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([DecodeBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: DecodeBenchmarkArguments) -> Iterator[Table]:
    """One table for each beam size."""
    device = set_up(options)
    lines, references = read_text(options)
    decoders = make_decoders(options, lines, device)
    what = options.model or f"{options.preset}, random weights, {options.length} tokens each"
    columns = {"sentences/s": "{:,.1f}", "tokens/s": "{:,.0f}", **RATIO}
    notes = ["Tokens are those of the translations.", *decoders.not_measured()]
    if references:
        columns["BLEU"] = "{:.2f}"
        notes.append(f"BLEU: {bleu(references, references).signature}")
    work = None
    if options.equal_work:
        lines = of_similar_length(lines, decoders.tokenizer, options.batch_size)
        work = equal_work(decoders, lines)
        notes.append("All systems decode one batch for the same number of steps; no translation ends before.")
    for beams in options.num_beams:
        yield Table(
            f"{what}; beam {beams}, {len(lines):,} sentences; {conditions(options, device)}",
            columns,
            compare_equal_work(work, beams, options.rounds, device)
            if work
            else compare_systems(decoders, beams, references, options.rounds, device),
            drawn=["to MarianMT"],
            reference=REFERENCE,
            notes=[*notes, *gpu_notes(device)],
        )


def of_similar_length(lines: list[str], tokenizer: PreTrainedTokenizerBase, number: int) -> list[str]:
    """The lines in the middle, by their tokens: the encoder has little padding, which some systems leave out."""
    ordered = sorted(lines, key=lambda line: len(tokenizer(line)["input_ids"]))
    start = max(len(ordered) - number, 0) // 2
    return ordered[start : start + number]


def equal_work(decoders: "Decoders", lines: list[str]) -> EqualWork:
    """One batch for all systems, and a model whose hypotheses never end."""
    assert decoders.fixed_length is not None  # --equal_work needs --preset
    make_endless(decoders.model)
    return EqualWork(decoders.model, decoders.tokenizer, lines, decoders.fixed_length, decoders.available_engines())


def compare_equal_work(work: EqualWork, beams: int, rounds: int, device: torch.device) -> dict[str, dict[str, Any]]:
    """Speeds of each system on one batch."""
    systems = work.systems(beams, REFERENCE)
    work.require_equal(decode() for decode in systems.values())  # this also warms up
    turns = {name: partial(seconds_of, decode, device) for name, decode in systems.items()}
    return with_speeds(
        take_turns(turns, rounds), dict.fromkeys(systems, work.length * len(work.lines)), len(work.lines)
    )


def with_speeds(seconds: dict[str, list[float]], tokens: dict[str, int], sentences: int) -> dict[str, dict[str, Any]]:
    """Rows with the ratio and the speeds of each system."""
    rows = speed_ratios(seconds, REFERENCE)
    for name, times in seconds.items():
        rows[name]["sentences/s"] = sentences / median(times)
        rows[name]["tokens/s"] = tokens[name] / median(times)
    return rows


def compare_systems(
    decoders: "Decoders", beams: int, references: list[str], rounds: int, device: torch.device
) -> dict[str, dict[str, Any]]:
    """Speeds and, if there are references, BLEU of each system with one beam size."""
    systems = decoders.systems(beams)
    translations = {name: translate() for name, translate in systems.items()}  # this also warms up
    turns = {name: partial(seconds_of, translate, device) for name, translate in systems.items()}
    tokens = {name: decoders.tokens_in(texts) for name, texts in translations.items()}
    rows = with_speeds(take_turns(turns, rounds), tokens, len(decoders.lines))
    for name, texts in translations.items():
        if references:
            rows[name]["BLEU"] = bleu(texts, references).score
    return rows


def read_text(options: TranslationBenchmarkArguments) -> tuple[list[str], list[str]]:
    """The lines to translate, and their references if there are any."""
    lines = list(lines_in_files(options.input))
    references = list(lines_in_files(options.references)) if options.references else [""] * len(lines)
    require_same_number(lines, references, "lines of input")
    pairs = [pair for pair in zip(lines, references, strict=True) if pair[0].strip()][: options.sentences]
    if not pairs:
        raise ValueError(f"--input {' '.join(options.input)} has no text: give one sentence per line.")
    lines, references = map(list, zip(*pairs, strict=True))
    return lines, references if options.references else []


def make_decoders(options: DecodeBenchmarkArguments, lines: list[str], device: torch.device) -> "Decoders":
    """Decoders of the trained model, or of a model with random weights and a vocabulary learned from the text."""
    if options.model:
        model, length = load(options.model, "vanilla_transformer"), None
        tokenizer, target_tokenizer = load_tokenizers(options.model)
    else:
        assert options.preset is not None  # the options give one of the two
        model = VanillaTransformerForConditionalGeneration(configuration(options.preset, options.vocab_size)).eval()
        tokenizer = train_tokenizer(lines, vocab_size=options.vocab_size, min_frequency=1, show_progress=False)
        target_tokenizer, length = None, options.length
    model.to(device, getattr(torch, options.dtype))
    text = (lines, options.batch_size, length, options.engines)
    return Decoders(model, tokenizer, target_tokenizer, *text, name=options.model)


@dataclass
class Decoders:
    """Systems that translate the same lines with the same weights, from text to text.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or that of the source with separate vocabularies.
        target_tokenizer: The tokenizer of the target, with separate vocabularies.
        lines: The text.
        batch_size: Lines in a batch of the systems that translate in file order.
        fixed_length: Tokens in each translation with random weights, which would not end one by themselves.
        engines: Engines to measure besides torch, keys of `ENGINES`.
        name: Where the model is from; `None` for random weights.
    """

    model: VanillaTransformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None
    lines: list[str]
    batch_size: int = 32
    fixed_length: int | None = None
    engines: Sequence[str] = tuple(ENGINES)
    name: str | None = None
    converted: dict[tuple[str, str], Translator] = field(default_factory=dict)

    def systems(self, beams: int) -> dict[str, Callable[[], list[str]]]:
        """The systems that this machine can run, by name."""
        marian = to_marian(self.model).to(self.model.device)
        in_file_order, search = self.in_file_order, beam_search.search
        systems: dict[str, Callable[[], list[str]]] = {
            REFERENCE: partial(in_file_order, marian, beams),
            "MarianMT, beam_search": partial(in_file_order, marian, beams, custom_generate=search),
            "this model, stock generate": partial(in_file_order, self.model, beams, search=None),
            "this model, beam_search": partial(in_file_order, self.model, beams, custom_generate=search),
            "Translator": self.translator(beams),
        }
        if "ctranslate2" in self.available_engines() and self.target_tokenizer is None:
            systems["plain CTranslate2 script"] = self.plain_script(beams)
            if beams == 1:  # a score, as the Translator has it, takes a softmax over the vocabulary at each step
                systems["plain CTranslate2 script, scores"] = self.plain_script(beams, return_scores=True)
        for engine in self.available_engines():
            for quantization in (self.dtype, "int8"):
                name = f"Translator, {ENGINES[engine][0]} {quantization}".removesuffix(" float32")
                systems[name] = self.translator(beams, backend=engine, quantization=quantization)
        return systems

    def available_engines(self) -> list[str]:
        """The engines that this machine has, of those that were asked for."""
        return [name for name in self.engines if not missing(*ENGINES[name][1])]

    def not_measured(self) -> list[str]:
        """Notes on the systems that this machine can't run."""
        notes = []
        for engine in self.engines:
            title, packages = ENGINES[engine]
            if names := missing(*packages):
                notes.append(f"{title} was not measured: not installed ({', '.join(names)}).")
        return notes

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def on_cpu_in_float32(self) -> bool:
        return self.model.device.type == "cpu" and self.dtype == "float32"

    def in_file_order(self, model: PreTrainedModel, beams: int, **generation: Any) -> list[str]:
        """The simplest loop: batches of lines in file order."""
        texts: list[str] = []
        for start in range(0, len(self.lines), self.batch_size):
            lines = self.lines[start : start + self.batch_size]
            batch = self.tokenizer(lines, padding=True, return_tensors="pt").to(model.device)
            # One more than the extra tokens: max_length includes the start token.
            limit = {"max_length": SearchOptions().max_length(batch["input_ids"].shape[1])}
            options = {**self.options(beams), **({} if self.fixed_length else limit), **generation}
            output = model.generate(**batch, **options)
            texts += (self.target_tokenizer or self.tokenizer).batch_decode(output, skip_special_tokens=True)
        return texts

    def translator(self, beams: int, **engine: Any) -> Callable[[], list[str]]:
        """A function that translates the lines with `Translator`."""
        engine = {"backend": "torch", "quantization": "float32", **engine}
        kind = (engine["backend"], engine["quantization"])
        if kind not in self.converted:
            self.converted[kind] = (
                Translator.from_pretrained(self.name, device="cpu", **engine)  # as users have it
                if self.name and self.on_cpu_in_float32
                else Translator(self.model, self.tokenizer, self.target_tokenizer, **engine)
            )
        translator = self.converted[kind]
        return lambda: list(translator(self.lines, **self.options(beams)))

    def plain_script(self, beams: int, **options: Any) -> Callable[[], list[str]]:
        """What a short script with `ctranslate2` and `tokenizers` does, with the same converted model and beams as the
        Translator: the engine sorts the lines and makes its own batches."""
        self.translator(beams, backend="ctranslate2", quantization=self.dtype)  # converts
        translator = self.converted["ctranslate2", self.dtype]
        assert isinstance(translator.backend, CTranslate2Backend)
        engine = translator.backend._require_engine()
        tokenizer = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        tokenizer.no_padding()
        length = self.fixed_length
        patience = PATIENCE if beams > 1 else 1
        longest = length or SearchOptions().max_length(max(map(len, self.tokenizer(self.lines)["input_ids"])))
        options = {
            **{"beam_size": beams, "patience": patience, "num_hypotheses": beams * patience},
            **{"max_decoding_length": longest, "min_decoding_length": length or 0},
            **{"max_batch_size": translator.max_tokens, "batch_type": "tokens"},
            **options,
        }

        def translate() -> list[str]:
            encoded = tokenizer.encode_batch(self.lines)
            results = engine.translate_batch([one.tokens for one in encoded], **options)
            # A small text fills a part of the vocabulary: a model with random weights also writes the rest.
            ids = tokenizer.get_vocab()
            return [tokenizer.decode([ids.get(token, 0) for token in result.hypotheses[0]]) for result in results]

        return translate

    def options(self, beams: int) -> dict[str, Any]:
        """Options of `generate` that all systems share."""
        penalty = {"length_penalty": 0.6} if beams > 1 else {}
        length = self.fixed_length
        fixed = {"min_new_tokens": length, "max_new_tokens": length} if length else {}
        return {"num_beams": beams, **penalty, **fixed}

    def tokens_in(self, translations: list[str]) -> int:
        """Tokens of the translations, ends of sentences included."""
        if self.fixed_length:
            return self.fixed_length * len(translations)
        tokenizer = self.target_tokenizer or self.tokenizer
        return sum(map(len, tokenizer(text_target=translations)["input_ids"]))


def missing(*packages: str) -> list[str]:
    """The packages that are not installed."""
    return [name for name in packages if find_spec(name) is None]


if __name__ == "__main__":
    main()
