"""Window attention: a token attends to its neighbours only, at a cost of n * w in place of n * n.

Queries are cut into blocks. Each block attends to the keys from `reach` before its first query to `reach` after its
last one, under a mask. So no matrix of n * n scores is ever made. The blocks take the place of batch rows, and any
score and any attention implementation that takes a mask can compute them.

Shapes: B batch, T queries, H heads, D d_model, d width of a head, N blocks, Q queries of a block, K keys of a block.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import pad
from transformers.cache_utils import Cache

from .full_attention import additive
from .modeling_vanilla_transformer import VanillaTransformerAttention


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .positions import PositionEncoding


class Blocks(NamedTuple):
    """How the queries are cut into blocks, and which keys a block gets."""

    length: int  # queries, T
    size: int  # queries in a block, Q
    before: int  # keys before the first query of a block
    after: int  # keys after the last query of a block

    @classmethod
    def of(cls, length: int, window: int, *, is_causal: bool) -> "Blocks":
        """Blocks of half a window. Larger ones would compute more hidden scores, smaller ones copy more keys."""
        reach = window // 2
        return cls(length, min(reach, length), reach, 0 if is_causal else reach)

    @property
    def number(self) -> int:
        return -(-self.length // self.size)

    @property
    def keys_per_block(self) -> int:
        return self.before + self.size + self.after

    def queries(self, states: torch.Tensor) -> torch.Tensor:
        """[B, H, T, d] -> [B * N, H, Q, d]."""
        states = pad(states, (0, 0, 0, self.number * self.size - self.length))
        return states.unflatten(2, (self.number, self.size)).transpose(1, 2).flatten(0, 1)

    def keys(self, states: torch.Tensor) -> torch.Tensor:
        """Keys or values [B, H, T, d], or [B, H, before + T, d] from a cache, -> [B * N, H, K, d]."""
        missing_before = self.before + self.length - states.shape[2]
        missing_after = self.number * self.size - self.length + self.after
        states = pad(states, (0, 0, missing_before if missing_before > 0 else 0, missing_after))
        blocks = states.unfold(2, self.keys_per_block, self.size)  # [B, H, N, d, K], overlapping
        return blocks.permute(0, 2, 1, 4, 3).flatten(0, 1)

    def join(self, output: torch.Tensor) -> torch.Tensor:
        """[B * N, Q, ...] -> [B, T, ...]."""
        return output.unflatten(0, (-1, self.number)).flatten(1, 2)[:, : self.length]

    def key_offsets(self, device: torch.device) -> torch.Tensor:
        """Positions of the keys of each block [N, K]; the first query has position 0."""
        starts = torch.arange(self.number, device=device) * self.size - self.before
        return starts[:, None] + torch.arange(self.keys_per_block, device=device)

    def visible(self, is_key: torch.Tensor) -> torch.Tensor:
        """Which keys each query may see [B, N, Q, K], given which keys exist [B, N, 1 or Q, K].

        Every query sees at least itself: a row that hides all keys has no softmax.
        """
        keys = torch.arange(self.keys_per_block, device=is_key.device) - self.before
        distances = keys - torch.arange(self.size, device=is_key.device)[:, None]  # [Q, K]
        is_near = (distances >= -self.before) & (distances <= self.after)
        return (is_near & is_key) | (distances == 0)

    def band(self, weights: torch.Tensor, past: int = 0) -> torch.Tensor:
        """Attention weights of blocks [B * N, H, Q, K] as one map [B, H, T, past + T]."""
        blocks = weights.unflatten(0, (-1, self.number)).transpose(1, 2)  # [B, H, N, Q, K]
        columns = self.key_offsets(weights.device)[:, None] + self.before  # [N, 1, K], from 0
        width = self.before + self.number * self.size + self.after
        bands = weights.new_zeros(*blocks.shape[:-1], width).scatter(-1, columns.expand_as(blocks), blocks)
        bands = bands.flatten(2, 3)[:, :, : self.length]
        return pad(bands, (past - self.before, self.before + self.length - width))  # a negative number crops


class WindowMask(NamedTuple):
    """The mask of the blocks, and where their keys are."""

    visible: torch.Tensor  # [B * N, 1, Q, K], as the attention implementation takes it
    blocks: Blocks
    past: int | torch.Tensor = 0  # tokens in the cache before the first query
    cached_keys: torch.Tensor | None = None  # places in the cache of the `before` + T keys that the blocks need


class WindowAttention(VanillaTransformerAttention):
    """A token attends to the tokens at most `attention_window` / 2 away: truncated self-attention.

    With several layers a token learns of tokens further away, half a window in each layer. In the decoder it sees only
    itself and those before it. Decoding reads half a window of the cache at each step.
    """

    takes_any_mask = False
    attn_implementations = ("sdpa", "eager")

    @classmethod
    def check(cls, config: "VanillaTransformerConfig") -> None:
        """Refuses an odd window."""
        if config.attention_window < 2 or config.attention_window % 2:
            raise ValueError(
                f"attention_window={config.attention_window} must be an even number of 2 or more: a token sees half "
                "of it on each side."
            )

    @classmethod
    def make_mask(
        cls,
        config: "VanillaTransformerConfig",
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        *,
        is_causal: bool,
        past_key_values: Cache | None = None,
    ) -> WindowMask:
        batch, length = embeddings.shape[:2]
        blocks = Blocks.of(length, config.attention_window, is_causal=is_causal)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        is_key = existing_keys(blocks, padding_mask, batch, past, embeddings.device)
        visible = as_mask(blocks.visible(is_key), config, embeddings.dtype)
        cached_keys = None
        if past_key_values is not None:
            places = torch.arange(blocks.before + length, device=embeddings.device) + (past - blocks.before)
            cached_keys = places.clamp(min=0)
        return WindowMask(visible, blocks, past, cached_keys)

    @classmethod
    def position_arguments(
        cls,
        encoding: "PositionEncoding",
        query_positions: torch.Tensor,
        key_positions: torch.Tensor | None,
        attention_mask: WindowMask,
    ) -> dict[str, Any]:
        """Asks the encoding for each block's positions. A bias is then [N, H, Q, K] and not T * T."""
        if encoding.acts_on != "scores":
            return encoding.for_attention(query_positions, key_positions)
        blocks = attention_mask.blocks
        biases = []
        for offsets in blocks.key_offsets(query_positions.device) + query_positions[0]:
            queries = offsets[blocks.before : blocks.before + blocks.size]
            biases.append(encoding.for_attention(queries, offsets.clamp(min=0))["position_bias"])
        return {"position_bias": torch.cat(biases)}

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: WindowMask,
        position_bias: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        visible, blocks, past, cached_keys = attention_mask
        if cached_keys is not None:
            key, value = key.index_select(2, cached_keys), value.index_select(2, cached_keys)
        if position_bias is not None:
            kwargs["position_bias"] = position_bias.repeat(len(query), 1, 1, 1)  # [B * N, H, Q, K]
        output, weights = super().attend(
            blocks.queries(query), blocks.keys(key), blocks.keys(value), visible, **kwargs
        )
        wanted = weights is not None and wants_maps(self, kwargs)
        return blocks.join(output), blocks.band(weights, int(past)) if wanted else None


def existing_keys(
    blocks: Blocks,
    padding_mask: torch.Tensor | None,
    batch: int,
    past: int | torch.Tensor,
    device: torch.device,
) -> torch.Tensor:
    """Whether there is a token at each key of each block [B, N, 1, K].

    A mask of pairs [B, 1, T, S], such as the library makes for a static cache, gives [B, N, Q, K].
    """
    offsets = blocks.key_offsets(device)
    places = offsets + past
    is_key = ((places >= 0) & (offsets < blocks.length))[:, None]  # [N, 1, K]
    if padding_mask is None:
        return is_key.expand(batch, -1, -1, -1)
    if padding_mask.dim() == 2:
        padding_mask = padding_mask[:, None, None].bool()  # the same for all queries
    elif padding_mask.dim() != 4 or padding_mask.shape[1] != 1:
        raise ValueError(
            f"An attention mask of the shape {list(padding_mask.shape)} does not fit attention in blocks: give a "
            "padding mask [batch, tokens]."
        )
    elif padding_mask.is_floating_point():
        padding_mask = padding_mask >= 0  # it was to be added to the scores
    queries = torch.arange(blocks.number * blocks.size, device=device).view(blocks.number, blocks.size)
    queries = queries[:1, :1] if padding_mask.shape[2] == 1 else queries.clamp(max=blocks.length - 1)
    keys = places.clamp(0, padding_mask.shape[3] - 1)
    return is_key & padding_mask[:, 0][:, queries[:, :, None], keys[:, None, :]]


def as_mask(visible: torch.Tensor, config: "VanillaTransformerConfig", dtype: torch.dtype) -> torch.Tensor:
    """The mask [B * N, 1, Q, K] of blocks [B, N, Q, K], as the attention implementation takes it."""
    visible = visible.flatten(0, 1)[:, None]
    return additive(visible, dtype) if config._attn_implementation == "eager" else visible


def wants_maps(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Whether attention weights were asked for. Only then is a map of n * n weights made."""
    return bool(kwargs.get("output_attentions", module.config.output_attentions))
