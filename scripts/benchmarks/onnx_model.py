"""This model in ONNX Runtime, a peer where `onnx`, `onnxscript` and `onnxruntime` are installed. (The library's own
bridge, optimum-onnx, is for transformers 4.)"""

import logging
import tempfile
import warnings
from collections.abc import Callable

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.converters.marian import config_to_marian


class OnnxModel(PreTrainedModel, GenerationMixin):
    """This model as graphs that ONNX Runtime runs on the CPU; the search and its cache are `generate`'s."""

    main_input_name = "input_ids"
    device, dtype = torch.device("cpu"), torch.float32  # it has no parameter that could tell

    def __init__(self, model: VanillaTransformerForConditionalGeneration):
        super().__init__(config_to_marian(model.config))  # a type for which `beam_search` has no short cut in torch
        self.generation_config = model.generation_config
        batch, source, target = (torch.export.Dim(name) for name in ("batch", "source", "target"))
        of_texts, of_past, of_source = {0: batch, 1: source}, {0: batch, 2: target}, {0: batch, 2: source}
        # Examples of all inputs, each a tensor of its own: one that came twice would be one input.
        ids, mask, token = (torch.ones(3, length, dtype=torch.long) for length in (7, 7, 1))
        states, past, keys = torch.zeros(3, 7, model.config.d_model), self.no_keys(3, 5), self.no_keys(3, 7)
        self.encoder = OnnxEncoder(_session(model, _encode, (ids, mask), (of_texts, of_texts)))
        self.source_keys = _session(model, _source_keys, (states,), (of_texts,))
        shapes = ({0: batch}, of_texts, [of_past] * len(past), [of_source] * len(keys))
        self.step = _session(model, _decode, (token, mask, past, keys), shapes)

    def no_keys(self, rows: int, length: int = 0) -> list[torch.Tensor]:
        """Zeros in place of keys and values [B, H, T, d] of each layer; by default of no token at all."""
        heads, layers = self.config.decoder_attention_heads, self.config.decoder_layers
        return [torch.zeros(rows, heads, length, self.config.d_model // heads) for _ in range(2 * layers)]

    def get_encoder(self, *args, **kwargs) -> nn.Module:
        return self.encoder

    def forward(
        self,
        encoder_outputs: BaseModelOutput,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        past_key_values: EncoderDecoderCache,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        own, source = past_key_values.self_attention_cache, past_key_values.cross_attention_cache
        if not source.get_seq_length():
            _fill(source, _run(self.source_keys, encoder_outputs.last_hidden_state))
        past = _tensors(own) or self.no_keys(len(decoder_input_ids))
        logits, *new = _run(self.step, decoder_input_ids, attention_mask, *past, *_tensors(source))
        _fill(own, new)
        return Seq2SeqLMOutput(logits=logits, past_key_values=past_key_values)


class OnnxEncoder(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, session):
        super().__init__()
        self.session = session

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=_run(self.session, input_ids, attention_mask)[0])


def _encode(model, input_ids, attention_mask):
    return model.model.encoder(input_ids, attention_mask).last_hidden_state


def _source_keys(model, states):
    """Keys and values of the source in each layer of the decoder, which are the same at each step."""
    cache = DynamicCache()
    for place, layer in enumerate(model.model.decoder.layers):
        cache.update(*layer.encoder_attn._keys_and_values(states, states, None), place)
    return tuple(_tensors(cache))


def _decode(model, token, attention_mask, before, source):
    """Logits of one token more, and its keys and values in each layer."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    _fill(cache.self_attention_cache, before)
    _fill(cache.cross_attention_cache, source)
    cache.is_updated = dict.fromkeys(range(len(model.model.decoder.layers)), True)
    states = attention_mask[..., None].expand(-1, -1, model.config.d_model).to(model.dtype)  # only its shape is read
    output = model.model.decoder(
        token, encoder_hidden_states=states, encoder_attention_mask=attention_mask, past_key_values=cache
    )
    return model.lm_head(output.last_hidden_state), *(each[:, :, -1:] for each in _tensors(cache.self_attention_cache))


class _Graph(nn.Module):
    """A function of a model, in the form that can be exported."""

    def __init__(self, model: nn.Module, function: Callable):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs):
        return self.function(self.model, *inputs)


def _session(model: nn.Module, function: Callable, inputs: tuple, shapes: tuple):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of what is none of ours, as below
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = f"{folder}/graph.onnx"
        graph = _Graph(model, function).eval()
        torch.onnx.export(graph, inputs, file, dynamo=True, dynamic_shapes=(shapes,), verbose=False)
        return onnxruntime.InferenceSession(file, options)


def _run(session, *tensors: torch.Tensor) -> list[torch.Tensor]:
    names = (each.name for each in session.get_inputs())
    fed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return [torch.from_numpy(array) for array in session.run(None, fed)]


def _tensors(cache: DynamicCache) -> list[torch.Tensor]:
    """Keys and values by turns, layer by layer."""
    return [tensor for layer in cache.layers if layer.is_initialized for tensor in (layer.keys, layer.values)]


def _fill(cache: DynamicCache, tensors: list[torch.Tensor]) -> None:
    for place, pair in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        cache.update(*pair, place)
