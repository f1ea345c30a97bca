"""The decoder's step for beam search, and its pass for mask-predict, on a CPU: what `VanillaTransformerDecoder.run`
computes, without its generality.

A step is many small products. So their operands are laid out for them beforehand:

- The weights of linear layers are transposed, those of queries, keys and values joined. Where the CPU has AVX-512,
  large ones have oneDNN's order, with which products on an AMD CPU take half the time. This is done once for each
  model, at its first search. Later searches check that the weights are still the same.
- Keys of the source are transposed. Keys and values of the target have room to grow, and so has their mask.
- The logits of all steps are written to the same memory, where oneDNN does not make them.

A decoder with anything that this module does not know runs layer by layer: an adapter, a hook, a variant of the
architecture, another type of weights, a GPU.

Shapes: B sentences, K beams, N = B * K hypotheses, T target keys (those of the prefix, then K at each step), S source
tokens, H heads, D d_model, d width of a head, V vocabulary. In a pass over all tokens of a target, K is the number of
its tokens, and so is T.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import is_torchdynamo_compiling

from vanilla_transformer.models import modeling_vanilla_transformer as modeling
from vanilla_transformer.models.attention_scores import DotProduct
from vanilla_transformer.models.decoder_steps import RowPerSentence, with_room
from vanilla_transformer.models.devices import Dropout
from vanilla_transformer.models.full_attention import additive
from vanilla_transformer.models.search_options import SearchOptions


# The modules whose computation is repeated here. Subclasses are not among them: they may compute something else.
KNOWN = (
    *(modeling.VanillaTransformerDecoder, modeling.VanillaTransformerDecoderLayer),
    *(modeling.VanillaTransformerAttention, modeling.VanillaTransformerFeedForward),
    *(modeling.VanillaTransformerPostNorm, modeling.VanillaTransformerPreNorm),
    *(modeling.VanillaTransformerEmbedding, Dropout, modeling.ScaledDotProduct, DotProduct),
    *(nn.Linear, nn.LayerNorm, nn.ModuleList, nn.Identity),
)


def make_stepper(model: PreTrainedModel, beams: int, model_kwargs: dict[str, Any]) -> "PackedSteps | None":
    """Returns a stepper with packed layers, or `None` for a decoder that must run layer by layer.

    Args:
        model: The model.
        beams: Number of beams.
        model_kwargs: What `generate` prepared for the model.
    """
    fits = RowPerSentence.fits(model, model_kwargs) and can_be_packed(model)
    return PackedSteps(model, beams, model_kwargs) if fits else None


def make_passes(
    model: PreTrainedModel, states: torch.Tensor, source_mask: torch.Tensor | None, is_token: torch.Tensor
) -> "PackedPasses | None":
    """Returns the decoder as a function of all tokens, or `None` for a decoder that must run layer by layer.

    Args:
        model: A model whose decoder sees all positions.
        states: The encoder's output [B, S, D].
        source_mask: 1 for tokens of the source and 0 for padding [B, S]; `None` for no padding.
        is_token: Which positions of the targets have a token [B, T].
    """
    fits = model.config._attn_implementation in ("eager", "sdpa") and can_be_packed(model)
    return PackedPasses(model, states, source_mask, is_token) if fits else None


def can_be_packed(model: PreTrainedModel) -> bool:
    """Whether all modules of the decoder do what their classes say, in float32 on the CPU."""
    decoder = model.get_decoder()
    if is_torchdynamo_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    # Positions and activations are called, so any class will do.
    called = {decoder.embed_positions, *(layer.feed_forward.activation for layer in decoder.layers)}
    repeated = [module for module in (*decoder.modules(), model.lm_head) if module not in called]
    return (
        all(type(module) in KNOWN and _is_plain(module) for module in repeated)
        and decoder.embed_positions.acts_on in ("nothing", "embeddings")
        and all(layer.self_attn.d_k == layer.self_attn.d_v for layer in decoder.layers)
    )


def _is_plain(module: nn.Module) -> bool:
    """Whether a module is in evaluation mode, has no hooks, and has ordinary weights."""
    is_changed = module.training or module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    weights = [weight for weight in module._parameters.values() if weight is not None]
    return not is_changed and all(
        type(weight) is nn.Parameter and weight.device.type == "cpu" and weight.dtype == torch.float32
        for weight in weights
    )


# --- weights ---

LEAST_FOR_ONEDNN = 2**15  # weights; the products of smaller layers take less time than the call


class PackedLinear:
    """Linear layers of the same input as one product. All of them have biases, or there is only one.

    `weight` has the weights [in, out], in the order in which a product reads them, or as oneDNN keeps them.

    Args:
        layers: The layers.
    """

    def __init__(self, *layers: nn.Linear):
        self.weight = _ordered(torch.cat([layer.weight.detach() for layer in layers]))
        self.bias = None if layers[0].bias is None else torch.cat([layer.bias.detach() for layer in layers])

    def __call__(self, states: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the output [N, out], in the memory `out` where torch can write to it."""
        if self.weight.is_mkldnn:
            # oneDNN keeps memory for each number of rows that it has seen. So there are few numbers.
            rows = len(states)
            if more := _rounded(rows) - rows:
                states = F.pad(states, (0, 0, 0, more))
            return torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")[:rows]
        if self.bias is None:
            return torch.mm(states, self.weight, out=out)
        return torch.addmm(self.bias, states, self.weight, out=out)

    def add_to(self, residual: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Adds the output [N, out] to the residual, in place."""
        if self.weight.is_mkldnn:
            return residual.add_(self(states))
        return residual.add_(self.bias).addmm_(states, self.weight)


def _ordered(weight: torch.Tensor) -> torch.Tensor:
    """Returns weights [out, in] in the order of the faster product.

    oneDNN's order is private to torch. `vanilla benchmark decode` measures its gain, and a test calls both operators.
    """
    has_avx512 = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    if has_avx512 and weight.numel() >= LEAST_FOR_ONEDNN:
        return torch.ops.mkldnn._reorder_linear_weight(weight)
    return weight.t().contiguous()


def _rounded(rows: int) -> int:
    """Returns the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 and so on."""
    step = max(1 << (rows.bit_length() - 2), 1) if rows > 1 else 1
    return -(-rows // step) * step


class PackedDecoder:
    """The layers of a decoder, and the output layer above them, packed once for each model.

    Args:
        model: The model.
    """

    def __init__(self, model: PreTrainedModel):
        decoder = model.get_decoder()
        self.layers = [PackedLayer(layer, decoder.residual.needs_last_norm) for layer in decoder.layers]
        self.output = PackedLinear(model.lm_head)
        self.modules, self.answers = _fingerprint(model)

    @classmethod
    def of(cls, model: PreTrainedModel) -> "PackedDecoder":
        """Returns the packed decoder of a model. It is packed anew if the model has changed since."""
        packed, (modules, answers) = _PACKED.get(model), _fingerprint(model)
        if packed is None or packed.modules != modules or not torch.equal(packed.answers, answers):
            packed = _PACKED[model] = cls(model)
        return packed


_PACKED: "WeakKeyDictionary[PreTrainedModel, PackedDecoder]" = WeakKeyDictionary()


@torch.no_grad()
def _fingerprint(model: PreTrainedModel) -> tuple[list[nn.Module], torch.Tensor]:
    """The modules, and the answers of the linear ones to a fixed random input.

    Weights can change without a trace on their tensors: `weight.data += delta` leaves none.
    """
    modules = [*model.get_decoder().modules(), model.lm_head]
    linears = [module for module in modules if isinstance(module, nn.Linear)]
    return modules, torch.cat([linear(_probe(linear.in_features)) for linear in linears])


@lru_cache
def _probe(width: int) -> torch.Tensor:
    return torch.rand(width, generator=torch.Generator().manual_seed(0))


class PackedLayer:
    """A decoder layer whose linear layers are packed.

    Args:
        layer: The layer.
        is_pre_norm: Whether its norms come before the sub-layers.
    """

    def __init__(self, layer: nn.Module, is_pre_norm: bool):
        own, source, feed_forward = layer.self_attn, layer.encoder_attn, layer.feed_forward
        self.heads, self.is_pre_norm = own.q_proj.out_features // own.d_k, is_pre_norm
        self.scaling: float = own.score.scaling
        self.query_key_value = PackedLinear(own.q_proj, own.key_layer, own.v_proj)
        self.source_query = PackedLinear(source.q_proj)
        self.fc1 = PackedLinear(feed_forward.fc1)
        self.activation: Callable[[torch.Tensor], torch.Tensor] = feed_forward.activation
        # The last product of each sub-layer, and the norm of its residual.
        self.last_products = [PackedLinear(last) for last in (own.out_proj, source.out_proj, feed_forward.fc2)]
        residuals = (layer.self_attn_residual, layer.encoder_attn_residual, layer.feed_forward_residual)
        self.norms: list[nn.LayerNorm] = [residual.norm for residual in residuals]

    def __call__(self, states: torch.Tensor, memory: "SourceMemory", masks: "Masks | PassMasks") -> torch.Tensor:
        """Maps the states [N, D] of the newest tokens to those of the next layer. The given states are overwritten."""
        sublayers = (self._attend, self._attend_to_source, self._feed)
        for sublayer, last, norm in zip(sublayers, self.last_products, self.norms, strict=True):
            update = sublayer(_normalise(norm, states) if self.is_pre_norm else states, memory, masks)
            states = last.add_to(states, update)
            states = states if self.is_pre_norm else _normalise(norm, states)
        return states

    def _attend(self, states: torch.Tensor, memory: "SourceMemory", masks: "Masks | PassMasks") -> torch.Tensor:
        projected = self.query_key_value(states).view(*memory.shape, 3, self.heads, -1)  # [B, K, 3, H, d]
        keys, values = memory.append(projected[:, :, 1:])
        return _attend(projected[:, :, 0], keys.transpose(1, 2), values, masks.own, self.scaling)

    def _attend_to_source(
        self, states: torch.Tensor, memory: "SourceMemory", masks: "Masks | PassMasks"
    ) -> torch.Tensor:
        query = self.source_query(states).view(*memory.shape, self.heads, -1)  # [B, K, H, d]
        return _attend(query, memory.source_keys, memory.source_values, masks.source, self.scaling)

    def _feed(self, states: torch.Tensor, memory: "SourceMemory", masks: "Masks | PassMasks") -> torch.Tensor:
        return self.activation(self.fc1(states))


def _normalise(norm: nn.LayerNorm, states: torch.Tensor) -> torch.Tensor:
    return torch.layer_norm(states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> torch.Tensor:
    """Attention of queries [B, K, H, d] to keys [B * H, d, T] and values [B * H, T, d]. Returns the heads side by side
    [N, D]."""
    sentences, beams, heads, width = query.shape
    rows = query.transpose(1, 2).reshape(-1, beams, width)  # [B * H, K, d]
    if mask is None:
        scores = torch.baddbmm(rows.new_empty(()), rows, keys, beta=0, alpha=scaling)  # adds nothing
    else:
        scores = torch.baddbmm(mask, rows, keys, alpha=scaling)
    output = torch.bmm(scores.softmax(-1), values).view(sentences, heads, beams, width)
    return output.transpose(1, 2).reshape(sentences * beams, -1)


# --- keys, values and masks ---


class SourceMemory:
    """Keys and values of the source in one layer. Those of the target are not kept.

    Args:
        shape: Number of sentences and beams.
        source: Keys and values of the source, each [B, H, S, d].
    """

    def __init__(self, shape: tuple[int, int], source: Sequence[torch.Tensor]):
        self.shape = shape
        keys, values = source
        self.source_keys = keys.transpose(2, 3).contiguous().flatten(0, 1)  # [B * H, d, S]
        self.source_values = values.contiguous().flatten(0, 1)  # [B * H, S, d]

    def append(self, new: torch.Tensor) -> torch.Tensor:
        """Takes keys and values [B, K, 2, H, d] of the newest tokens. Returns all keys and values [2, B * H, T, d]."""
        return new.permute(2, 0, 3, 1, 4).flatten(1, 2)


class LayerMemory(SourceMemory):
    """Keys and values of one layer: of the source, and of the target with room to grow.

    Args:
        shape: Number of sentences and beams.
        own: Keys and values of the prefix, each [B, H, T, d].
        source: Keys and values of the source, each [B, H, S, d].
        steps: Steps that there is room for; more of them move everything.
    """

    def __init__(
        self, shape: tuple[int, int], own: Sequence[torch.Tensor], source: Sequence[torch.Tensor], steps: int
    ):
        super().__init__(shape, source)
        self.length = own[0].shape[-2]
        self.room = with_room(torch.stack(list(own)), self.length + steps * shape[1])  # [2, B, H, room, d]

    def append(self, new: torch.Tensor) -> torch.Tensor:
        end = self.length + self.shape[1]
        if end > self.room.shape[3]:
            self.room = with_room(self.room[:, :, :, : self.length], 2 * end)
        self.room[:, :, :, self.length : end] = new.permute(2, 0, 3, 1, 4)
        self.length = end
        return self.room[:, :, :, :end].flatten(1, 2)

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences."""
        sources = (self.source_keys, self.source_values)
        heads = self.room.shape[2]
        self.source_keys, self.source_values = (
            part.unflatten(0, (-1, heads))[sentences].flatten(0, 1) for part in sources
        )
        self.room = self.room[:, sentences]
        self.shape = (len(sentences), self.shape[1])


class Masks:
    """The masks of a step, which all layers share: 0 for visible keys and a large negative number for others.

    Args:
        shape: Number of sentences and beams.
        heads: Number of heads.
        prefix_length: Keys that all beams of a sentence see.
        source: The mask of the source [B, 1, 1, S]: boolean, a number that is added to scores, or `None`.
    """

    def __init__(self, shape: tuple[int, int], heads: int, prefix_length: int, source: torch.Tensor | None):
        self.heads = heads
        self.visible = torch.zeros(*shape, prefix_length)  # [B, K, T], as a number that is added to scores
        self.own_slot = additive(torch.eye(shape[1], dtype=torch.bool), torch.float32)  # [K, K]
        self.source_mask = None if source is None else _as_numbers(source).expand(-1, -1, shape[1], -1)
        self.own: torch.Tensor | None = None
        self.source = self._for_heads(self.source_mask)

    def advance(self, origins: torch.Tensor) -> None:
        """Makes the masks of the next step, whose tokens continue the hypotheses in the slots `origins` [B, K].

        A token sees what the token before it saw, and itself.
        """
        sentences, beams = origins.shape
        if beams == 1:
            return  # one beam sees everything
        seen = self.visible[torch.arange(sentences)[:, None], origins]
        self.visible = torch.cat([seen, self.own_slot.expand(sentences, -1, -1)], dim=-1)
        self.own = self._for_heads(self.visible[:, None])

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences."""
        self.visible = self.visible[sentences]
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]
            self.source = self._for_heads(self.source_mask)

    def _for_heads(self, mask: torch.Tensor | None) -> torch.Tensor | None:
        """Repeats a mask [B, 1, K, T] for all heads: [B * H, K, T]."""
        return None if mask is None else mask.expand(-1, self.heads, -1, -1).reshape(-1, *mask.shape[2:])


class PassMasks(NamedTuple):
    """The masks of a pass over all tokens: 0 for visible keys and a large negative number for others.

    Args:
        own: For the target [B * H, T, T]; `None` if all its keys are visible.
        source: For the source [B * H, T, S]; `None` if all its keys are visible.
    """

    own: torch.Tensor | None
    source: torch.Tensor | None

    @classmethod
    def of(cls, is_token: torch.Tensor, is_source: torch.Tensor | None, heads: int) -> "PassMasks":
        """Hides the keys that are no token [B, T] and no source token [B, S]."""
        shape = (len(is_token), heads, is_token.shape[1])

        def hide(is_key: torch.Tensor | None) -> torch.Tensor | None:
            if is_key is None or bool(is_key.all()):
                return None
            return _as_numbers(is_key.bool())[:, None, None].expand(*shape, -1).flatten(0, 1)

        return cls(hide(is_token), hide(is_source))


def _as_numbers(mask: torch.Tensor) -> torch.Tensor:
    return additive(mask, torch.float32) if mask.dtype == torch.bool else mask


# --- the stepper ---


class PackedSteps(RowPerSentence):
    """Runs the prefix through the layers as they are, and the tokens after it through packed layers."""

    def __init__(self, model: PreTrainedModel, beams: int, model_kwargs: dict[str, Any]):
        super().__init__(model, beams, model_kwargs)
        packed = PackedDecoder.of(model)
        self.layers, self.output = packed.layers, packed.output
        self.logits = torch.empty(len(self.states) * beams, model.lm_head.out_features)

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        logits = super().start(prefix)
        shape, steps = (len(prefix), self.beams), SearchOptions().longest(self.states.shape[1])
        caches = zip(self.cache.self_attention_cache.layers, self.cache.cross_attention_cache.layers, strict=True)
        self.memories = [
            LayerMemory(shape, (own.keys, own.values), (source.keys, source.values), steps) for own, source in caches
        ]
        self.masks = Masks(shape, self.layers[0].heads, self.prefix_length, self.source_mask)
        return logits

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        tokens, origins = hypotheses[:, :, -1].unbind(-1)  # [B, K]
        self.masks.advance(origins)
        position = self.positions(hypotheses.shape[2] - 1)
        states = self.decoder.enter(self.decoder.embed_tokens(tokens), *position).flatten(0, 1)  # [N, D]
        for layer, memory in zip(self.layers, self.memories, strict=True):
            states = layer(states, memory, self.masks)
        logits = self.output(self.decoder.norm(states), out=self.logits[: len(states)])
        return logits.view(*tokens.shape, -1)

    def keep(self, sentences: torch.Tensor) -> None:
        for memory in self.memories:
            memory.keep(sentences)
        self.masks.keep(sentences)


# --- the passes ---


class PackedPasses:
    """Runs a decoder that sees all positions on packed layers. Keys and values of the source are computed once.

    Args:
        model: The model.
        states: The encoder's output [B, S, D].
        source_mask: 1 for tokens of the source and 0 for padding [B, S]; `None` for no padding.
        is_token: Which positions of the targets have a token [B, T].
    """

    def __init__(
        self, model: PreTrainedModel, states: torch.Tensor, source_mask: torch.Tensor | None, is_token: torch.Tensor
    ):
        self.decoder, packed = model.get_decoder(), PackedDecoder.of(model)
        self.layers, self.output = packed.layers, packed.output
        sources = [_source_keys_and_values(layer.encoder_attn, states) for layer in self.decoder.layers]
        self.memories = [SourceMemory((len(is_token), is_token.shape[1]), source) for source in sources]
        self.masks = PassMasks.of(is_token, source_mask, self.layers[0].heads)

    def __call__(self, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """The logits [N, V] of tokens [B, T] at the N places `chosen`, which count from the first row on."""
        embeddings = self.decoder.embed_tokens(tokens)
        states = self.decoder.enter(embeddings, self.decoder.embed_positions.number(embeddings)).flatten(0, 1)
        for layer, memory in zip(self.layers, self.memories, strict=True):
            states = layer(states, memory, self.masks)
        return self.output(self.decoder.norm(states)[chosen])


def _source_keys_and_values(attention: nn.Module, states: torch.Tensor) -> Sequence[torch.Tensor]:
    """Keys and values of the source, each [B, H, S, d]."""
    return [modeling.split_heads(layer(states), attention.d_k) for layer in (attention.key_layer, attention.v_proj)]
