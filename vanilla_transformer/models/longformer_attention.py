"""Longformer: window attention plus a few global tokens, which see all tokens and are seen by all.

Beltagy et al. 2020, "Longformer: The Long-Document Transformer". Information crosses the whole sequence in two layers:
a global token gathers it, and every token reads it there. With G global tokens the cost is n * (w + G).

Shapes: B batch, T tokens, H heads, D d_model, d width of a head, G global tokens of the row that has most, N blocks,
Q queries and K keys of a block.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from .full_attention import additive
from .modeling_vanilla_transformer import VanillaTransformerAttention, split_heads
from .positions import rotate
from .window_attention import Blocks, WindowAttention, as_mask, existing_keys, wants_maps


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


class LongformerMask(NamedTuple):
    """The masks of the local and the global queries, and where the global tokens are."""

    local: torch.Tensor  # [B * N, 1, Q, G + K]: the global keys, then those of the window
    of_global: torch.Tensor | None  # [B, 1, G, T]: what global queries see; `None` for everything
    places: torch.Tensor  # [B, G]: places of the global tokens
    is_global: torch.Tensor  # [B, G]: a row with fewer global tokens than another is filled up
    blocks: Blocks


class LongformerAttention(WindowAttention):
    """Local tokens attend to their window and the global tokens. Global tokens attend to everything, with projections
    of their own.

    As in LED, the paper's encoder-decoder, this is the encoder's pattern, and the decoder has full attention. By
    default the first token of each sequence is global; `global_attention_mask` names others.
    """

    in_decoder = "full"
    takes_global_tokens = True

    @classmethod
    def check(cls, config: "VanillaTransformerConfig") -> None:
        """Refuses an odd window, and a bias of scores."""
        super().check(config)
        if config.variant("position_encoding").acts_on == "scores":
            raise ValueError(
                f"position_encoding={config.position_encoding!r} weighs keys by their distance, but the global tokens "
                "of attention_pattern='longformer' are equally near to all: choose another position_encoding, for "
                "example 'rotary', or attention_pattern='window'."
            )

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__(config, num_heads, layer_idx, is_causal)
        self.global_q_proj = nn.Linear(config.d_model, num_heads * self.d_k)
        self.global_k_proj = nn.Linear(config.d_model, num_heads * self.d_k)
        self.global_v_proj = nn.Linear(config.d_model, num_heads * self.d_v)

    @classmethod
    def make_mask(  # type: ignore[override]  # it is another mask
        cls,
        config: "VanillaTransformerConfig",
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        *,
        is_causal: bool,
        global_attention_mask: torch.Tensor | None = None,
    ) -> LongformerMask:
        batch, length = embeddings.shape[:2]
        is_global_token = global_tokens(embeddings, padding_mask, global_attention_mask)
        counts = is_global_token.sum(1)
        places = is_global_token.int().argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]
        is_global = torch.arange(places.shape[1], device=places.device) < counts[:, None]

        # The window leaves out the global keys, which come before it, so that each key counts once.
        blocks = Blocks.of(length, config.attention_window, is_causal=False)
        is_local = ~is_global_token if padding_mask is None else padding_mask.bool() & ~is_global_token
        in_window = blocks.visible(existing_keys(blocks, is_local, batch, 0, embeddings.device))
        global_keys = is_global[:, None, None, :].expand(-1, blocks.number, blocks.size, -1)  # [B, N, Q, G]
        local = as_mask(torch.cat([global_keys, in_window], dim=-1), config, embeddings.dtype)
        of_global = None if padding_mask is None else padding_mask[:, None, None, :].bool()
        if of_global is not None and config._attn_implementation == "eager":
            of_global = additive(of_global, embeddings.dtype)
        return LongformerMask(local, of_global, places, is_global, blocks)

    def forward(  # type: ignore[override]  # the mask is the one that `make_mask` makes
        self,
        hidden_states: torch.Tensor,
        attention_mask: LongformerMask,
        rotation: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        blocks, places = attention_mask.blocks, attention_mask.places
        query = rotate(split_heads(self.q_proj(hidden_states), self.d_k), rotation)
        key, value = self._keys_and_values(hidden_states, None, None, rotation)
        keys, values = (_with_global(blocks, states, places) for states in (key, value))
        attend = VanillaTransformerAttention.attend
        output, weights = attend(self, blocks.queries(query), keys, values, attention_mask.local, **kwargs)
        output = blocks.join(output)  # [B, T, H, d_v]
        from_global, global_weights = output[:, :0], None
        if places.shape[1]:
            inputs = self._global_inputs(hidden_states, places, rotation)
            from_global, global_weights = attend(self, *inputs, attention_mask.of_global, **kwargs)
        rows, columns = attention_mask.is_global.nonzero(as_tuple=True)
        where = (rows, places[rows, columns])
        output = self.out_proj(output.index_put(where, from_global[rows, columns]).flatten(2))
        if weights is None or not wants_maps(self, kwargs):
            return output, None
        return output, _map(weights, global_weights, attention_mask, where, (rows, columns))

    def _global_inputs(
        self,
        hidden_states: torch.Tensor,
        places: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [B, H, G, d_k] of the global tokens, and keys and values [B, H, T, d] that only they see."""
        own_states = hidden_states.gather(1, places[..., None].expand(-1, -1, hidden_states.shape[-1]))  # [B, G, D]
        own_rotation = None if rotation is None else tuple(part[places][:, None] for part in rotation)  # [B, 1, G, d]
        query = rotate(split_heads(self.global_q_proj(own_states), self.d_k), own_rotation)
        key = rotate(split_heads(self.global_k_proj(hidden_states), self.d_k), rotation)
        return query, key, split_heads(self.global_v_proj(hidden_states), self.d_v)


def global_tokens(
    embeddings: torch.Tensor, padding_mask: torch.Tensor | None, global_attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """Which tokens are global [B, T]: those of `global_attention_mask`, or the first token of each row."""
    shape = embeddings.shape[:2]
    if padding_mask is not None and padding_mask.shape != shape:
        raise ValueError(
            f"An attention mask of the shape {list(padding_mask.shape)} does not fit attention_pattern='longformer': "
            "give a padding mask [batch, tokens]."
        )
    if global_attention_mask is None:
        tokens = torch.ones(shape, device=embeddings.device) if padding_mask is None else padding_mask
        return tokens.ne(0) & (tokens.ne(0).cumsum(1) == 1)
    if global_attention_mask.shape != shape:
        raise ValueError(
            f"global_attention_mask has the shape {list(global_attention_mask.shape)}, but the source has "
            f"{list(shape)}: give one number for each token."
        )
    is_global = global_attention_mask.bool()
    return is_global if padding_mask is None else is_global & padding_mask.bool()


def _with_global(blocks: Blocks, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Keys or values [B, H, T, d] as blocks that begin with those of the global tokens [B * N, H, G + K, d]."""
    index = places[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
    of_global = states.gather(2, index).repeat_interleave(blocks.number, dim=0)  # [B * N, H, G, d]
    return torch.cat([of_global, blocks.keys(states)], dim=2)


def _map(
    weights: torch.Tensor,
    global_weights: torch.Tensor | None,
    mask: LongformerMask,
    where: tuple[torch.Tensor, torch.Tensor],
    globals_of_rows: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """One map [B, H, T, T]: a band, the columns of the global keys and the rows of the global queries."""
    width = mask.places.shape[1]
    full = mask.blocks.band(weights[..., width:])
    to_global = mask.blocks.join(weights[..., :width].transpose(1, 2)).transpose(1, 2)  # [B, H, T, G]
    full = full.scatter_add(-1, mask.places[:, None, None, :].expand_as(to_global), to_global)
    if global_weights is None:
        return full
    rows, columns = globals_of_rows
    return full.transpose(1, 2).index_put(where, global_weights.transpose(1, 2)[rows, columns]).transpose(1, 2)
