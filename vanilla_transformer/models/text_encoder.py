"""The left half of Figure 1 alone, for features of texts."""

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .modeling_vanilla_transformer import VanillaTransformerEncoder, VanillaTransformerPreTrainedModel


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


__all__ = ["VanillaTransformerEncoderModel"]
