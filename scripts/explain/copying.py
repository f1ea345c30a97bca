"""Tasks that a small model learns in seconds: to copy its source, token by token, or to name pairs of its tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.learning_rate import share_of_peak


SIZES: dict[str, Any] = {
    "vocab_size": 44,
    "d_model": 64,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "dropout": 0.0,
}
FIRST_TOKEN = 4  # those before it are special
LENGTH = 6
DIGITS = 6  # in pairs to name: each of the 36 pairs has a token
BATCH = 64


def make_model(*, is_causal: bool = True, **fields: Any) -> VanillaTransformerForConditionalGeneration:
    """A small model, always with the same first weights, with or without the causal mask."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig.from_preset("tiny", **{**SIZES, **fields})
    config.decoder_is_causal = is_causal
    return VanillaTransformerForConditionalGeneration(config)


def draw_sequences(number: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """Random sequences [number, length] without a token twice, so that a token tells its place."""
    tokens = torch.rand(number, SIZES["vocab_size"] - FIRST_TOKEN, generator=generator).argsort(dim=-1)
    return tokens[:, :length] + FIRST_TOKEN


def batches(lengths: Sequence[int] = (LENGTH,), seed: int = 0) -> Iterator[torch.Tensor]:
    """Batches without end, each of one length."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        length = lengths[int(torch.randint(len(lengths), (), generator=generator))]
        yield draw_sequences(BATCH, length, generator)


def pairs_to_name() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without end of sources and targets: target token t names the source tokens t and t + LENGTH."""
    generator = torch.Generator().manual_seed(0)
    while True:
        first, second = torch.randint(DIGITS, (2, BATCH, LENGTH), generator=generator)
        yield torch.cat([first, second], dim=1) + FIRST_TOKEN, DIGITS * first + second + FIRST_TOKEN


def learn(
    model: VanillaTransformerForConditionalGeneration,
    data: Iterator[torch.Tensor] | Iterator[tuple[torch.Tensor, torch.Tensor]],
    updates: int,
    *,
    rate: float = 3e-3,
    warmup: int = 0,
) -> list[float]:
    """Trains a model with Adam and returns the losses. The decoder reads the target shifted right.

    Args:
        model: The model.
        data: The batches: sequences to copy, or sources and targets.
        updates: Number of updates.
        rate: Learning rate, constant or the peak of the paper's schedule.
        warmup: Updates of warm-up of the paper's schedule; 0 for a constant rate.
    """
    optimizer = torch.optim.Adam(model.train().parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step, batch in zip(range(1, updates + 1), data, strict=False):
        source, target = batch if isinstance(batch, tuple) else (batch, batch)
        optimizer.param_groups[0]["lr"] = rate * (share_of_peak(step, warmup) if warmup else 1.0)
        loss = model(input_ids=source, labels=target).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


@torch.no_grad()
def loss_of(model: VanillaTransformerForConditionalGeneration, ids: torch.Tensor) -> float:
    """Loss in test mode."""
    return model.eval()(input_ids=ids, labels=ids).loss.item()


@torch.no_grad()
def right_tokens(model: VanillaTransformerForConditionalGeneration, length: int = LENGTH) -> float:
    """Share of right tokens when the model writes one token after the other and reads only its own output."""
    ids = next(batches([length], seed=1))
    written = torch.full((len(ids), 1), model.config.decoder_start_token_id)
    for _ in range(length):
        logits = model.eval()(input_ids=ids, decoder_input_ids=written, use_cache=False).logits[:, -1]
        written = torch.cat([written, logits.argmax(-1, keepdim=True)], dim=1)
    return (written[:, 1:] == ids).float().mean().item()


def smooth(losses: Sequence[float]) -> list[float]:
    """Means of ten updates, which make curves readable."""
    parts = [losses[start : start + 10] for start in range(0, len(losses), 10)]
    return [sum(part) / len(part) for part in parts]
