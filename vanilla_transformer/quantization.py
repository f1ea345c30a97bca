"""Linear layers in 8 bits, for decoding on a CPU: from the size of the base model on, most of its time is spent there.

    from vanilla_transformer.quantization import quantized

    model = quantized(model, "int8")     # or Translator(model, tokenizer, quantization="int8")

A weight is rounded once, with a scale for each output; what a layer reads is rounded at each call, with a scale for
each token, so that no translation depends on its neighbours in the batch. Products are summed in 32 bits. Embeddings,
norms and attention stay as they are. Such a model is not saved: it is made in a moment.
"""

import copy

import torch
from torch import nn
from transformers import PreTrainedModel


QUANTIZATIONS = ("float32", "int8")
LARGEST = 127  # of a signed number of 8 bits, its sign aside


class Int8Linear(nn.Module):
    """`nn.Linear` whose weight and input are rounded to 8 bits."""

    weight = None  # some models of the library ask their layers for it

    def __init__(self, linear: nn.Linear):
        super().__init__()
        rounded, scales = _rounded(linear.weight.detach())
        self.register_buffer("rounded", rounded.t().contiguous(), persistent=False)  # [in, out]
        self.register_buffer("scales", scales.squeeze(1), persistent=False)  # [out]
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach(), persistent=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        rounded, scales = _rounded(states.flatten(0, -2))
        sums = torch._int_mm(rounded, self.rounded) * scales  # [N, out], in float32 again
        output = sums.mul_(self.scales) if self.bias is None else torch.addcmul(self.bias, sums, self.scales)
        return output.view(*states.shape[:-1], -1)


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [N, D] in 8 bits, and what each must be multiplied with to be itself again [N, 1]."""
    scales = rows.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30) / LARGEST
    return (rows / scales).round_().to(torch.int8), scales


def require_quantization(quantization: str) -> None:
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization={quantization!r} is unknown: choose one of {', '.join(QUANTIZATIONS)}.")


def quantized(model: PreTrainedModel, quantization: str) -> PreTrainedModel:
    """The model with its linear layers in that type: another one, which shares all other weights with it.

    Args:
        model: A model in float32 on the CPU: this one, or any other of the library.
        quantization: `"int8"`, or `"float32"` for the model itself.
    """
    require_quantization(quantization)
    if quantization == "float32":
        return model
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise ValueError(
            f"quantization={quantization!r} works on the CPU from float32 weights; this model is on {model.device} in "
            f"{str(model.dtype).removeprefix('torch.')}. Load it with device='cpu' and dtype=torch.float32, or leave "
            "out quantization."
        )
    shared = {id(parameter): parameter for parameter in model.parameters()}
    found = copy.deepcopy(model, memo=shared)
    for parent in list(found.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Int8Linear(child))
    found.save_pretrained = found.push_to_hub = _refuse_to_save
    return found.eval()


def _refuse_to_save(*args, **kwargs) -> None:
    raise ValueError("A model in 8 bits is not saved: save the one that it was made of.")
