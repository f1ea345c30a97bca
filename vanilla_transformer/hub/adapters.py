"""LoRA adapters of PEFT (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

An adapter is added inside the layers of a model, which keeps its class, and merged into their weights before the model
is saved. So training, searches and saved folders know nothing of it.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


# The layers that PEFT adapts if it is told no `target_modules`, as for other encoder-decoders.
TARGET_MODULES = {
    "vanilla_transformer": ["q_proj", "v_proj"],
    "mask_predict": ["q_proj", "v_proj"],
    "rnn_search": ["query_proj", "key_proj", "proj"],  # attention and read-out: its GRUs can't be adapted
}


def add_adapter(model: PreTrainedModel, rank: int) -> None:
    """Freezes a model and adds a trainable matrix of low rank to each of its linear layers but the output layer."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ImportError(f"lora_rank={rank} needs PEFT: pip install 'vanilla-transformer[lora]'") from error
    get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))


def has_adapter(model: torch.nn.Module) -> bool:
    """Returns whether layers of a model are adapted."""
    return any(hasattr(module, "lora_A") for module in model.modules())


def merged(model: Any, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> PreTrainedModel:
    """Returns a copy of a model with its adapter merged into the weights, or the model itself if it has none.

    Raises a `ValueError` if the two translate differently.

    Args:
        model: The model, or PEFT's wrapper around it.
        tokenizer: The source tokenizer.
        texts: The sentences to compare by.
    """
    if not has_adapter(model):
        return model
    adapted = model.get_base_model() if hasattr(model, "get_base_model") else model
    whole = copy.deepcopy(adapted)
    _merge(whole)
    for text in texts:
        batch = tokenizer(text, return_tensors="pt").to(adapted.device)
        before, after = (each.eval().generate(**batch).tolist() for each in (adapted, whole))
        if before != after:
            raise ValueError(
                f"With its adapter merged, the model translates {text!r} differently. Merge it in float32, or save "
                "the adapter alone with PEFT."
            )
    return whole


def _merge(model: PreTrainedModel) -> None:
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge(safe_merge=True)  # raises an error if the sum is not finite
            model.set_submodule(name, layer.get_base_layer())
    model.requires_grad_(True)
    del model.peft_config
