"""Registers this package's models with transformers when it is imported."""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration_mask_predict import MaskPredictConfig
from .configuration_rnn_search import RnnSearchConfig
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .modeling_mask_predict import MaskPredictForConditionalGeneration, MaskPredictModel
from .modeling_rnn_search import RnnSearchForConditionalGeneration
from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from .translation import TranslationPipeline


AutoConfig.register("vanilla_transformer", VanillaTransformerConfig)
AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel)
AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, VanillaTransformerForConditionalGeneration)
AutoConfig.register("rnn_search", RnnSearchConfig)
AutoModelForSeq2SeqLM.register(RnnSearchConfig, RnnSearchForConditionalGeneration)
AutoConfig.register("mask_predict", MaskPredictConfig)
AutoModel.register(MaskPredictConfig, MaskPredictModel)
AutoModelForSeq2SeqLM.register(MaskPredictConfig, MaskPredictForConditionalGeneration)
PIPELINE_REGISTRY.register_pipeline(
    "vanilla-translation", pipeline_class=TranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text"
)
