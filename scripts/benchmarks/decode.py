"""Measure translation from text to text, the same weights in other hands.

    vanilla-benchmark decode --model runs/demo/model --input data/test.en --references data/test.de --sentences 1000
    vanilla-benchmark decode --preset base --input data/test.en --num_beams 4

The reference is a loop over MarianMT's `generate` on the lines as they come, 32 at a time. The `Translator` sorts
them by length, searches with `beam_search`, and computes in float32 or 8 bits, in torch or, where it is installed,
CTranslate2. ONNX Runtime (`pip install onnx onnxscript onnxruntime`) runs this model's exported graphs inside the same
loop as MarianMT. With --references each has its BLEU, which shows what 8 bits cost.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING

from vanilla_transformer.scripts.benchmarks.benchmark import (
    RATIO,
    MeasurementArguments,
    Table,
    begin,
    compared,
    conditions,
    not_on_gpu,
    report,
    seconds_of,
    take_turns,
)
from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.scripts.benchmarks.onnx_model import OnnxModel


REFERENCE = "MarianMT generate"
ONNX = ("onnx", "onnxscript", "onnxruntime")  # what it takes to export a model and to run it


@dataclass
class DecodeBenchmarkArguments(MeasurementArguments):
    """What is measured."""

    input: list[str] = key([], "Text to translate, a sentence a line.")
    references: list[str] = key([], "Its translations, for BLEU.")
    model: str | None = key(None, "A trained model; all systems get its weights.")
    preset: str | None = key(None, "Random weights of this size in its place, decoded to a fixed length.")
    vocab_size: int = key(10000, "Pieces of a vocabulary learned from the text, for --preset.")
    sentences: int = key(200, "How many lines of it.")
    batch_size: int = key(32, "Lines in a batch; the Translator makes its own.")
    length: int = key(20, "Tokens of each translation, for --preset.")
    num_beams: list[int] = key([4, 1], "Beams to measure with; 1 is greedy.")
    rounds: int = key(3, "Rounds.")

    def __post_init__(self):
        super().__post_init__()
        if bool(self.model) == bool(self.preset):
            raise ValueError("Give either --model or --preset: what shall decode?")
        if not self.input:
            raise ValueError("Give --input: text to translate.")
        if self.preset and self.references:
            raise ValueError(f"--preset {self.preset}: random weights have no BLEU, leave out --references.")
        for name in ("sentences", "batch_size", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([DecodeBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: DecodeBenchmarkArguments) -> Iterator[Table]:
    from vanilla_transformer.training.metrics import bleu

    device = begin(options)
    lines, references = read_text(options)
    decoders = make_decoders(options, lines, device)
    what = options.model or f"{options.preset}, random weights, {options.length} tokens each"
    for beams in options.num_beams:
        ways = decoders.ways(beams)
        translations = {name: way() for name, way in ways.items()}  # which also warms up
        turns = {name: partial(seconds_of, way, device) for name, way in ways.items()}
        seconds = take_turns(turns, options.rounds)
        rows = compared(seconds, REFERENCE)
        for name, times in seconds.items():
            rows[name]["sentences/s"] = len(lines) / median(times)
            rows[name]["tokens/s"] = decoders.tokens_in(translations[name]) / median(times)
            if references:
                rows[name]["BLEU"] = bleu(translations[name], references).score
        notes = ["Tokens are those of the translations.", *decoders.not_measured()]
        if references:
            notes.append(f"BLEU: {bleu(references, references).signature}")
        yield Table(
            f"{what}; beam {beams}, {len(lines):,} sentences; {conditions(options, device)}",
            {"sentences/s": "{:,.1f}", "tokens/s": "{:,.0f}", **RATIO, **({"BLEU": "{:.2f}"} if references else {})},
            rows,
            drawn=["to MarianMT"],
            reference=REFERENCE,
            notes=[*notes, *not_on_gpu(device)],
        )


def read_text(options: DecodeBenchmarkArguments) -> tuple[list[str], list[str]]:
    """The lines to translate, and their references where there are any."""
    from vanilla_transformer.training.corpus_files import lines_in_files
    from vanilla_transformer.training.metrics import require_same_number

    lines = list(lines_in_files(options.input))
    references = list(lines_in_files(options.references)) if options.references else [""] * len(lines)
    require_same_number(lines, references, "lines of input")
    pairs = [pair for pair in zip(lines, references, strict=True) if pair[0].strip()][: options.sentences]
    if not pairs:
        raise ValueError(f"--input {' '.join(options.input)} has no text: give a sentence a line.")
    lines, references = map(list, zip(*pairs, strict=True))
    return lines, references if options.references else []


def make_decoders(options: DecodeBenchmarkArguments, lines: list[str], device) -> "Decoders":
    """The trained model, or one with random weights and a vocabulary that fits the text."""
    import torch

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.converters.marian import load
    from vanilla_transformer.scripts.benchmarks.peers import configuration
    from vanilla_transformer.tokenization_vanilla_transformer import load_tokenizers, train_tokenizer

    if options.model:
        model, tokenizers, length = load(options.model, "vanilla_transformer"), load_tokenizers(options.model), None
    else:
        vocabulary = {"vocab_size": options.vocab_size, "min_frequency": 1, "show_progress": False}
        tokenizers, length = (train_tokenizer(lines, **vocabulary), None), options.length
        model = VanillaTransformerForConditionalGeneration(configuration(options.preset, options.vocab_size)).eval()
    return Decoders(model.to(device, getattr(torch, options.dtype)), *tokenizers, lines, options.batch_size, length)


@dataclass
class Decoders:
    """Ways to translate the same lines with the same weights, from text to text.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or the source's.
        target_tokenizer: The target's, for separate vocabularies.
        lines: The text.
        batch_size: Lines in a batch of those ways that take them as they come.
        fixed_length: Tokens of each translation, where weights are random and would never end one.
    """

    model: "VanillaTransformerForConditionalGeneration"
    tokenizer: "PreTrainedTokenizerBase"
    target_tokenizer: "PreTrainedTokenizerBase | None"
    lines: list[str]
    batch_size: int = 32
    fixed_length: int | None = None

    def ways(self, beams: int) -> dict[str, Callable[[], list[str]]]:
        """The ways there are on this machine, by name."""
        from vanilla_transformer import beam_search
        from vanilla_transformer.converters.marian import to_marian

        marian = to_marian(self.model).to(self.model.device)
        found = {
            REFERENCE: partial(self.in_file_order, marian, beams),
            "MarianMT, beam_search": partial(self.in_file_order, marian, beams, custom_generate=beam_search.search),
            "this model, stock generate": partial(self.in_file_order, self.model, beams),
            "this model, beam_search": partial(
                self.in_file_order, self.model, beams, custom_generate=beam_search.search
            ),
            "Translator": self.translator(beams),
        }
        if self.is_plain:
            found["Translator int8"] = self.translator(beams, quantization="int8")
        if not missing("ctranslate2"):
            for quantization in (self.dtype, "int8"):
                name = f"Translator, CTranslate2 {quantization}".removesuffix(" float32")
                found[name] = self.translator(beams, backend="ctranslate2", quantization=quantization)
        if self.is_plain and not missing(*ONNX):
            onnx = partial(self.in_file_order, self.onnx_model, beams)
            found |= {"ONNX Runtime, stock generate": onnx}
            found |= {"ONNX Runtime, beam_search": partial(onnx, custom_generate=beam_search.search)}
        return found

    def not_measured(self) -> list[str]:
        """Which of the ways are not among them here, and why."""
        sentences = []
        if not self.is_plain:
            sentences.append("ONNX Runtime and the Translator's int8 in torch: only on the CPU, from float32.")
        for engine, packages in (("CTranslate2", ("ctranslate2",)), ("ONNX Runtime", ONNX)):
            if names := missing(*packages):
                sentences.append(f"{engine} was not measured: not installed ({', '.join(names)}).")
        return sentences

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def is_plain(self) -> bool:
        return self.model.device.type == "cpu" and self.dtype == "float32"

    @cached_property
    def onnx_model(self) -> "OnnxModel":
        from vanilla_transformer.scripts.benchmarks.onnx_model import OnnxModel

        return OnnxModel(self.model)

    def in_file_order(self, model: "PreTrainedModel", beams: int, **more) -> list[str]:
        """What one writes first: batches of lines as they stand in the file."""
        texts = []
        for start in range(0, len(self.lines), self.batch_size):
            lines = self.lines[start : start + self.batch_size]
            batch = self.tokenizer(lines, padding=True, return_tensors="pt").to(model.device)
            room = {} if self.fixed_length else {"max_length": batch["input_ids"].shape[1] + 51}
            output = model.generate(**batch, **self.options(beams), **room, **more)
            texts += (self.target_tokenizer or self.tokenizer).batch_decode(output, skip_special_tokens=True)
        return texts

    def translator(self, beams: int, **engine) -> Callable[[], list[str]]:
        from vanilla_transformer import Translator

        translator = Translator(self.model, self.tokenizer, self.target_tokenizer, **engine)
        return lambda: translator(self.lines, **self.options(beams))

    def options(self, beams: int) -> dict:
        penalty = {"length_penalty": 0.6} if beams > 1 else {}
        length = self.fixed_length
        fixed = {"min_new_tokens": length, "max_new_tokens": length} if length else {}
        return {"num_beams": beams, **penalty, **fixed}

    def tokens_in(self, translations: list[str]) -> int:
        """Tokens that had to be written for these, ends of sentences included."""
        if self.fixed_length:
            return self.fixed_length * len(translations)
        tokenizer = self.target_tokenizer or self.tokenizer
        return sum(map(len, tokenizer(text_target=translations)["input_ids"]))


def missing(*packages: str) -> list[str]:
    """Those that are not installed."""
    return [name for name in packages if find_spec(name) is None]


if __name__ == "__main__":
    main()
