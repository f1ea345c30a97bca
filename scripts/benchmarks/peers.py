"""What is measured beside this model: the same network in other hands, with the same weights where it has them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.converters.marian import to_marian
from vanilla_transformer.loss import IGNORED_LABEL, LabelSmoothedCrossEntropy
from vanilla_transformer.modeling_vanilla_transformer import shift_right
from vanilla_transformer.positions import SinusoidalHalvesPositions


Batch = dict[str, torch.Tensor]
Loss = Callable[[Batch], torch.Tensor]
SMOOTHING = 0.1


def configuration(preset: str, vocab_size: int, **fields) -> VanillaTransformerConfig:
    """A preset that MarianMT can express as well."""
    common = {"position_encoding": "sinusoidal_halves", "label_smoothing": SMOOTHING}
    return VanillaTransformerConfig.from_preset(preset, vocab_size=vocab_size, **{**common, **fields})


# --- training ---


@dataclass
class Learner:
    """A model, its loss and its optimizer: one call is one update.

    Args:
        model: The model.
        loss: The smoothed loss of a batch.
        dtype: Type of the arithmetic; the weights stay in float32.
    """

    model: nn.Module
    loss: Loss
    dtype: torch.dtype = torch.float32

    def __post_init__(self):
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def __call__(self, batch: Batch) -> torch.Tensor:
        # Nothing here waits for a GPU: whoever measures does.
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
    """The learner of that name among `MODELS`."""
    model, loss = MODELS[name](config)
    model.to(device)
    if compile:
        model.compile()
    return Learner(model, loss, getattr(torch, dtype))


def our_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    model = VanillaTransformerForConditionalGeneration(config)
    criterion = LabelSmoothedCrossEntropy(SMOOTHING)
    return model, lambda batch: model(**batch, criterion=criterion).loss


def marian_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """MarianMT of the library with torch's own smoothed loss, and without the cache that only decoding needs."""
    model = to_marian(VanillaTransformerForConditionalGeneration(config))
    return model, lambda batch: _loss_of_logits(model(**_fed(batch, config), use_cache=False).logits, batch["labels"])


def torch_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """`torch.nn.Transformer` between tied embeddings."""
    model = TorchTransformer(config)
    return model, lambda batch: _loss_of_logits(model(**_fed(batch, config)), batch["labels"])


MODELS = {"vanilla_transformer": our_model, "MarianMT": marian_model, "torch.nn.Transformer": torch_model}


def random_batch(tokens: int, length: int, vocab_size: int, device: torch.device) -> Batch:
    """A batch of at most so many random tokens a side in sentences of one length, without padding."""
    ids = torch.randint(4, vocab_size, (tokens // length, length), device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


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
        # Where the paper drops nothing: attention weights, and between the layers of the feed-forward.
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0
        for layer in self.transformer.decoder.layers:
            layer.multihead_attn.dropout = 0.0
        self.scale = config.d_model**0.5

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor):
        hidden = attention_mask == 0
        length = decoder_input_ids.shape[1]
        states = self.transformer(
            self._embed(input_ids),
            self._embed(decoder_input_ids),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device)).float()
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


class LargeProducts:
    """Matrix products large enough to show the peak of a machine, a fraction of a second of them a call."""

    def __init__(self, device: torch.device, dtype: torch.dtype):
        width, self.number = (8192, 20) if device.type == "cuda" else (1024, 10)
        self.left, self.right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
        self.operations = self.number * 2 * width**3

    def __call__(self) -> None:
        for _ in range(self.number):
            self.left @ self.right
