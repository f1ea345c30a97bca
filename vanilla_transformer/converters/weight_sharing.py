"""Copies of a model that share its weights: another model object, but hardly any memory."""

import copy
from itertools import chain
from typing import TypeVar

from transformers import PreTrainedModel


Model = TypeVar("Model", bound=PreTrainedModel)


def copy_sharing_weights(model: Model) -> Model:
    """Copies a model with its config; the copy has the same parameter and buffer objects as the model."""
    tensors = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, memo={id(tensor): tensor for tensor in tensors})
