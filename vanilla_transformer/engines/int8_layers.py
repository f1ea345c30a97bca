"""Linear layers in 8 bits, for faster decoding on a CPU.

    from vanilla_transformer.engines.int8_layers import quantized

    model = quantized(model, "int8")     # or Translator(model, tokenizer, quantization="int8")

A weight is rounded once, with one scale for each output. The input of a layer is rounded at each call, with one scale
for each token. Products are summed in 32 bits. Embeddings and norms keep their type. Linear layers take most of the
time from the base model on. A CPU needs VNNI instructions to gain from 8 bits (`lscpu | grep vnni`). Others get the
same sums from float32 products, and are somewhat slower than without quantization.

A translation does not depend on the other texts of its batch. That needs attention in float64: the last bits of a sum
in float32 depend on the shape of the batch, and rounding to 8 bits turns some of them into whole steps. Attention that
is not the library's `sdpa`, or that a config binds to it (relative positions do), keeps its type. Translations of such
a model may, rarely, depend on the batch.

A quantized model can't be saved: quantizing again takes less than a second.
"""

from contextlib import suppress
from typing import Any, Literal, get_args

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from vanilla_transformer.converters.supported_models import require_quantization
from vanilla_transformer.converters.weight_sharing import copy_sharing_weights
from vanilla_transformer.hub.loading import require_finite


Quantization = Literal["float32", "int8"]
QUANTIZATIONS: tuple[str, ...] = get_args(Quantization)
LARGEST = 127  # the largest absolute value that is used of a signed 8-bit integer
EXACT_INPUTS = 2**24 // LARGEST**2  # float32 is exact for whole numbers to 2**24, so for sums of this many products


# The name of attention in float64, as `attn_implementation` has it.
EXACT_ATTENTION = "sdpa_float64"


def attend_in_float64(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Computes what `sdpa` computes in float64, and returns it in the type of the query."""
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.double()
    if options.get("position_bias") is not None:
        options["position_bias"] = options["position_bias"].double()
    output, _ = sdpa_attention_forward(module, query.double(), key.double(), value.double(), attention_mask, **options)
    return output.to(query.dtype), None


AttentionInterface.register(EXACT_ATTENTION, attend_in_float64)
AttentionMaskInterface.register(EXACT_ATTENTION, sdpa_mask)


class Int8Linear(nn.Module):
    """`nn.Linear` whose weight and input are rounded to 8 bits."""

    weight = None  # some models of the library read this attribute of their layers

    def __init__(self, linear: nn.Linear):
        super().__init__()
        rounded, scales = _rounded(linear.weight.detach())
        # Without VNNI, torch multiplies 8-bit integers ten times slower than float32.
        self.multiplies_integers = torch.cpu._is_vnni_supported()
        rounded = rounded.t().contiguous()  # [in, out]
        self.register_buffer("rounded", rounded if self.multiplies_integers else rounded.float(), persistent=False)
        self.register_buffer("scales", scales.squeeze(1), persistent=False)  # [out]
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach(), persistent=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        rounded, scales = _rounded(states.flatten(0, -2))
        multiply = torch._int_mm if self.multiplies_integers else _product_of_whole_numbers
        sums = multiply(rounded, self.rounded) * scales  # [N, out], float32 again
        output = sums.mul_(self.scales) if self.bias is None else torch.addcmul(self.bias, sums, self.scales)
        return output.view(*states.shape[:-1], -1)


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns rows [N, D] in 8 bits, and the scales [N, 1] that turn them back."""
    scales = rows.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30) / LARGEST
    return (rows / scales).round_().to(torch.int8), scales


def _product_of_whole_numbers(rounded: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns what `torch._int_mm` returns for rounded [N, in] and weight [in, out], whole numbers held in float32.

    Each partial product is exact, whatever the order of its sum. Several of them are added as integers.
    """
    parts = zip(rounded.float().split(EXACT_INPUTS, 1), weight.split(EXACT_INPUTS), strict=True)
    first, *others = (states @ part for states, part in parts)
    return sum((part.int() for part in others), first.int()) if others else first


def quantized(model: PreTrainedModel, quantization: str) -> PreTrainedModel:
    """Returns a copy of the model whose linear layers are quantized. All other weights are shared with the model.

    Args:
        model: A model in float32 on the CPU: this package's, or any other of the library.
        quantization: `"int8"`, or `"float32"` for the model itself.
    """
    require_quantization(quantization, QUANTIZATIONS)
    if quantization == "float32":
        return model
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise ValueError(
            f"quantization={quantization!r} works on the CPU from float32 weights; this model is on {model.device} in "
            f"{str(model.dtype).removeprefix('torch.')}. Load it with device='cpu' and dtype=torch.float32, or leave "
            "out quantization."
        )
    require_finite(model)  # rounding would turn NaN into a number
    quantized_model = copy_sharing_weights(model)
    for parent in list(quantized_model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Int8Linear(child))
    if quantized_model.config._attn_implementation == "sdpa":
        with suppress(ValueError):  # a model whose positions or pattern need another one
            quantized_model.set_attn_implementation(EXACT_ATTENTION)
    for method in ("save_pretrained", "push_to_hub"):
        setattr(quantized_model, method, _refuse_to_save)
    return quantized_model.eval()


def _refuse_to_save(*args: Any, **kwargs: Any) -> None:
    raise ValueError("A model in 8 bits is not saved: save the model that it was made of.")
