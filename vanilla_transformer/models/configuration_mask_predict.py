"""The configuration of the conditional masked language model, which writes all tokens of a translation at once."""

from typing import TYPE_CHECKING

from huggingface_hub.dataclasses import strict

from .configuration_vanilla_transformer import VanillaTransformerConfig


if TYPE_CHECKING:  # `save_pretrained` reads this line to find the model's code, and Python does not run it
    from .modeling_mask_predict import MaskPredictModel  # noqa: F401


@strict
class MaskPredictConfig(VanillaTransformerConfig):
    r"""
    Describes a [`MaskPredictForConditionalGeneration`]
    ([Ghazvininejad et al. 2019](https://arxiv.org/abs/1904.09324), "Mask-Predict").

    The fields are those of [`VanillaTransformerConfig`] and two more. The decoder has the same layers, but each of its
    tokens sees all others.

    Args:
        mask_token_id (`int`, defaults to 4):
            The token `<mask>` of the target vocabulary. The decoder predicts the tokens at its positions.
        max_length_difference (`int`, defaults to 64):
            The length predictor knows differences of target and source length from minus this to plus this.

    ```python
    >>> from vanilla_transformer import MaskPredictConfig, MaskPredictForConditionalGeneration

    >>> config = MaskPredictConfig.from_preset("tiny", vocab_size=100, mask_token_id=99)
    >>> model = MaskPredictForConditionalGeneration(config)
    ```"""

    model_type = "mask_predict"
    decoder_is_causal = False

    mask_token_id: int = 4
    max_length_difference: int = 64
    use_cache: bool = False  # every pass changes all positions: nothing can be kept

    def validate_architecture(self) -> None:
        """Checks each field and how they fit together. Runs whenever a config is made."""
        super().validate_architecture()
        if self.max_length_difference < 1:
            raise ValueError(f"max_length_difference={self.max_length_difference} must be at least 1; 64 is usual.")
        if not 0 <= self.mask_token_id < self.output_vocab_size:
            raise ValueError(
                f"mask_token_id={self.mask_token_id} is not in the target vocabulary, whose ids are 0 to "
                f"{self.output_vocab_size - 1}: take it from the tokenizer."
            )
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(self, name)
            if value is None or isinstance(value, list):
                raise ValueError(f"{name}={value} must be one token: translations are built with it.")
            if value == self.mask_token_id:
                raise ValueError(f"mask_token_id={self.mask_token_id} is also the {name}: give <mask> its own token.")


__all__ = ["MaskPredictConfig"]
