"""The conditional masked language model of "Mask-Predict: Parallel Decoding of Conditional Masked Language Models"
(Ghazvininejad et al. 2019): the layers of the Transformer, a decoder that sees all positions, and a length predictor.

The decoder reads a translation in which some tokens are `<mask>` and predicts these. `</s>` is always visible: the
length says where it is. So a target that is all masks has as many terms in the loss as in an autoregressive model: one
for each token, and in place of `</s>` one for the length.

Shapes: B batch, S source tokens, T target tokens, D d_model, V vocabulary, M `max_length_difference`.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple

from .configuration_mask_predict import MaskPredictConfig
from .label_smoothing import CROSS_ENTROPY, IGNORED_LABEL, LabelSmoothedCrossEntropy
from .mask_predict_options import MaskPredictOptions
from .mask_predict_search import generate, search, source_lengths
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from .text_encoder import VanillaTransformerEncoderModel


@dataclass
class MaskPredictOutput(Seq2SeqLMOutput):
    """The library's output of a translation model, and the logits of the length.

    Args:
        length_logits (`torch.FloatTensor` of shape `(batch_size, 2 * max_length_difference + 1)`, *optional*):
            Logits of target length minus source length.
    """

    length_logits: torch.FloatTensor | None = None


class LengthPredictor(nn.Module):
    """The distribution of target length minus source length, both with `</s>`, from the mean of the encoder's states.

    The paper reads it from a special token of the source. The mean needs no such token, so that the encoder of an
    autoregressive model can be used as it is.
    """

    def __init__(self, config: MaskPredictConfig):
        super().__init__()
        self.max_difference = config.max_length_difference
        self.projection = nn.Linear(config.d_model, 2 * self.max_difference + 1)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Logits [B, 2M + 1] of the encoder's states [B, S, D], under a mask [B, S] of the tokens."""
        if mask is None:
            return self.projection(states.mean(1))
        weights = mask.to(states.dtype)[..., None]
        return self.projection((states * weights).sum(1) / weights.sum(1))

    def sum_of_losses(self, logits: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The cross-entropy of target lengths [B] for source lengths [B], summed. Differences beyond M count as M."""
        differences = (targets - sources).clamp(-self.max_difference, self.max_difference)
        return nn.functional.cross_entropy(logits.float(), differences + self.max_difference, reduction="sum")


@auto_docstring(custom_intro="The Transformer whose decoder sees all positions, without its output projection.")
class MaskPredictModel(VanillaTransformerModel):
    config: MaskPredictConfig


@auto_docstring(custom_intro="Its encoder alone: contextual features of each token of a text.")
class MaskPredictEncoderModel(VanillaTransformerEncoderModel):
    config: MaskPredictConfig


@auto_docstring(
    custom_intro="The conditional masked language model: predicts all masked tokens of a translation, and its length."
)
class MaskPredictForConditionalGeneration(VanillaTransformerForConditionalGeneration):
    config: MaskPredictConfig
    search = staticmethod(search)
    search_options = MaskPredictOptions
    is_autoregressive = False

    def __init__(self, config: MaskPredictConfig):
        super().__init__(config)
        self.length_predictor = LengthPredictor(config)
        # With this mark, the library would drop the options of this search from a saved generation config.
        self.generation_config._from_model_config = False
        self.post_init()

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Translates with mask-predict: see `mask_predict.search` for its options."""
        return generate(*args, model=self, **kwargs)

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} writes all tokens at once, so no search from left to right can decode it: leave "
            "out custom_generate."
        )

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """The decoder's input in the first iteration: every token is `<mask>`, except `</s>`."""
        config = self.config
        is_end, is_padding = labels == config.eos_token_id, labels == IGNORED_LABEL
        tokens = torch.full_like(labels, config.mask_token_id)
        return tokens.masked_fill(is_end, config.eos_token_id).masked_fill(is_padding, config.pad_token_id)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.LongTensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        criterion: LabelSmoothedCrossEntropy = CROSS_ENTROPY,
        skip_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskPredictOutput:
        r"""
        decoder_input_ids (`torch.LongTensor` of shape `(batch_size, target_length)`, *optional*):
            The translation, `</s>` included, with `<mask>` for the tokens to predict. The default, if there are
            labels, is that all of them are masked.
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`, *optional*):
            The translation, `</s>` included, with -100 for padding. The loss is the criterion's sum over masked tokens
            plus the cross-entropy of the length, divided by the number of labels or by `num_items_in_batch`.
        criterion (`LabelSmoothedCrossEntropy`, *optional*, defaults to plain cross-entropy):
            The loss of the masked tokens.
        skip_logits (`bool`, *optional*):
            Whether to compute the loss without ever holding all logits; the output then has no logits. The default is
            yes while training with labels.
        num_items_in_batch (`int`, *optional*):
            The number of labels in the whole update.

        Example:

        ```python
        >>> from vanilla_transformer import MaskPredictConfig, MaskPredictForConditionalGeneration

        >>> config = MaskPredictConfig.from_preset("tiny", vocab_size=100)
        >>> model = MaskPredictForConditionalGeneration(config)
        >>> output = model(**model.dummy_inputs)
        >>> output.logits.shape, output.length_logits.shape
        (torch.Size([2, 4, 100]), torch.Size([2, 129]))
        ```"""
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if decoder_attention_mask is None and decoder_input_ids is not None:
            decoder_attention_mask = decoder_input_ids.ne(self.config.pad_token_id).long()
        kwargs.pop("use_cache", None)  # nothing can be kept from one pass to the next
        if kwargs.get("past_key_values") is not None:
            raise ValueError("past_key_values are for decoding from left to right: leave them out.")
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            **kwargs,
        )
        encoded = outputs.encoder_last_hidden_state
        length_logits = self.length_predictor(encoded, attention_mask)
        masked_labels = None
        if labels is not None:
            masked_labels = labels.masked_fill(decoder_input_ids != self.config.mask_token_id, IGNORED_LABEL)
            number = (labels != IGNORED_LABEL).sum() if num_items_in_batch is None else num_items_in_batch
            kwargs["num_items_in_batch"] = number
        logits, loss = self.logits_and_loss(
            outputs.last_hidden_state, masked_labels, criterion, skip_logits, logits_to_keep=0, **kwargs
        )
        if labels is not None:
            lengths = source_lengths(encoded, attention_mask), (labels != IGNORED_LABEL).sum(1)
            loss = loss + self.length_predictor.sum_of_losses(length_logits, *lengths) / number
        return MaskPredictOutput(
            loss=loss,
            logits=logits,
            length_logits=length_logits,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoded,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


__all__ = ["MaskPredictEncoderModel", "MaskPredictForConditionalGeneration", "MaskPredictModel"]
