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
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple, is_torchdynamo_compiling
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention_scores import AttentionScore
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .cpu_dropout import Dropout
from .embeddings_and_head import TokenEmbedding, TranslationHead, decoder_input_of
from .full_attention import eager_attention_forward, full_attention_mask, full_mask, without_cpu_autocast
from .label_smoothing import CROSS_ENTROPY, LabelSmoothedCrossEntropy
from .positions import PositionEncoding, rotate
from .variants import PATTERNS, POSITIONS, RESIDUALS, SCORES, VARIANTS


class VanillaTransformerEmbedding(TokenEmbedding):
    """Token embeddings multiplied by sqrt(d_model) (section 3.4)."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, scale: float):
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        self.scale = scale

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return super().forward(input_ids) * self.scale  # [B, T, D]


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
        self.score = SCORES[config.score_function].load()(config, num_heads, self.d_k)
        self.q_proj = nn.Linear(config.d_model, num_heads * self.d_k)
        make_key_projection = KEY_PROJECTIONS[self.key_projection or config.key_projection]
        self.k_proj = make_key_projection(config.d_model, num_heads * self.d_k)
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
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the output [B, T, H, d_v] and, if the implementation gives them, the weights [B, H, T, S]."""
        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        return without_cpu_autocast(attention_interface)(
            self,
            query,
            key,
            value,
            attention_mask,
            scaling=self.score.scaling,
            dropout=self.config.attention_dropout if self.training else 0.0,
            **kwargs,
        )

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
    def make_mask(
        cls,
        config: VanillaTransformerConfig,
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        *,
        is_causal: bool,
        past_key_values: Cache | None = None,
    ) -> Any:
        """Makes the mask that `attend` is given. The arguments are those of `full_attention_mask`."""
        return full_attention_mask(
            config, embeddings, padding_mask, is_causal=is_causal, past_key_values=past_key_values
        )

    @classmethod
    def make_encoder_mask(
        cls,
        config: VanillaTransformerConfig,
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        global_attention_mask: torch.Tensor | None = None,
    ) -> Any:
        """Makes the encoder's mask. A variant with global tokens overrides this; others refuse them.

        Args:
            config: The model's configuration.
            embeddings: What enters the layers [B, T, D].
            padding_mask: 1 for tokens and 0 for padding [B, T]; `None` for no padding.
            global_attention_mask: 1 for tokens that attend to all tokens and that all tokens attend to [B, T].
        """
        if global_attention_mask is not None:
            raise ValueError(
                f"attention_pattern={config.attention_pattern!r} has no global tokens: leave out "
                "global_attention_mask, or make the model with attention_pattern='longformer'."
            )
        return cls.make_mask(config, embeddings, padding_mask, is_causal=False)

    @classmethod
    def position_arguments(
        cls,
        encoding: PositionEncoding,
        query_positions: torch.Tensor,
        key_positions: torch.Tensor | None,
        attention_mask: Any,
    ) -> dict[str, Any]:
        """Asks the position encoding what self-attention needs, as keyword arguments for it.

        Args:
            encoding: The stack's position encoding.
            query_positions: Positions of the queries [T].
            key_positions: Positions of all keys [S].
            attention_mask: From `make_mask`.
        """
        return encoding.for_attention(query_positions, key_positions)


# Keys have a projection of their own, or that of the queries.
KEY_PROJECTIONS: dict[str, Callable[[int, int], nn.Linear | None]] = {
    "separate": nn.Linear,
    "shared": lambda in_features, out_features: None,
}


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

    @staticmethod
    def run_encoder(
        layers: nn.ModuleList,
        hidden_states: torch.Tensor,
        attention_mask: Any,
        position_arguments: dict[str, Any],
        **kwargs: Any,
    ) -> torch.Tensor:
        """Runs encoder layers one after the other, each on the output of the one before it."""
        for layer in layers:
            hidden_states = layer(hidden_states, attention_mask, position_arguments, **kwargs)
        return hidden_states


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
        residual = RESIDUALS[config.norm_placement].load()
        attention = PATTERNS[config.attention_pattern].load()
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
        residual = RESIDUALS[config.in_decoder("norm_placement")].load()
        attention = PATTERNS[config.in_decoder("attention_pattern")].load()
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
                states,
                attention_mask=encoder_attention_mask,
                encoder_hidden_states=encoder_hidden_states,
                past_key_values=past_key_values,
                **kwargs,
            )[0],
        )
        return self.feed_forward_residual(hidden_states, lambda states: self.feed_forward(states))


@auto_docstring
class VanillaTransformerPreTrainedModel(PreTrainedModel):
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
            init.normal_(module.weight, mean=0.0, std=self.config.d_model**-0.5)
            # A slice does not carry the mark of a loaded weight, which `init` looks for: ask for it here.
            is_loaded = getattr(module.weight, "_is_hf_initialized", False)
            if getattr(module, "padding_idx", None) is not None and not is_loaded:
                init.zeros_(module.weight[module.padding_idx])
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)
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
        elif isinstance(module, AttentionScore | PositionEncoding):
            module.reset_parameters()

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Refuses implementations that can't compute the config's score, positions or pattern."""
        for field, registry in VARIANTS.items():
            value = getattr(self.config, field)
            supported = getattr(registry[value].load(), "attn_implementations", None)
            if supported is not None and requested_attention is None and "sdpa" not in supported:
                requested_attention = supported[0]
            if supported is not None and requested_attention not in (None, *supported):
                raise ValueError(
                    f"attn_implementation={requested_attention!r} can't compute {field}={value!r}: use "
                    f"{' or '.join(map(repr, supported))}."
                )
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        input_ids = torch.tensor([[5, 6, 7, 2], [5, 6, 2, 0]], device=self.device)
        return {"input_ids": input_ids, "attention_mask": input_ids.ne(0), "decoder_input_ids": input_ids}


class VanillaTransformerStack(VanillaTransformerPreTrainedModel):
    """What encoder and decoder share: embeddings and positions below the layers, the last norm above them.

    Args:
        config: The model's configuration.
        vocab_size: Tokens of this side's vocabulary.
        num_heads: Attention heads of this side.
        layers: This side's layers.
        is_causal: Whether a token sees only itself and those before it.
    """

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
        self.embed_positions = POSITIONS[config.position_encoding].load()(config, num_heads, is_causal)
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

    def embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Token embeddings [B, T, D] (section 3.4), computed or given."""
        if (input_ids is None) == (inputs_embeds is None):
            given = "both" if input_ids is not None else "neither"
            raise ValueError(f"Pass either token ids or embeddings to {type(self).__name__}: got {given}.")
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def number(self, embeddings: torch.Tensor, offset: int | torch.Tensor = 0) -> torch.Tensor:
        """Positions [T] of the tokens, the first of which is at `offset`."""
        length, limit = embeddings.shape[1], self.embed_positions.max_length
        if limit is not None and not is_torchdynamo_compiling() and int(offset) + length > limit:
            raise ValueError(
                f"A sequence of {int(offset) + length} tokens is longer than the {limit} positions of the model: "
                "shorten it (truncation in the tokenizer, max_length in generate) or train with a larger "
                "max_position_embeddings."
            )
        return torch.arange(length, device=embeddings.device) + offset

    def enter(
        self, embeddings: torch.Tensor, positions: torch.Tensor, vectors: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Dropout(embedding + position): what enters the first layer (sections 3.5 and 5.4). A search has computed the
        vectors of the positions before."""
        if vectors is not None:
            return self.dropout(embeddings + vectors)
        return self.dropout(self.embed_positions.encode(embeddings, positions))


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
        embeddings = self.embed(input_ids, inputs_embeds)
        positions = self.number(embeddings)
        attention_mask = self.self_attention.make_encoder_mask(
            self.config, embeddings, attention_mask, global_attention_mask
        )
        position_arguments = self.self_attention.position_arguments(
            self.embed_positions, positions, positions, attention_mask
        )
        hidden_states = self.enter(embeddings, positions)
        hidden_states = self.residual.run_encoder(
            self.layers, hidden_states, attention_mask, position_arguments, **kwargs
        )
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

        embeddings = self.embed(input_ids, inputs_embeds)
        attention_mask = self.self_attention.make_mask(
            self.config,
            embeddings,
            attention_mask,
            is_causal=self.config.decoder_is_causal,
            past_key_values=past_self_attention,
        )
        encoder_attention_mask = full_mask(self.config, embeddings, encoder_attention_mask, encoder_hidden_states)
        positions = self.number(embeddings, past_length)
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
        """Runs the layers on tokens that may be anywhere: `forward` and the beam search both decode with this.

        Args:
            embeddings: Token embeddings [B, T, D].
            positions: Positions of the tokens, [T] or [1].
            attention_mask: Mask of self-attention, as the attention implementation takes it.
            encoder_hidden_states: The encoder's output [B, S, D].
            encoder_attention_mask: Mask of the attention to it.
            past_key_values: Keys and values of earlier tokens; those of these tokens are appended.
            key_positions: Positions of all keys, those in the cache included. By default 0, 1, 2 ...
            position_vectors: What the encoding adds at the positions, [T, D] or [1, D], if that is known already.

        Returns:
            The states [B, T, D] below the output projection.
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
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask,
                position_arguments,
                encoder_hidden_states,
                encoder_attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                **kwargs,
            )
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

    def source_shifted_right(self, input_ids: torch.Tensor | None) -> torch.Tensor:
        """What the decoder reads if it is given nothing, as in BART: the source behind the start token."""
        config = self.config
        if config.target_vocab_size is not None:
            reason = f"target_vocab_size={config.target_vocab_size} makes a vocabulary that the source is not in"
        elif not config.decoder_is_causal:
            reason = f"the decoder of a {config.model_type} model reads a translation with masked tokens"
        elif input_ids is None:
            reason = "there are no input_ids to take their place"
        else:
            return decoder_input_of(input_ids, config)
        raise ValueError(
            f"Pass decoder_input_ids: {reason}. For states of the source alone, load the folder with "
            "AutoModelForTextEncoding."
        )

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
            decoder_input_ids = self.source_shifted_right(input_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds, global_attention_mask, **kwargs)
        encoded: BaseModelOutput = encoder_outputs
        if not isinstance(encoder_outputs, BaseModelOutput):
            encoded = BaseModelOutput(*encoder_outputs)

        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
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


@auto_docstring(custom_intro="The left half of Figure 1 alone: contextual features of each token of a text.")
class VanillaTransformerEncoderModel(VanillaTransformerPreTrainedModel):
    # Weights have the names of the whole model, so that its folder can be loaded, decoder left out.
    _keys_to_ignore_on_load_unexpected = [r"decoder\.", r"lm_head\.", r"length_predictor\."]

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.encoder = VanillaTransformerEncoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value

    def init_parallel_plans(self) -> None:
        """Leaves out the plans, which name the modules of both stacks."""

    @can_return_tuple
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
            The global tokens of the text, for `attention_pattern="longformer"`.
        """
        return self.encoder(input_ids, attention_mask, inputs_embeds, global_attention_mask, **kwargs)


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

    @property
    def longest_sequence(self) -> int | None:
        """The longest source or target in tokens that the position encoding can number; `None` for no limit."""
        return self.model.decoder.embed_positions.max_length

    def _reorder_cache(self, past_key_values: EncoderDecoderCache, beam_idx: torch.Tensor) -> EncoderDecoderCache:
        """For `generate` with beams. The beams of a sentence share its source, so only the target's part changes."""
        past_key_values.self_attention_cache.reorder_cache(beam_idx)
        return past_key_values

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

        Example:

        ```python
        >>> from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

        >>> config = VanillaTransformerConfig.from_preset("tiny", vocab_size=100)
        >>> model = VanillaTransformerForConditionalGeneration(config)
        >>> model(**model.dummy_inputs).logits.shape
        torch.Size([2, 4, 100])
        ```"""
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)

        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
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
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
]
