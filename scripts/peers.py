"""What is measured beside this model: the same network in other hands, with the same weights where it has them."""

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.beam_search import beam_search
from vanilla_transformer.convert_marian import to_marian
from vanilla_transformer.loss import IGNORED_LABEL, LabelSmoothedCrossEntropy
from vanilla_transformer.modeling_vanilla_transformer import shift_right
from vanilla_transformer.positions import SinusoidalHalvesPositions


Batch = dict[str, torch.Tensor]
SMOOTHING = 0.1


def configuration(preset: str, vocab_size: int) -> VanillaTransformerConfig:
    """A preset that MarianMT can express as well."""
    return VanillaTransformerConfig.from_preset(
        preset, vocab_size=vocab_size, position_encoding="sinusoidal_halves", label_smoothing=SMOOTHING
    )


@dataclass
class Learner:
    """A model, its loss and its optimizer: one call is one update.

    Args:
        model: The model.
        loss: The smoothed loss of a batch.
    """

    model: nn.Module
    loss: Callable[[Batch], torch.Tensor]

    def __post_init__(self):
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def __call__(self, batch: Batch) -> float:
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def our_learner(config: VanillaTransformerConfig) -> Learner:
    model = VanillaTransformerForConditionalGeneration(config)
    criterion = LabelSmoothedCrossEntropy(SMOOTHING)
    return Learner(model, lambda batch: model(**batch, criterion=criterion).loss)


def marian_learner(config: VanillaTransformerConfig) -> Learner:
    """MarianMT of the library in a plain loop, with torch's own smoothed loss."""
    model = to_marian(VanillaTransformerForConditionalGeneration(config))
    return Learner(model, lambda batch: _loss_of_logits(model(**_fed(batch, config)).logits, batch["labels"]))


def torch_learner(config: VanillaTransformerConfig) -> Learner:
    """`torch.nn.Transformer` between tied embeddings."""
    model = TorchTransformer(config)
    return Learner(model, lambda batch: _loss_of_logits(model(**_fed(batch, config)), batch["labels"]))


LEARNERS = {"vanilla_transformer": our_learner, "MarianMT": marian_learner, "torch.nn.Transformer": torch_learner}


class TorchTransformer(nn.Module):
    """torch's layers in the paper's arrangement."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = SinusoidalHalvesPositions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            d_model=config.d_model,
            nhead=config.encoder_attention_heads,
            num_encoder_layers=config.encoder_layers,
            num_decoder_layers=config.decoder_layers,
            dim_feedforward=config.encoder_ffn_dim,
            dropout=config.dropout,
            batch_first=True,
        )
        self.scale = config.d_model**0.5

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor):
        hidden = attention_mask == 0
        length = decoder_input_ids.shape[1]
        states = self.transformer(
            self._embed(input_ids),
            self._embed(decoder_input_ids),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.positions(ids.shape[1], 0, ids.device).float()
        return self.dropout(self.embedding(ids) * self.scale + positions)


def _fed(batch: Batch, config: VanillaTransformerConfig) -> Batch:
    shifted = shift_right(batch["labels"], config.decoder_start_token_id, config.pad_token_id)
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "decoder_input_ids": shifted,
    }


def _loss_of_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    flat = logits.flatten(0, 1), labels.flatten()
    return F.cross_entropy(*flat, ignore_index=IGNORED_LABEL, label_smoothing=SMOOTHING)


# --- decoding ---


def decoders(options, beams: int) -> tuple[dict[str, Callable[[], object]], int]:
    """Functions that translate the same sentences with the same weights, and how many sentences that is."""
    model, tokenizer, lines = _model_and_text(options)
    marian = to_marian(model)
    fixed = {"min_new_tokens": options.length, "max_new_tokens": options.length} if options.preset else {}
    batches = [
        tokenizer(lines[start : start + options.batch_size], padding=True, return_tensors="pt")
        for start in range(0, len(lines), options.batch_size)
    ]
    decoding = {"num_beams": beams, **fixed}
    if beams > 1:
        decoding["length_penalty"] = 0.6
    translator = Translator(model, tokenizer)

    def generate(system, **more):
        for batch in batches:
            room = {} if fixed else {"max_length": batch["input_ids"].shape[1] + 51}
            system.generate(**batch, **decoding, **room, **more)

    systems = {
        "MarianMT generate": lambda: generate(marian),
        "this model, stock generate": lambda: generate(model),
        "this model, beam_search": lambda: generate(model, custom_generate=beam_search),
        "MarianMT, beam_search": lambda: generate(marian, custom_generate=beam_search),
        "Translator": lambda: translator(lines, **decoding),
    }
    with suppress(ImportError):
        systems |= _ctranslate2_decoders(model, tokenizer, lines, options, beams)
    return systems, len(lines)


def _model_and_text(options):
    """The model and its tokenizer, and sentences to translate."""
    from vanilla_transformer.tokenization_vanilla_transformer import load_tokenizers, train_tokenizer
    from vanilla_transformer.training.files import lines_in_files

    lines = [line for line in lines_in_files(options.input) if line.strip()][: options.sentences]
    if options.model:
        model = AutoModelForSeq2SeqLM.from_pretrained(options.model).eval()
        return model, load_tokenizers(options.model)[0], lines
    tokenizer = train_tokenizer(
        lines_in_files(options.input), vocab_size=options.vocab_size, min_frequency=1, show_progress=False
    )
    config = configuration(options.preset, options.vocab_size)
    return VanillaTransformerForConditionalGeneration(config).eval(), tokenizer, lines


def _ctranslate2_decoders(model, tokenizer, lines: list[str], options, beams: int) -> dict[str, Callable[[], object]]:
    from vanilla_transformer.export_ctranslate2 import export, require_ctranslate2, translate

    engine = require_ctranslate2()
    pieces = [tokenizer(line).tokens() for line in lines]
    length = {"max_new_tokens": options.length, "min_decoding_length": options.length} if options.preset else {}
    found = {}
    for quantization in ("float32", "int8"):
        with tempfile.TemporaryDirectory() as folder:
            export(model, tokenizer, folder, quantization=quantization)
            loaded = engine.Translator(folder, intra_threads=options.threads)
        found[f"CTranslate2 {quantization}"] = lambda loaded=loaded: translate(
            loaded, pieces, num_beams=beams, max_batch_size=options.batch_size, **length
        )
    return found


# --- how fast the machine is ---


def products_of(config: VanillaTransformerConfig, batch: Batch) -> float:
    """Floating-point operations that an update on the real tokens of a batch can't do without: those of its matrix
    products, forward and, twice as many, backward."""
    mask, real = batch["attention_mask"], batch["labels"] != IGNORED_LABEL
    source_lengths, target_lengths = mask.sum(1).double(), real.sum(1).double()
    source, target = source_lengths.sum().item(), target_lengths.sum().item()
    d, ff = config.d_model, config.encoder_ffn_dim
    encoder = source * (4 * d * d + 2 * d * ff) + 2 * d * (source_lengths**2).sum().item()
    decoder = target * (6 * d * d + 2 * d * ff) + source * 2 * d * d
    decoder += 2 * d * ((target_lengths**2).sum() + (source_lengths * target_lengths).sum()).item()
    output = target * d * config.vocab_size
    return 3 * 2 * (config.encoder_layers * encoder + config.decoder_layers * decoder + output)


def peak_of_products(seconds: float = 0.3) -> float:
    """Floating-point operations a second in one large matrix product, here and now."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    left @ right
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        left @ right
        count += 1
    return count * 2 * 1024**3 / (time.perf_counter() - start)
