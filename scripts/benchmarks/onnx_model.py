"""This model in ONNX Runtime, if `onnx`, `onnxscript` and `onnxruntime` are installed.

The library's own bridge, optimum-onnx, supports only transformers 4.
"""

import logging
import tempfile
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.converters.marian import config_to_marian


if TYPE_CHECKING:  # an optional dependency
    from onnxruntime import InferenceSession


class OnnxModel(PreTrainedModel, GenerationMixin):
    """This model as graphs that ONNX Runtime runs on the CPU. The search and its cache are those of `generate`."""

    main_input_name = "input_ids"
    device, dtype = torch.device("cpu"), torch.float32  # there is no parameter to read them from

    def __init__(self, model: VanillaTransformerForConditionalGeneration) -> None:
        # MarianMT's configuration: for this package's model type `beam_search` would call the decoder in torch.
        super().__init__(config_to_marian(model.config))
        self.generation_config = model.generation_config
        batch, source, target = (torch.export.Dim(name) for name in ("batch", "source", "target"))
        text_shape, past_shape, source_shape = {0: batch, 1: source}, {0: batch, 2: target}, {0: batch, 2: source}
        # Examples of all inputs. Each is a separate tensor: the exporter would merge inputs that are the same tensor.
        ids, mask, token = (torch.ones(3, length, dtype=torch.long) for length in (7, 7, 1))
        states, past, keys = torch.zeros(3, 7, model.config.d_model), self.no_keys(3, 5), self.no_keys(3, 7)
        self.encoder = OnnxEncoder(_session(model, _encode, (ids, mask), (text_shape, text_shape)))
        self.source_keys = _session(model, _source_keys, (states,), (text_shape,))
        shapes = ({0: batch}, text_shape, [past_shape] * len(past), [source_shape] * len(keys))
        self.step = _session(model, _decode, (token, mask, past, keys), shapes)

    def no_keys(self, rows: int, length: int = 0) -> list[torch.Tensor]:
        """Zeros as keys and values [B, H, T, d] of each layer; by default for no token."""
        heads, layers = self.config.decoder_attention_heads, self.config.decoder_layers
        return [torch.zeros(rows, heads, length, self.config.d_model // heads) for _ in range(2 * layers)]

    def get_encoder(self, *args: Any, **kwargs: Any) -> nn.Module:
        return self.encoder

    def forward(
        self,
        encoder_outputs: BaseModelOutput,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        past_key_values: EncoderDecoderCache,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits of the next token."""
        target, source = past_key_values.self_attention_cache, past_key_values.cross_attention_cache
        if not source.get_seq_length():
            _fill(source, _run(self.source_keys, encoder_outputs.last_hidden_state))
        past = _tensors(target) or self.no_keys(len(decoder_input_ids))
        logits, *new = _run(self.step, decoder_input_ids, attention_mask, *past, *_tensors(source))
        _fill(target, new)
        return Seq2SeqLMOutput(logits=logits, past_key_values=past_key_values)


class OnnxEncoder(nn.Module):
    """The encoder of an `OnnxModel`."""

    main_input_name = "input_ids"

    def __init__(self, session: "InferenceSession") -> None:
        super().__init__()
        self.session = session

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=_run(self.session, input_ids, attention_mask)[0])


# --- graphs ---


def _encode(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    return model.model.encoder(input_ids, attention_mask).last_hidden_state


def _source_keys(model: nn.Module, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Keys and values of the source in each layer of the decoder. They are the same at every step."""
    cache = DynamicCache()
    for index, layer in enumerate(model.model.decoder.layers):
        cache.update(*layer.encoder_attn._keys_and_values(states, states, None, None), index)
    return tuple(_tensors(cache))


def _decode(
    model: nn.Module,
    token: torch.Tensor,
    attention_mask: torch.Tensor,
    past: list[torch.Tensor],
    source: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Logits after one more token, and its keys and values in each layer."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    _fill(cache.self_attention_cache, past)
    _fill(cache.cross_attention_cache, source)
    cache.is_updated = dict.fromkeys(range(len(model.model.decoder.layers)), True)
    states = attention_mask[..., None].expand(-1, -1, model.config.d_model).to(model.dtype)  # only its shape is read
    output = model.model.decoder(
        token, encoder_hidden_states=states, encoder_attention_mask=attention_mask, past_key_values=cache
    )
    new = (tensor[:, :, -1:] for tensor in _tensors(cache.self_attention_cache))
    return model.lm_head(output.last_hidden_state), *new


class _Graph(nn.Module):
    """A function of a model as a module, which can be exported."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.model, *inputs)


# --- running them ---


def _session(
    model: nn.Module, function: Callable[..., Any], inputs: tuple[Any, ...], shapes: tuple[Any, ...]
) -> "InferenceSession":
    """Exports a function of a model and loads the graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # The warnings, here and below, are about torch's own code.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = f"{folder}/graph.onnx"
        graph = _Graph(model, function).eval()
        torch.onnx.export(graph, inputs, file, dynamo=True, dynamic_shapes=(shapes,), verbose=False)
        return onnxruntime.InferenceSession(file, options)


def _run(session: "InferenceSession", *tensors: torch.Tensor) -> list[torch.Tensor]:
    names = (graph_input.name for graph_input in session.get_inputs())
    inputs = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return [torch.from_numpy(array) for array in session.run(None, inputs)]


def _tensors(cache: DynamicCache) -> list[torch.Tensor]:
    """Keys and values of each layer, in the order keys, values, keys, values ..."""
    return [tensor for layer in cache.layers if layer.is_initialized for tensor in (layer.keys, layer.values)]


def _fill(cache: DynamicCache, tensors: list[torch.Tensor]) -> None:
    for index, (keys, values) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        cache.update(keys, values, index)
