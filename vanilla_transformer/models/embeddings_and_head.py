"""What the translation models of this package share: token embeddings below the stacks; labels, logits, loss and
lengths above them.

Shapes: B batch, T target tokens, D width of the states below the output layer, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers import initialization as init
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_utils import slice_logits_to_keep
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .beam_search import search
from .label_smoothing import IGNORED_LABEL, LabelSmoothedCrossEntropy
from .search_options import (
    SEARCH,
    BeamSearchOptions,
    SearchOptions,
    library_names,
    names_own_search,
    require_supported,
    stored_options,
)


class TokenEmbedding(nn.Embedding):
    """`nn.Embedding` that names an id outside the vocabulary."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        try:
            return super().forward(input_ids)  # [B, T, D]
        except IndexError as error:
            # Only the CPU raises this. A GPU stops with an assertion of its own: checking first would cost a
            # synchronisation at every step.
            raise outside_vocabulary(input_ids, self.weight.shape[0]) from error

    def or_given(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Token embeddings [B, T, D], computed or given."""
        if (input_ids is None) == (inputs_embeds is None):
            given = "both" if input_ids is not None else "neither"
            raise ValueError(f"Pass either token ids or embeddings to encoder and decoder: got {given}.")
        return self(input_ids) if inputs_embeds is None else inputs_embeds


def init_embedding(layer: Any, std: float) -> None:
    """Draws token embeddings or an output layer from N(0, std^2), with zeros for padding and biases."""
    init.normal_(layer.weight, mean=0.0, std=std)
    # A slice does not carry the mark of a loaded weight, which `init` looks for: ask for it here.
    is_loaded = getattr(layer.weight, "_is_hf_initialized", False)
    if getattr(layer, "padding_idx", None) is not None and not is_loaded:
        init.zeros_(layer.weight[layer.padding_idx])
    if getattr(layer, "bias", None) is not None:
        init.zeros_(layer.bias)


class ExampleInputs:
    """Mixin for models: inputs on which they can be tried."""

    device: torch.device

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        input_ids = torch.tensor([[5, 6, 7, 2], [5, 6, 2, 0]], device=self.device)
        return {"input_ids": input_ids, "attention_mask": input_ids.ne(0), "decoder_input_ids": input_ids}


class TranslationHead:
    """Mixin for models with an encoder, a decoder and an output layer `lm_head`, whose config is a
    `SharedConfiguration`.

    A class lists it before `GenerationMixin`, whose steps it changes. `search` is the decoding loop of the model
    and `search_options` its options: `Translator` always uses them, and `generate` where the generation config names
    them, by way of `_beam_search` and `_sample`. `is_autoregressive` says that the logits at a position are those of
    the next token. `longest_sequence` is the longest source or target in tokens, `None` for no limit.
    """

    # Attributes of the model class.
    config: Any
    generation_config: GenerationConfig
    lm_head: Any
    training: bool
    tp_size: int | None
    get_encoder: Callable[[], PreTrainedModel]
    get_decoder: Callable[[], PreTrainedModel]
    _get_resized_lm_head: Callable[..., nn.Linear]
    tie_weights: Callable[[], None]

    search = staticmethod(search)
    search_options: ClassVar[type[SearchOptions]] = BeamSearchOptions
    is_autoregressive = True

    @property
    def longest_sequence(self) -> int | None:
        return None

    # --- `generate` ---

    def _extract_generation_mode_kwargs(
        self, custom_generate: Any, kwargs: dict[str, Any], synced_gpus: bool | None, *args: Any
    ) -> dict[str, Any]:
        """Refuses arguments that the library would silently keep from a function in `custom_generate`."""
        modes = super()._extract_generation_mode_kwargs(None, dict(kwargs), synced_gpus, *args)  # type: ignore[misc]
        if callable(custom_generate):
            _require_own_pace(modes["synced_gpus"])
            for name in ("assistant_model", "streamer"):
                if name in modes:
                    raise ValueError(f"{name} does nothing beside custom_generate: leave out one of them.")
        return super()._extract_generation_mode_kwargs(custom_generate, kwargs, synced_gpus, *args)  # type: ignore[misc]

    def _prepare_generation_config(
        self, generation_config: GenerationConfig | None, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """Takes the name and the options of a search too, from the call or from the generation config."""
        names = (SEARCH, *(option.name for option in fields(self.search_options)))
        given = {name: kwargs.pop(name) for name in names if name in kwargs and name not in library_names()}
        config, model_kwargs = super()._prepare_generation_config(generation_config, **kwargs)  # type: ignore[misc]
        for name, value in given.items():
            setattr(config, name, value)
        names_own = names_own_search(self, config)
        if not names_own and getattr(self.generation_config, SEARCH, None):
            # The stored penalty is meant for the stored search, and is dropped with it.
            penalties = (kwargs.get("length_penalty"), getattr(generation_config, "length_penalty", None), 1.0)
            config.length_penalty = next(value for value in penalties if value is not None)
        if self.is_autoregressive and names_own:
            require_supported(config, kwargs, sample=bool(config.do_sample))
            # What nobody has set has the search's default and not the library's, as in `Translator`.
            asked = (kwargs, vars(generation_config or GenerationConfig()), vars(self.generation_config))
            for option in fields(self.search_options):
                if all(values.get(option.name) is None for values in (given, *asked)):
                    setattr(config, option.name, option.default)
        return config, model_kwargs

    def _prepare_generated_length(
        self,
        generation_config: GenerationConfig,
        has_default_max_length: bool,
        *args: Any,
        inputs_tensor: torch.Tensor,
        input_ids_length: int,
        **kwargs: Any,
    ) -> GenerationConfig:
        """If `generate` is given no length: the longest source plus 50 tokens (section 6.1). The library's default of
        20 tokens would cut off most translations. The length that a saved model stores is an upper bound."""
        stored = self.generation_config.max_length
        names_search = any(getattr(config, SEARCH, None) for config in (generation_config, self.generation_config))
        is_bound = names_search and generation_config.max_length == stored
        if generation_config.max_new_tokens is None and (has_default_max_length or is_bound):
            options = SearchOptions(**stored_options(generation_config, SearchOptions))
            length = options.max_length(inputs_tensor.shape[1], input_ids_length, self.longest_sequence)
            generation_config.max_new_tokens = (min(length, stored) if is_bound else length) - input_ids_length
        return super()._prepare_generated_length(  # type: ignore[misc]
            generation_config,
            has_default_max_length or is_bound,  # a stored bound is no second limit to warn of
            *args,
            inputs_tensor=inputs_tensor,
            input_ids_length=input_ids_length,
            **kwargs,
        )

    def _beam_search(
        self,
        input_ids: torch.LongTensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """The search that the generation config names, or else the library's beam search."""
        parts = (input_ids, logits_processor, stopping_criteria, generation_config)
        if model_kwargs.get("assistant_model") is not None:
            raise ValueError(
                f"assistant_model with num_beams={generation_config.num_beams}: drafts are for greedy search and "
                "sampling. Set num_beams=1, or leave out assistant_model."
            )
        if not names_own_search(self, generation_config):
            return super()._beam_search(*parts, synced_gpus=synced_gpus, **model_kwargs)  # type: ignore[misc]
        if generation_config.do_sample:
            raise ValueError(
                f"do_sample=True with num_beams={generation_config.num_beams}: the search of this model's generation "
                "config does not sample. Set num_beams=1 to sample, or search=None for the library's beam sampling."
            )
        _require_own_pace(synced_gpus)
        return self.search(self, *parts, **model_kwargs)

    def _sample(
        self,
        input_ids: torch.LongTensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """The library's sampling, and its greedy search unless the generation config names this model's search.

        The two greedy searches find the same tokens. What only the library's can do, it does: streaming, attention
        weights of each step, and drafts for assisted decoding.
        """
        parts = (input_ids, logits_processor, stopping_criteria, generation_config)
        traces = generation_config.output_attentions or generation_config.output_hidden_states
        needs_library = streamer is not None or traces or getattr(generation_config, "is_assistant", False)
        is_searched = not generation_config.do_sample and not needs_library
        if is_searched and names_own_search(self, generation_config):
            _require_own_pace(synced_gpus)
            return self.search(self, *parts, **model_kwargs)
        return super()._sample(*parts, synced_gpus=synced_gpus, streamer=streamer, **model_kwargs)  # type: ignore[misc]

    def _reorder_cache(self, past_key_values: EncoderDecoderCache, beam_idx: torch.Tensor) -> EncoderDecoderCache:
        """For `generate` with beams. The beams of a sentence share its source, so only the target's part changes."""
        past_key_values.self_attention_cache.reorder_cache(beam_idx)
        return past_key_values

    # --- labels and vocabularies ---

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """[`~PreTrainedModel.resize_token_embeddings`] for the target side of a model with two vocabularies."""
        if self.config.target_vocab_size is None:
            raise ValueError("Source and target share one vocabulary: call resize_token_embeddings instead.")
        decoder = self.get_decoder()
        embeddings = decoder._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.config.target_vocab_size = embeddings.weight.shape[0]
        self.lm_head = self._get_resized_lm_head(
            self.lm_head, self.config.target_vocab_size, mean_resizing=mean_resizing
        )
        self.tie_weights()
        return embeddings

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        if self.config.target_vocab_size is not None:
            return self.get_encoder()._resize_token_embeddings(*args, **kwargs)
        self.get_decoder()._resize_token_embeddings(*args, **kwargs)
        return super()._resize_token_embeddings(*args, **kwargs)  # type: ignore[misc]  # source embedding, lm_head

    def logits_and_loss(
        self,
        states: torch.Tensor,
        labels: torch.Tensor | None,
        criterion: LabelSmoothedCrossEntropy,
        skip_logits: bool | None,
        logits_to_keep: int | torch.Tensor,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Logits [B, T, V] of the decoder's states [B, T, D], unless they are skipped, and the loss of the labels."""
        states = slice_logits_to_keep(states, logits_to_keep)
        if labels is not None:
            labels = slice_logits_to_keep(labels.unsqueeze(-1), logits_to_keep).squeeze(-1)
        if skip_logits is None:
            skip_logits = self.training and labels is not None and self._holds_whole_output_layer()
        logits = None if skip_logits else self.lm_head(states)
        return logits, None if labels is None else self._loss(criterion, states, logits, labels, **kwargs)

    def _holds_whole_output_layer(self) -> bool:
        """Whether the output matrix can be used without its module. Not if processes share it, nor if an adapter or a
        hook changes the output."""
        layer = self.lm_head
        sharded = self.tp_size is not None or isinstance(layer.weight, DTensor)
        plain = type(layer) is nn.Linear and not (layer._forward_hooks or layer._forward_pre_hooks)
        return plain and not sharded

    def _loss(
        self,
        criterion: LabelSmoothedCrossEntropy,
        states: torch.Tensor,
        logits: torch.Tensor | None,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        try:
            if logits is None:
                return criterion.of_states(states, self.lm_head.weight, labels, num_items_in_batch, self.lm_head.bias)
            return criterion.of_logits(logits, labels, num_items_in_batch)
        except (IndexError, RuntimeError) as error:
            if "out of bounds" not in str(error):
                raise
            raise outside_vocabulary(labels[labels != IGNORED_LABEL], self.lm_head.weight.shape[0]) from error


def _require_own_pace(synced_gpus: bool) -> None:
    if synced_gpus:
        raise ValueError(
            "synced_gpus=True: under FSDP and ZeRO 3 all processes must take equally many steps, and this search "
            "does not wait for others. Use the library's search: search=None, without custom_generate."
        )


def require_source_as_target(config: Any, input_ids: torch.Tensor | None) -> None:
    """Refuses to let the decoder read the source, for a call without decoder input."""
    if config.target_vocab_size is not None:
        reason = f"target_vocab_size={config.target_vocab_size} makes a vocabulary that the source is not in"
    elif not config.decoder_is_causal:
        reason = f"the decoder of a {config.model_type} model reads a translation with masked tokens"
    elif input_ids is None:
        reason = "there are no input_ids to take their place"
    else:
        return
    raise ValueError(
        f"Pass decoder_input_ids: {reason}. For states of the source alone, load the folder with "
        "AutoModelForTextEncoding."
    )


def outside_vocabulary(token_ids: torch.Tensor, vocab_size: int) -> ValueError:
    worst = token_ids[(token_ids < 0) | (token_ids >= vocab_size)][0].item()
    hint = "-100 marks padding in labels only" if worst == IGNORED_LABEL else "do tokenizer and model belong together?"
    return ValueError(
        f"Token id {worst} is outside the vocabulary of {vocab_size} (ids 0 to {vocab_size - 1}): {hint}"
    )
