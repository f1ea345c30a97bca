"""Guided alignment (Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models"): beside
translating, one attention head learns which source tokens a token is the translation of.

The links come from a statistical aligner (`word_links.py`). With A the attention of the first head of a decoder layer
to the source, and G the links, whose rows sum to 1, the loss is

    cross-entropy + weight * sum over target tokens t and source tokens s of -G[t, s] log A[t, s]

divided by the number of target tokens. Row t of A belongs to the token that is written at t.

Shapes: B sentences, H heads, T target tokens, S source tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.models.modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerDecoder,
    split_heads,
)


MODEL_TYPE = "vanilla_transformer"
SCORES = ("scaled_dot", "dot")  # those without weights of all heads: one head can be scored alone


@dataclass(frozen=True)
class GuidedAlignment:
    """Adds the loss of the links to another objective.

    Args:
        objective: Computes the loss of the translation, such as a `CriterionObjective`.
        layer: The decoder layer whose first head learns the links.
        weight: How much the links count; the paper's is 0.05.
    """

    objective: Callable[..., torch.Tensor]
    layer: int
    weight: float

    def __call__(
        self, model: PreTrainedModel, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        inputs = dict(inputs)
        links = inputs.pop("links", None)  # [B, T, S]
        if links is None:
            raise ValueError("The batches have no links: add them to the pairs with with_links of word_links.py.")
        (decoder,) = (module for module in model.modules() if isinstance(module, VanillaTransformerDecoder))
        with first_head(decoder.layers[self.layer].encoder_attn, inputs.get("attention_mask")) as recorded:
            loss = self.objective(model, inputs, num_items_in_batch)
        (log_weights,) = recorded
        number = (inputs["labels"] != IGNORED_LABEL).sum() if num_items_in_batch is None else num_items_in_batch
        return loss - self.weight * (links * log_weights).sum() / number


@contextmanager
def first_head(
    attention: VanillaTransformerAttention, source_mask: torch.Tensor | None
) -> Iterator[list[torch.Tensor]]:
    """Records the logarithm of the first head's weights [B, T, S] in each pass, whatever computes the attention.

    Args:
        attention: The attention to the source of a layer.
        source_mask: 1 for tokens and 0 for padding [B, S]; `None` for no padding.
    """
    recorded: list[torch.Tensor] = []

    def record(module: VanillaTransformerAttention, args: Any, output: Any) -> None:
        states, _, encoder_hidden_states = args
        query = split_heads(module.q_proj(states), module.d_k)[:, :1]
        key = split_heads(module.key_layer(encoder_hidden_states), module.d_k)[:, :1]
        scores = module.score(query, key)[:, 0].float()  # [B, T, S]
        if source_mask is not None:  # a finite number: what is not linked counts 0 times
            scores = scores.masked_fill(source_mask[:, None] == 0, torch.finfo(torch.float32).min)
        recorded.append(scores.log_softmax(-1))

    handle = attention.register_forward_hook(record)
    try:
        yield recorded
    finally:
        handle.remove()


def require_guidable(config: PreTrainedConfig) -> None:
    """Refuses models without a head that can learn links."""
    if config.model_type != MODEL_TYPE:
        raise ValueError(f"guided_alignment is for model_type {MODEL_TYPE}, not {config.model_type}: leave it out.")
    if config.score_function not in SCORES:
        raise ValueError(
            f"guided_alignment does not work with score_function={config.score_function!r}, which scores all heads "
            f"together: set it to {' or '.join(SCORES)}."
        )
