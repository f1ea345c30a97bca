"""The recurrent encoder-decoder before the Transformer: with one fixed context, and with Bahdanau's attention.

"RNNsearch" is the model of Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and
Translate" (https://arxiv.org/abs/1409.0473); its names and equations (appendix A.2) are in the comments below. With
`attention="none"` it is the encoder-decoder of Cho et al. 2014 (https://arxiv.org/abs/1406.1078).

Two things differ from the paper. The gated units are `nn.GRU`'s, whose reset gate acts after the matrix product and
not before it, so that the encoder runs in one fused call. The read-out sees the new state s_i, as in the paper's
equation 4, and not s_{i-1}, as in its appendix.

Only what depends on the last state is in a loop over time: inputs, keys, read-out and logits of all steps are computed
at once.

Shapes: B batch, S source tokens, T target tokens, E embedding_size, N hidden_size, A attention_size, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions, Seq2SeqLMOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple

from .configuration_rnn_search import RnnSearchConfig
from .devices import Dropout
from .embeddings_and_head import ExampleInputs, TokenEmbedding, TranslationHead
from .label_smoothing import CROSS_ENTROPY, IGNORED_LABEL, LabelSmoothedCrossEntropy


# --- what decoding remembers ---


class RecurrentState(DynamicLayer):
    """The decoder's last state [B, N], which takes the place of keys and values of all earlier tokens."""

    is_croppable = False
    cumulative_length = 0  # tokens read so far

    def update(self, state: torch.Tensor, tokens: int) -> None:
        """Replaces the state by the one after so many more tokens."""
        self.dtype, self.device, self.is_initialized = state.dtype, state.device, True
        self.keys, self.values = state, state[:, :0]  # there are no values; the library selects rows of both
        self.cumulative_length += tokens

    def get_seq_length(self) -> int:
        return self.cumulative_length

    def crop(self, tokens_to_remove: int) -> None:
        raise ValueError("A recurrent state can't go back: leave out options that guess tokens ahead (assisted ...).")


class RnnSearchCache(EncoderDecoderCache):
    """The decoder's state, and what it prepared of the source: the keys and values of the attention to it."""

    def __init__(self) -> None:
        super().__init__(DynamicCache(), DynamicCache())
        self.self_attention_cache.layers.append(RecurrentState())

    @property
    def state(self) -> torch.Tensor | None:
        return self.self_attention_cache.layers[0].keys

    @property
    def source(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        layers = self.cross_attention_cache.layers
        if not layers or not layers[0].is_initialized:
            return None
        return layers[0].keys.squeeze(1), layers[0].values.squeeze(1)

    def read_source(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.cross_attention_cache.update(keys[:, None], values[:, None], layer_idx=0)  # [B, 1, S, ...]

    def read_tokens(self, state: torch.Tensor, tokens: int) -> None:
        self.self_attention_cache.layers[0].update(state, tokens)


# --- what the decoder sees of the source ---


class AdditiveAttention(nn.Module):
    """A new context at each step: c_i = sum_j alpha_ij h_j with alpha_i = softmax_j(v tanh(W_a s_{i-1} + U_a h_j))."""

    def __init__(self, config: RnnSearchConfig):
        super().__init__()
        self.query_proj = nn.Linear(config.hidden_size, config.attention_size, bias=False)  # W_a
        self.key_proj = nn.Linear(2 * config.hidden_size, config.attention_size)  # U_a, the same at all steps
        self.weight = nn.Parameter(torch.zeros(config.attention_size))  # v

    def prepare(self, states: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [B, S, A] and values [B, S, 2N] of the encoder's states."""
        return self.key_proj(states), states

    def attend(
        self, state: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The context [B, 2N] of a state [B, N], and its weights [B, S]."""
        scores = (keys + self.query_proj(state)[:, None]).tanh_() @ self.weight  # [B, S]
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
        return torch.bmm(weights[:, None], values).squeeze(1), weights

    def run(
        self,
        rnn: nn.GRU,
        embeddings: torch.Tensor,
        state: torch.Tensor,
        source: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """States [B, T, N], contexts [B, T, 2N] and weights [B, T, S] of all steps, from the state before them."""
        of_embedding, of_context = rnn.weight_ih_l0.split([embeddings.shape[-1], source[1].shape[-1]], dim=1)
        inputs = F.linear(embeddings, of_embedding, rnn.bias_ih_l0)  # [B, T, 3N]
        hidden = None if mask is None else mask == 0
        states, contexts, weights = [], [], []
        for step in inputs.unbind(1):
            context, step_weights = self.attend(state, *source, hidden)
            gates = F.linear(context, of_context) + step
            state = gru_step(gates, F.linear(state, rnn.weight_hh_l0, rnn.bias_hh_l0), state)
            states.append(state)
            contexts.append(context)
            weights.append(step_weights)
        return torch.stack(states, dim=1), torch.stack(contexts, dim=1), torch.stack(weights, dim=1)


def gru_step(of_input: torch.Tensor, of_state: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """One step of `nn.GRU`: the new state [B, N] from the products of input and state with their weights [B, 3N]."""
    width = state.shape[-1]
    reset, update = (of_input[:, : 2 * width] + of_state[:, : 2 * width]).sigmoid_().chunk(2, dim=-1)
    proposal = torch.addcmul(of_input[:, 2 * width :], reset, of_state[:, 2 * width :]).tanh_()
    return torch.lerp(proposal, state, update)  # (1 - z) * proposal + z * state


class FixedContext(nn.Module):
    """One context for all steps: the encoder's last state of each direction. Nothing here needs a loop."""

    def __init__(self, config: RnnSearchConfig):
        super().__init__()

    def prepare(self, states: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The context [B, 1, 2N], in place of keys and values."""
        width = states.shape[-1] // 2
        rows = torch.arange(len(states), device=states.device)
        forward = states[rows, -1 if mask is None else mask.long().sum(1) - 1, :width]
        context = torch.cat([forward, states[:, 0, width:]], dim=-1)[:, None]
        return context, context

    def run(
        self,
        rnn: nn.GRU,
        embeddings: torch.Tensor,
        state: torch.Tensor,
        source: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """States [B, T, N] and contexts [B, T, 2N] of all steps, from the state before them; there are no weights."""
        contexts = source[1].expand(-1, embeddings.shape[1], -1)
        states, _ = rnn(torch.cat([embeddings, contexts], dim=-1), state[None].contiguous())
        return states, contexts, None


CONTEXTS: dict[str, type[AdditiveAttention] | type[FixedContext]] = {
    "additive": AdditiveAttention,
    "none": FixedContext,
}


# --- the read-out ---


class Readout(nn.Module):
    """t_i = U_o s_i + V_o E y_{i-1} + C_o c_i, the layer below the output layer."""

    units = 1  # linear units for each output

    def __init__(self, config: RnnSearchConfig):
        super().__init__()
        self.proj = nn.Linear(3 * config.hidden_size + config.embedding_size, self.units * config.readout_size)

    def forward(self, states: torch.Tensor, embeddings: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
        return self.proj(torch.cat([states, embeddings, contexts], dim=-1))


class MaxoutReadout(Readout):
    """The larger of two linear units (Goodfellow et al. 2013).

    Unit j is paired with unit j + l. The paper pairs neighbours, but the order of the units is arbitrary.
    """

    units = 2

    def forward(self, states: torch.Tensor, embeddings: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
        return torch.maximum(*super().forward(states, embeddings, contexts).chunk(2, dim=-1))


READOUTS = {"maxout": MaxoutReadout, "linear": Readout}


# --- the stacks ---


@auto_docstring
class RnnSearchPreTrainedModel(ExampleInputs, PreTrainedModel):
    config: RnnSearchConfig
    base_model_prefix = "model"
    _no_split_modules = ["RnnSearchEncoder", "RnnSearchDecoder"]
    _skip_keys_device_placement = ["past_key_values"]

    def _init_weights(self, module: nn.Module) -> None:
        """Orthogonal recurrent matrices, zero biases and v = 0, as in the paper. It draws its other matrices from
        N(0, 0.01^2). Here their scale follows their widths (Glorot and Bengio 2010), because models may be small."""
        if isinstance(module, nn.Embedding) or module is self.get_output_embeddings():
            init.normal_(module.weight, mean=0.0, std=self.config.embedding_size**-0.5)
            if getattr(module, "bias", None) is not None:
                init.zeros_(module.bias)
        elif isinstance(module, AdditiveAttention):
            init.zeros_(module.weight)
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.GRU):
            _init_gru(module)

    def embed(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Token embeddings [B, T, E], computed or given, after dropout."""
        return self.dropout(self.embed_tokens.or_given(input_ids, inputs_embeds))


def _init_gru(module: nn.GRU) -> None:
    for name, parameter in module.named_parameters():
        if "bias" in name:
            init.zeros_(parameter)
            continue
        draw = init.orthogonal_ if "weight_hh" in name else init.xavier_uniform_
        gates = [draw(torch.empty_like(gate)) for gate in parameter.detach().chunk(3)]  # one matrix for each gate
        init.copy_(parameter, torch.cat(gates))


class RnnSearchEncoder(RnnSearchPreTrainedModel):
    """A bidirectional GRU: h_j is what was read up to token j from the left, and what was read from the right."""

    def __init__(self, config: RnnSearchConfig):
        super().__init__(config)
        self.embed_tokens = TokenEmbedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        self.rnn = nn.GRU(config.embedding_size, config.hidden_size, batch_first=True, bidirectional=True)
        self.dropout = Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        embeddings = self.embed(input_ids, inputs_embeds)
        _require_right_padding(attention_mask, "attention_mask")
        if attention_mask is None or attention_mask.all():
            states, _ = self.rnn(embeddings)  # [B, S, 2N]
        else:
            lengths = attention_mask.sum(1).cpu()
            packed = pack_padded_sequence(embeddings, lengths, batch_first=True, enforce_sorted=False)
            length = embeddings.shape[1]
            states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=length)
        states = self.dropout(states)
        hidden_states = (
            (embeddings, states) if _is_wanted(self, "output_hidden_states", output_hidden_states) else None
        )
        return BaseModelOutput(last_hidden_state=states, hidden_states=hidden_states)


class RnnSearchDecoder(RnnSearchPreTrainedModel):
    """A GRU that reads the last token and a context of the source: s_i = f(s_{i-1}, y_{i-1}, c_i)."""

    def __init__(self, config: RnnSearchConfig):
        super().__init__(config)
        self.embed_tokens = TokenEmbedding(config.output_vocab_size, config.embedding_size, config.pad_token_id)
        self.initial_state = nn.Linear(config.hidden_size, config.hidden_size)  # W_s
        self.context = CONTEXTS[config.attention](config)
        self.rnn = nn.GRU(config.embedding_size + 2 * config.hidden_size, config.hidden_size, batch_first=True)
        self.readout = READOUTS[config.readout](config)
        self.dropout = Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.FloatTensor | None = None,
        encoder_attention_mask: torch.LongTensor | None = None,
        past_key_values: RnnSearchCache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        if encoder_hidden_states is None:
            raise ValueError("The decoder needs the source: pass encoder_hidden_states.")
        _require_right_padding(attention_mask, "decoder_attention_mask")
        _require_cache(past_key_values)
        if past_key_values is None and _is_wanted(self, "use_cache", use_cache):
            past_key_values = RnnSearchCache()

        embeddings = self.embed(input_ids, inputs_embeds)  # [B, T, E]
        state, source = self._begin(encoder_hidden_states, encoder_attention_mask, past_key_values)
        states, contexts, weights = self.context.run(self.rnn, embeddings, state, source, encoder_attention_mask)
        if past_key_values is not None:
            past_key_values.read_tokens(states[:, -1], states.shape[1])
        if not _is_wanted(self, "output_attentions", output_attentions):
            weights = None
        wants_states = _is_wanted(self, "output_hidden_states", output_hidden_states)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.dropout(self.readout(states, embeddings, contexts)),
            past_key_values=past_key_values,
            hidden_states=(embeddings, states) if wants_states else None,
            cross_attentions=None if weights is None else (weights[:, None],),  # one layer with one head
        )

    def _begin(
        self, encoder_states: torch.Tensor, mask: torch.Tensor | None, cache: RnnSearchCache | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """The state [B, N] before the first token, and what the context needs of the source: from the cache, or
        s_0 = tanh(W_s h_1) with the backward state h_1, which has read the whole source."""
        if cache is not None and cache.source is not None:
            return cache.state, cache.source
        source = self.context.prepare(encoder_states, mask)
        if cache is not None:
            cache.read_source(*source)
        return torch.tanh(self.initial_state(encoder_states[:, 0, self.config.hidden_size :])), source


def _require_right_padding(mask: torch.Tensor | None, name: str) -> None:
    if mask is None:
        return
    if not mask[:, 0].all():
        row = int(mask[:, 0].logical_not().nonzero()[0])
        raise ValueError(f"{name} hides the first token of row {row}: a recurrent model needs padding on the right.")
    if (mask[:, 1:] > mask[:, :-1]).any():
        raise ValueError(f"{name} hides tokens between others: a recurrent model needs padding on the right.")


def _require_cache(cache: Cache | None) -> None:
    if cache is not None and not isinstance(cache, RnnSearchCache):
        raise ValueError(
            f"past_key_values is a {type(cache).__name__}: a recurrent model has a state and no keys and values of "
            "tokens. Pass an RnnSearchCache, or leave it out."
        )


def _is_wanted(model: PreTrainedModel, name: str, given: bool | None) -> bool:
    return bool(getattr(model.config, name) if given is None else given)


# --- the model ---


@auto_docstring(custom_intro="The recurrent encoder-decoder with its output layer, for translation.")
class RnnSearchForConditionalGeneration(TranslationHead, RnnSearchPreTrainedModel, GenerationMixin):
    def __init__(self, config: RnnSearchConfig):
        super().__init__(config)
        self.encoder = RnnSearchEncoder(config)
        self.decoder = RnnSearchDecoder(config)
        self.lm_head = nn.Linear(config.readout_size, config.output_vocab_size, bias=config.output_bias)
        source = "encoder" if config.shares_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"{source}.embed_tokens.weight"}
        if config.shares_embeddings:
            self._tied_weights_keys["decoder.embed_tokens.weight"] = "encoder.embed_tokens.weight"
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Makes the cache that holds a state; the library would make one of keys and values."""
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r} is for keys and values, which a "
                "recurrent model does not have: leave it out."
            )
        if generation_config.use_cache and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = RnnSearchCache()

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """The decoder's input: y_{i-1} at the step that predicts y_i."""
        start, padding = self.config.start_and_padding
        previous = F.pad(labels[:, :-1], (1, 0), value=start)
        return previous.masked_fill(previous == IGNORED_LABEL, padding)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.LongTensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: RnnSearchCache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        criterion: LabelSmoothedCrossEntropy = CROSS_ENTROPY,
        skip_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        r"""
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`, *optional*):
            The translation, `</s>` included, with -100 for padding. The decoder's input is the labels shifted right.
            The loss is the criterion's mean per token or, if `num_items_in_batch` is given, the sum divided by that.
        criterion (`LabelSmoothedCrossEntropy`, *optional*, defaults to plain cross-entropy):
            The loss of the labels.
        skip_logits (`bool`, *optional*):
            Whether to compute the loss without ever holding all logits. The default is yes while training with labels.

        Example:

        ```python
        >>> from vanilla_transformer import RnnSearchConfig, RnnSearchForConditionalGeneration

        >>> model = RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=100, attention="none"))
        >>> model(**model.dummy_inputs).logits.shape
        torch.Size([2, 4, 100])
        ```"""
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds, **kwargs)
        encoded: BaseModelOutput = encoder_outputs
        if not isinstance(encoder_outputs, BaseModelOutput):
            encoded = BaseModelOutput(*encoder_outputs)
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits, loss = self.logits_and_loss(
            outputs.last_hidden_state, labels, criterion, skip_logits, logits_to_keep, **kwargs
        )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
        )


__all__ = ["RnnSearchCache", "RnnSearchForConditionalGeneration", "RnnSearchPreTrainedModel"]
