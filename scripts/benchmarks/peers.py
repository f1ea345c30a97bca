"""The systems that this model is compared with: the same network in MarianMT and torch.nn.Transformer, and recurrent
models of as many parameters."""

from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from vanilla_transformer import (
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.converters.from_and_to_marian import to_marian
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL, LabelSmoothedCrossEntropy
from vanilla_transformer.models.modeling_vanilla_transformer import shift_right
from vanilla_transformer.models.position_variants import SinusoidalHalvesPositions


Batch = dict[str, torch.Tensor]
Loss = Callable[[Batch], torch.Tensor]
SMOOTHING = 0.1


def configuration(preset: str, vocab_size: int, **fields: Any) -> VanillaTransformerConfig:
    """A preset, changed so that MarianMT can express it."""
    common = {"position_encoding": "sinusoidal_halves", "label_smoothing": SMOOTHING}
    return VanillaTransformerConfig.from_preset(preset, vocab_size=vocab_size, **{**common, **fields})


# --- training ---


@dataclass
class Learner:
    """A model, its loss and its optimizer: one call is one update.

    Args:
        model: The model.
        loss: The label-smoothed loss of a batch.
        dtype: Type of the arithmetic; the weights stay in float32.
    """

    model: nn.Module
    loss: Loss
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def __call__(self, batch: Batch) -> torch.Tensor:
        # Nothing here waits for a GPU; `seconds_of` does.
        with torch.autocast(batch["input_ids"].device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def make_learner(
    name: str,
    config: VanillaTransformerConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
    compile: bool = False,
) -> Learner:
    """A learner with one of the `MODELS` or `RECURRENT_MODELS`, by name."""
    model, loss = (MODELS | RECURRENT_MODELS)[name](config)
    model.to(device)
    if compile:
        model.compile()
    return Learner(model, loss, getattr(torch, dtype))


def our_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """This package's model and loss."""
    return _with_our_loss(VanillaTransformerForConditionalGeneration(config))


def recurrent_model(config: VanillaTransformerConfig, attention: str) -> tuple[nn.Module, Loss]:
    """This package's RNNsearch, with as many parameters as the Transformer."""
    return _with_our_loss(RnnSearchForConditionalGeneration(recurrent_configuration(config, attention)))


def recurrent_configuration(config: VanillaTransformerConfig, attention: str) -> RnnSearchConfig:
    """The widest RNNsearch with the Transformer's embeddings that has no more parameters than it."""

    def of_width(width: int) -> RnnSearchConfig:
        return RnnSearchConfig(
            vocab_size=config.vocab_size,
            embedding_size=config.d_model,
            readout_size=config.d_model,
            hidden_size=width,
            attention_size=width,
            attention=attention,
            dropout=config.dropout,
            tie_word_embeddings=True,
        )

    def parameters(width: int) -> int:
        return RnnSearchForConditionalGeneration(of_width(width)).num_parameters()

    with torch.device("meta"):
        limit = VanillaTransformerForConditionalGeneration(config).num_parameters()
        return of_width(bisect(range(1, 64 * config.d_model), limit, key=parameters))


def _with_our_loss(model: PreTrainedModel) -> tuple[nn.Module, Loss]:
    criterion = LabelSmoothedCrossEntropy(SMOOTHING)
    return model, lambda batch: model(**batch, criterion=criterion).loss


def marian_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """The library's MarianMT with torch's label-smoothed loss, without the cache that only decoding needs."""
    model = to_marian(VanillaTransformerForConditionalGeneration(config))
    return model, lambda batch: _loss_of_logits(
        model(**_model_inputs(batch, config), use_cache=False).logits, batch["labels"]
    )


def torch_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """`torch.nn.Transformer` between tied embeddings."""
    model = TorchTransformer(config)
    return model, lambda batch: _loss_of_logits(model(**_model_inputs(batch, config)), batch["labels"])


MODELS = {"vanilla_transformer": our_model, "MarianMT": marian_model, "torch.nn.Transformer": torch_model}
RECURRENT_MODELS = {
    "rnn_search, additive attention": partial(recurrent_model, attention="additive"),
    "rnn_search, fixed context": partial(recurrent_model, attention="none"),
}


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with the paper's embeddings, positions and dropout."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
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
        # The paper has no dropout on attention weights, nor inside the feed-forward network.
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0
        for layer in self.transformer.decoder.layers:
            layer.multihead_attn.dropout = 0.0
        self.scale = config.d_model**0.5

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor
    ) -> torch.Tensor:
        """Logits [B, T, V]."""
        padding = attention_mask == 0
        length = decoder_input_ids.shape[1]
        states = self.transformer(
            self._embed(input_ids),
            self._embed(decoder_input_ids),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=padding.device).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device)).float()
        return self.dropout(self.embedding(ids) * self.scale + positions)


def _model_inputs(batch: Batch, config: VanillaTransformerConfig) -> Batch:
    """The inputs of models that do not shift the labels themselves."""
    start, padding = config.decoder_start_token_id, config.pad_token_id
    assert start is not None
    assert padding is not None
    shifted = shift_right(batch["labels"], start, padding)
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "decoder_input_ids": shifted,
    }


def _loss_of_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    flat = logits.flatten(0, 1), labels.flatten()
    return F.cross_entropy(*flat, ignore_index=IGNORED_LABEL, label_smoothing=SMOOTHING)


# --- the speed of the machine ---


def update_flops(config: VanillaTransformerConfig, batch: Batch) -> float:
    """Floating-point operations of the matrix products that an update needs for the real tokens of a batch: forward,
    and twice as many backward."""
    mask, label_mask = batch["attention_mask"], batch["labels"] != IGNORED_LABEL
    source_lengths, target_lengths = mask.sum(1).double(), label_mask.sum(1).double()
    source, target = source_lengths.sum().item(), target_lengths.sum().item()
    d, ff = config.d_model, config.encoder_ffn_dim
    encoder = source * (4 * d * d + 2 * d * ff) + 2 * d * (source_lengths**2).sum().item()
    decoder = target * (6 * d * d + 2 * d * ff) + source * 2 * d * d
    decoder += 2 * d * ((target_lengths**2).sum() + (source_lengths * target_lengths).sum()).item()
    output = target * d * config.vocab_size
    return 3 * 2 * (config.encoder_layers * encoder + config.decoder_layers * decoder + output)


class LargeProducts:
    """Matrix products large enough to reach the peak speed of the machine; one call takes a fraction of a second."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        width, self.number = (8192, 20) if device.type == "cuda" else (1024, 10)
        self.left, self.right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
        self.flops = self.number * 2 * width**3

    def __call__(self) -> None:
        for _ in range(self.number):
            self.left @ self.right
