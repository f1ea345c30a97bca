"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), from top to bottom as in its Figure 1.

Section numbers are the paper's. What can vary is a choice of `variants`, and has a module of its own.

Shapes: B batch, S source tokens, T target tokens (in code that serves both stacks: its tokens), H heads, D d_model,
d_k and d_v width of one head's keys and values, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .devices import Dropout, without_cpu_autocast
from .embeddings_and_head import (
    ExampleInputs,
    TokenEmbedding,
    TranslationHead,
    init_embedding,
    require_source_as_target,
)
from .full_attention import full_attention_mask, full_mask, require_implementation, with_global_tokens
from .label_smoothing import CROSS_ENTROPY, IGNORED_LABEL, LabelSmoothedCrossEntropy
from .positions import PositionEncoding, rotate


class VanillaTransformerEmbedding(TokenEmbedding):
    """Token embeddings multiplied by sqrt(d_model) (section 3.4)."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, scale: float):
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        self.scale = scale

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return super().forward(input_ids) * self.scale  # [B, T, D]


def shift_right(labels: torch.Tensor, start_token_id: int, pad_token_id: int) -> torch.Tensor:
    """Labels [B, T] behind the start token, without the last of them: "outputs (shifted right)" in Figure 1."""
    shifted = nn.functional.pad(labels[:, :-1], (1, 0), value=start_token_id)
    return shifted.masked_fill(shifted == IGNORED_LABEL, pad_token_id)


class ScaledDotProduct(nn.Module):
    """How well a query fits a key: q k^T / sqrt(d_k) (section 3.2.1). Other scores are subclasses.

    If the components of q and k have unit variance, q k^T has variance d_k. Without the scale the softmax saturates
    for wide heads, and its gradient vanishes. `attn_implementations` lists those that compute it, `None` for all.
    """

    attn_implementations: tuple[str, ...] | None = None

    def __init__(self, config: VanillaTransformerConfig, num_heads: int, d_k: int):
        super().__init__()
        self.scaling = d_k**-0.5

    def reset_parameters(self) -> None:
        """Initialises the parameters, with the functions of `transformers.initialization`."""

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return torch.matmul(query, key.transpose(-2, -1)) * self.scaling  # [..., H, T, S]


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention(Q, K, V) = softmax(score(Q, K)) V (section 3.2.1); the mask adds -inf to the scores of hidden keys."""
    scores = module.score(query, key)  # [B, H, T, S], `scaling` included
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value)  # [B, H, T, d_v]
    return output.transpose(1, 2).contiguous(), weights  # [B, T, H, d_v]


def _join(*layers: nn.Linear | None) -> None:
    """Notes how wide the one matrix is that the authors' code has in place of these, for the initial weights."""
    joined = [layer for layer in layers if layer is not None]  # keys may share the queries' layer
    for layer in joined:
        layer.joined_features = sum(layer.out_features for layer in joined)


class VanillaTransformerAttention(nn.Module):
    """Multi-head attention (section 3.2.2), for its three uses (section 3.2.3).

    Variants are subclasses that override `attend` and, if their masks are not full attention's, the methods that make
    them. `attn_implementations` lists the library's implementations that can compute a variant, `None` for all.
    `takes_any_mask` says that `attend` computes full attention under whatever mask it is given: beam search needs that
    to keep several hypotheses in one row of the batch. `key_projection` is the one that a variant needs, if any.

    Args:
        config: The model's configuration.
        num_heads: Heads of this stack.
        layer_idx: Index of this layer's keys and values in the cache.
        is_causal: Whether a token sees only itself and those before it: the decoder's self-attention.
    """

    attn_implementations: tuple[str, ...] | None = None
    takes_any_mask = True
    key_projection: str | None = None

    def __init__(self, config: VanillaTransformerConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.d_k = config.d_k or config.d_model // num_heads
        self.d_v = config.d_v or config.d_model // num_heads
        self.score = config.variant("score_function")(config, num_heads, self.d_k)
        self.q_proj = nn.Linear(config.d_model, num_heads * self.d_k)
        shares_projection = (self.key_projection or config.key_projection) == "shared"
        self.k_proj = None if shares_projection else nn.Linear(config.d_model, num_heads * self.d_k)
        self.v_proj = nn.Linear(config.d_model, num_heads * self.d_v)
        self.out_proj = nn.Linear(num_heads * self.d_v, config.d_model)
        _join(self.q_proj, self.k_proj, self.v_proj)

    @property
    def key_layer(self) -> nn.Module:
        """The layer that projects keys: the queries' if they share it."""
        return self.q_proj if self.k_proj is None else self.k_proj

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        encoder_hidden_states: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        rotation: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queries come from `hidden_states` [B, T, D]; keys and values from there too, or from the encoder."""
        query = rotate(split_heads(self.q_proj(hidden_states), self.d_k), rotation)  # [B, H, T, d_k]
        key, value = self._keys_and_values(hidden_states, encoder_hidden_states, past_key_values, rotation)
        output, weights = self.attend(query, key, value, attention_mask, **kwargs)
        return self.out_proj(output.flatten(2)), weights  # [B, T, H, d_v] -> [B, T, D]

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the output [B, T, H, d_v] and, if the implementation gives them, the weights [B, H, T, S]."""
        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.config.attention_dropout if self.training else 0.0
        options = {"scaling": self.score.scaling, "dropout": dropout, **kwargs}
        return without_cpu_autocast(attention_interface)(self, query, key, value, attention_mask, **options)

    def _keys_and_values(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [B, H, S, d_k] and values [B, H, S, d_v], appended to the cache or read from it."""
        is_cross_attention = encoder_hidden_states is not None
        if is_cross_attention and past_key_values is not None and past_key_values.is_updated.get(self.layer_idx):
            # The source does not change while its translation grows: its keys and values are computed once.
            layer = past_key_values.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values

        states = encoder_hidden_states if is_cross_attention else hidden_states
        key = rotate(split_heads(self.key_layer(states), self.d_k), rotation)
        value = split_heads(self.v_proj(states), self.d_v)
        if past_key_values is None:
            return key, value
        if is_cross_attention:
            past_key_values.is_updated[self.layer_idx] = True
            return past_key_values.cross_attention_cache.update(key, value, self.layer_idx)
        return past_key_values.self_attention_cache.update(key, value, self.layer_idx)

    # --- what a stack asks of its attention, once for all layers ---

    @classmethod
    def make_mask(cls, *args: Any, **kwargs: Any) -> Any:
        """Makes the mask that `attend` is given. The arguments are those of `full_attention_mask`."""
        return full_attention_mask(*args, **kwargs)

    @classmethod
    def position_arguments(
        cls,
        encoding: PositionEncoding,
        query_positions: torch.Tensor,
        key_positions: torch.Tensor | None,
        attention_mask: Any,
    ) -> dict[str, Any]:
        """Asks the position encoding what self-attention needs under a mask, as keyword arguments for it."""
        return encoding.for_attention(query_positions, key_positions)


def split_heads(states: torch.Tensor, width: int) -> torch.Tensor:
    """[B, T, H * width] -> [B, H, T, width]. H is inferred: with tensor parallelism a rank has only some heads."""
    return states.unflatten(-1, (-1, width)).transpose(1, 2)


class VanillaTransformerFeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at each position (section 3.3)."""

    def __init__(self, config: VanillaTransformerConfig, ffn_dim: int):
        super().__init__()
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.activation = ACT2FN[config.activation_function]
        self.dropout = Dropout(config.activation_dropout)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.dropout(self.activation(self.fc1(hidden_states))))


class VanillaTransformerPostNorm(nn.Module):
    """Residual, dropout and layer normalisation around a sub-layer: LayerNorm(x + Dropout(Sublayer(x))), "Add & Norm"
    in Figure 1 (sections 3.1 and 5.4).

    The sub-layer is passed as a function. The hooks of `device_map` would move a module to the device of this one.
    `needs_last_norm` says that the output of the last layer is not normalised yet.
    """

    needs_last_norm = False

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden_states: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return self.norm(hidden_states + self.dropout(sublayer(hidden_states)))


class VanillaTransformerPreNorm(VanillaTransformerPostNorm):
    """x + Dropout(Sublayer(LayerNorm(x))): not the paper's order, but one that trains deep stacks without warm-up
    (Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture")."""

    needs_last_norm = True

    def forward(self, hidden_states: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return hidden_states + self.dropout(sublayer(self.norm(hidden_states)))


class VanillaTransformerEncoderLayer(GradientCheckpointingLayer):
    """Self-attention, then feed-forward (section 3.1, left half of Figure 1)."""

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int):
        super().__init__()
        attention, residual = config.variant("attention_pattern"), config.variant("norm_placement")
        self.self_attn = attention(config, config.encoder_attention_heads, layer_idx)
        self.self_attn_residual = residual(config)
        self.feed_forward = VanillaTransformerFeedForward(config, config.encoder_ffn_dim)
        self.feed_forward_residual = residual(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_arguments: dict[str, Any],
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        hidden_states = self.self_attn_residual(
            hidden_states,
            lambda states: self.self_attn(states, attention_mask=attention_mask, **position_arguments, **kwargs)[0],
        )
        return self.feed_forward_residual(hidden_states, lambda states: self.feed_forward(states))


class VanillaTransformerDecoderLayer(GradientCheckpointingLayer):
    """Masked self-attention, attention to the encoder, feed-forward (section 3.1, right half of Figure 1)."""

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int):
        super().__init__()
        attention, residual = config.decoder_variant("attention_pattern"), config.decoder_variant("norm_placement")
        self.self_attn = attention(config, config.decoder_attention_heads, layer_idx, config.decoder_is_causal)
        self.self_attn_residual = residual(config)
        self.encoder_attn = VanillaTransformerAttention(config, config.decoder_attention_heads, layer_idx)
        _join(self.encoder_attn.q_proj)  # the queries come from the target
        _join(self.encoder_attn.k_proj, self.encoder_attn.v_proj)
        self.encoder_attn_residual = residual(config)
        self.feed_forward = VanillaTransformerFeedForward(config, config.decoder_ffn_dim)
        self.feed_forward_residual = residual(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_arguments: dict[str, Any],
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        hidden_states = self.self_attn_residual(
            hidden_states,
            lambda states: self.self_attn(
                states, attention_mask=attention_mask, past_key_values=past_key_values, **position_arguments, **kwargs
            )[0],
        )
        hidden_states = self.encoder_attn_residual(
            hidden_states,
            lambda states: self.encoder_attn(
                states, encoder_attention_mask, encoder_hidden_states, past_key_values=past_key_values, **kwargs
            )[0],
        )
        return self.feed_forward_residual(hidden_states, lambda states: self.feed_forward(states))


@auto_docstring
class VanillaTransformerPreTrainedModel(ExampleInputs, PreTrainedModel):
    config: VanillaTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["VanillaTransformerEncoderLayer", "VanillaTransformerDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def _init_weights(self, module: nn.Module) -> None:
        """The authors' initialisation, which the paper leaves out: tensor2tensor draws matrices uniformly with unit
        scale over the mean of fan-in and fan-out (Glorot and Bengio 2010), queries, keys and values as one matrix, and
        embeddings from N(0, 1/d_model), so that they have unit variance once scaled."""
        if isinstance(module, nn.Embedding) or module is self.get_output_embeddings():
            init_embedding(module, std=self.config.d_model**-0.5)
        elif isinstance(module, nn.Linear):
            gain = self.config.initializer_gain
            if self.config.initializer == "authors" and hasattr(module, "joined_features"):
                width, height = module.out_features, module.in_features
                gain *= math.sqrt((width + height) / (module.joined_features + height))
            init.xavier_uniform_(module.weight, gain=gain)
            init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, ScaledDotProduct | PositionEncoding):
            module.reset_parameters()

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Refuses implementations that can't compute the config's score, positions or pattern."""
        requested_attention = require_implementation(self.config, requested_attention)
        return super().get_correct_attn_implementation(requested_attention, is_init_check)


class VanillaTransformerStack(VanillaTransformerPreTrainedModel):
    """What encoder and decoder share: embeddings and positions below the layers, the last norm above them."""

    def __init__(
        self,
        config: VanillaTransformerConfig,
        vocab_size: int,
        num_heads: int,
        layers: list[nn.Module],
        is_causal: bool = False,
    ):
        super().__init__(config)
        scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = VanillaTransformerEmbedding(vocab_size, config.d_model, config.pad_token_id, scale)
        self.embed_positions = config.variant("position_encoding")(config, num_heads, is_causal)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layers)
        self.self_attention: type[VanillaTransformerAttention] = type(layers[0].self_attn)
        self.residual: type[VanillaTransformerPostNorm] = type(layers[0].self_attn_residual)
        needs_norm = self.residual.needs_last_norm
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps) if needs_norm else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    def init_parallel_plans(self) -> None:
        """Leaves the plans to the whole model, which names the modules of both stacks."""

    def enter(self, states: torch.Tensor, positions: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """Dropout(embedding + position): what enters the first layer (sections 3.5 and 5.4). A search has the
        added vectors already."""
        if added is not None:
            return self.dropout(states + added)
        return self.dropout(self.embed_positions.encode(states, positions))


def run_in_turn(layers: nn.ModuleList, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Runs layers one after the other, each on the output of the one before it."""
    for layer in layers:
        hidden_states = layer(hidden_states, *args, **kwargs)
    return hidden_states


class VanillaTransformerEncoder(VanillaTransformerStack):
    """The left half of Figure 1: a stack of N encoder layers."""

    _can_record_outputs = {
        "hidden_states": VanillaTransformerEncoderLayer,
        "attentions": VanillaTransformerAttention,
    }

    def __init__(self, config: VanillaTransformerConfig):
        layers = [VanillaTransformerEncoderLayer(config, layer_idx) for layer_idx in range(config.encoder_layers)]
        super().__init__(config, config.vocab_size, config.encoder_attention_heads, layers)

    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        global_attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        r"""
        global_attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`, *optional*):
            1 for tokens that attend to all tokens and that all tokens attend to, for `attention_pattern="longformer"`.
            By default the first token.
        """
        embeddings = self.embed_tokens.or_given(input_ids, inputs_embeds)
        positions = self.embed_positions.number(embeddings)
        visible = {"is_causal": False, **with_global_tokens(self.config, global_attention_mask)}
        attention_mask = self.self_attention.make_mask(self.config, embeddings, attention_mask, **visible)
        position_arguments = self.self_attention.position_arguments(
            self.embed_positions, positions, positions, attention_mask
        )
        hidden_states = self.enter(embeddings, positions)
        run = getattr(self.residual, "run_encoder", run_in_turn)  # reversible residuals run them in their way
        hidden_states = run(self.layers, hidden_states, attention_mask, position_arguments, **kwargs)
        return BaseModelOutput(last_hidden_state=self.norm(hidden_states))


class VanillaTransformerDecoder(VanillaTransformerStack):
    """The right half of Figure 1: a stack of N decoder layers."""

    _can_record_outputs = {
        "hidden_states": VanillaTransformerDecoderLayer,
        "attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig):
        layers = [VanillaTransformerDecoderLayer(config, layer_idx) for layer_idx in range(config.decoder_layers)]
        super().__init__(
            config, config.output_vocab_size, config.decoder_attention_heads, layers, config.decoder_is_causal
        )

    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.FloatTensor | None = None,
        encoder_attention_mask: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        if encoder_hidden_states is None:
            raise ValueError("The decoder attends to the source: pass encoder_hidden_states.")
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        past_self_attention = None if past_key_values is None else past_key_values.self_attention_cache

        embeddings = self.embed_tokens.or_given(input_ids, inputs_embeds)
        visible = {"is_causal": self.config.decoder_is_causal, "past_key_values": past_self_attention}
        attention_mask = self.self_attention.make_mask(self.config, embeddings, attention_mask, **visible)
        encoder_attention_mask = full_mask(self.config, embeddings, encoder_attention_mask, encoder_hidden_states)
        positions = self.embed_positions.number(embeddings, past_length)
        source = (encoder_hidden_states, encoder_attention_mask)
        hidden_states = self.run(embeddings, positions, attention_mask, *source, past_key_values, **kwargs)
        return BaseModelOutputWithPastAndCrossAttentions(hidden_states, past_key_values)

    def run(
        self,
        embeddings: torch.Tensor,
        positions: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
        key_positions: torch.Tensor | None = None,
        position_vectors: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Runs the layers on tokens [B, T, D] at any `positions`, [T] or [1]: `forward` and beam search do this.

        `key_positions` are those of all keys, in the cache too, by default 0, 1, 2 ...; `position_vectors` is what the
        encoding adds, [T, D] or [1, D], if that is known already. Returns the states below the output projection.
        """
        if key_positions is None and self.embed_positions.acts_on == "scores":
            length = embeddings.shape[1]
            if past_key_values is not None:  # a static cache has all its keys from the start
                length, _ = past_key_values.self_attention_cache.get_mask_sizes(length, 0)
            key_positions = torch.arange(length, device=embeddings.device)
        hidden_states = self.enter(embeddings, positions, position_vectors)
        position_arguments = self.self_attention.position_arguments(
            self.embed_positions, positions, key_positions, attention_mask
        )
        arguments = (attention_mask, position_arguments, encoder_hidden_states)
        # By name: checkpointing and `device_map` look for the cache there.
        kwargs |= {"encoder_attention_mask": encoder_attention_mask, "past_key_values": past_key_values}
        hidden_states = run_in_turn(self.layers, hidden_states, *arguments, **kwargs)
        return self.norm(hidden_states)


@auto_docstring(custom_intro="The Transformer of Figure 1 without its output projection.")
class VanillaTransformerModel(VanillaTransformerPreTrainedModel):
    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.encoder = VanillaTransformerEncoder(config)
        self.decoder = VanillaTransformerDecoder(config)
        self._tied_weights_keys = (
            {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"} if config.shares_embeddings else None
        )
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        if self.config.target_vocab_size is None:
            self.decoder._resize_token_embeddings(*args, **kwargs)
        return self.encoder._resize_token_embeddings(*args, **kwargs)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.LongTensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        global_attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        r"""
        decoder_input_ids (`torch.LongTensor` of shape `(batch_size, target_length)`, *optional*):
            What the decoder reads. By default the source shifted right, if both sides share a vocabulary.
        global_attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`, *optional*):
            The global tokens of the source, for `attention_pattern="longformer"`.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            require_source_as_target(self.config, input_ids)  # as in BART
            decoder_input_ids = shift_right(input_ids, *self.config.start_and_padding)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds, global_attention_mask, **kwargs)
        encoded: BaseModelOutput = encoder_outputs
        if not isinstance(encoder_outputs, BaseModelOutput):
            encoded = BaseModelOutput(*encoder_outputs)

        decoder_outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            encoded.last_hidden_state,
            attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


@auto_docstring(custom_intro="The whole of Figure 1: the Transformer with its output projection, for translation.")
class VanillaTransformerForConditionalGeneration(TranslationHead, VanillaTransformerPreTrainedModel, GenerationMixin):
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.model = VanillaTransformerModel(config)
        self.lm_head = nn.Linear(config.d_model, config.output_vocab_size, bias=config.output_bias)
        source = "encoder" if config.shares_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{source}.embed_tokens.weight"}
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """The decoder's input in training: the labels shifted right."""
        return shift_right(labels, *self.config.start_and_padding)

    @property
    def longest_sequence(self) -> int | None:
        """The longest source or target in tokens that the position encoding can number; `None` for no limit."""
        return self.model.decoder.embed_positions.max_length

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.LongTensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        criterion: LabelSmoothedCrossEntropy = CROSS_ENTROPY,
        skip_logits: bool | None = None,
        global_attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        r"""
        global_attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`, *optional*):
            The global tokens of the source, for `attention_pattern="longformer"`.
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`, *optional*):
            The translation, `</s>` included, with -100 for padding. The decoder's input is the labels shifted right.
            The loss is the criterion's mean per token or, if `num_items_in_batch` is given, the sum divided by that.
        criterion (`LabelSmoothedCrossEntropy`, *optional*, defaults to plain cross-entropy):
            The loss of the labels.
        skip_logits (`bool`, *optional*):
            Whether to compute the loss without ever holding all logits. This is faster and takes a fraction of the
            memory; the output then has no logits. The default is yes while training with labels.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)

        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            global_attention_mask=global_attention_mask,
            **kwargs,
        )
        logits, loss = self.logits_and_loss(
            outputs.last_hidden_state, labels, criterion, skip_logits, logits_to_keep, **kwargs
        )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


__all__ = [
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
]
