"""Export to ONNX, for engines that run graphs: ONNX Runtime does, in float32 or with weights of 8 bits.

    from vanilla_transformer.converters.to_onnx import export

    export(model, "models/en-de", quantization="int8")

A model becomes three graphs, and beam search stays outside of them:

- `encoder.onnx`: token ids and mask of the source -> its states;
- `source.onnx`: these states -> keys and values of the source in each decoder layer, the same at every step;
- `decoder.onnx`: tokens, their positions, a mask, and the keys and values so far -> logits, and one more key and value
  for each token.

The decoder takes any mask. So it runs one token as well as a whole prefix, and several hypotheses in one row of the
batch. `torch.onnx` makes the graphs. The exporter of transformers covers prefill and decoding with one row for each
hypothesis, whose cache must be reordered at each step.

The folder also has the config and the decoding settings. docs/decoding.md has a greedy search for it in ONNX Runtime.

Shapes: B batch, S source tokens, T new tokens, P earlier keys, H heads, D d_model, d width of a head, V vocabulary.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from vanilla_transformer.hub.loading import require_finite
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .saved_weights import ENCODINGS
from .supported_models import require_quantization, require_understood
from .weight_sharing import copy_sharing_weights


Quantization = Literal["float32", "int8"]
GRAPHS = ("encoder", "source", "decoder")
# The config fields that change nothing about the graphs' inputs and outputs; `require_exportable` checks some values.
UNDERSTOOD = (
    *("vocab_size", "target_vocab_size", "d_model", "encoder_layers", "decoder_layers"),
    *("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "d_k", "d_v"),
    *("activation_function", "norm_placement", "position_encoding", "max_position_embeddings", "scale_embedding"),
    *("layer_norm_eps", "share_encoder_decoder_embeddings", "tie_word_embeddings", "output_bias"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)


@torch.no_grad()
def export(
    model: VanillaTransformerForConditionalGeneration, folder: str | Path, *, quantization: str = "float32"
) -> None:
    """Writes the graphs of a model into an existing folder, with its config and decoding settings.

    Args:
        model: The model, in float32 on the CPU.
        folder: The folder.
        quantization: `"int8"` rounds the weights of linear layers to 8 bits, and their inputs at each call.
    """
    require_onnx("onnx", "onnxscript", "onnxruntime")
    require_quantization(quantization, get_args(Quantization))
    require_exportable(model.config)
    require_finite(model)
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise ValueError(
            f"The export to ONNX takes a model in float32 on the CPU, not {model.dtype} on {model.device}: load it "
            "with dtype=torch.float32 and device='cpu'."
        )
    folder = Path(folder)
    model = copy_sharing_weights(model).eval()
    model.set_attn_implementation("eager")  # the exporter would scale queries and keys apart, which rounds twice
    for name, (function, inputs, shapes) in _graphs(model).items():
        _write_graph(model, function, inputs, shapes, folder / f"{name}.onnx")
        if quantization == "int8":
            _quantize(folder / f"{name}.onnx")
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)


def require_exportable(config: PreTrainedConfig) -> None:
    """Refuses a config that the graphs can't represent, by the name of the field."""
    require_understood(config, UNDERSTOOD, "ONNX graphs")
    if config.position_encoding not in ("none", *ENCODINGS):
        raise ValueError(
            f"position_encoding={config.position_encoding!r} can't become ONNX graphs, which only add vectors to "
            "embeddings: train a model with such an encoding."
        )


def require_onnx(*packages: str) -> list[ModuleType]:
    """Imports packages of the extra `onnx`, or says how to install it."""
    try:
        return [__import__(package) for package in packages]
    except ImportError as error:
        raise ImportError("This needs ONNX Runtime: pip install 'vanilla-transformer[onnx]'") from error


# --- graphs ---


def _graphs(model: VanillaTransformerForConditionalGeneration) -> dict[str, tuple[Callable[..., Any], tuple, tuple]]:
    """Returns for each graph its function, examples of its inputs, and their dimensions that may vary.

    Each example is a separate tensor: the exporter would merge inputs that are the same tensor.
    """
    batch, source, past, new, keys = (torch.export.Dim(name) for name in ("batch", "source", "past", "new", "keys"))
    rows, length, earlier, tokens = 3, 7, 5, 4
    ids, mask, target = (torch.ones(rows, size, dtype=torch.long) for size in (length, length, tokens))
    by_source, by_batch = {0: batch, 1: source}, {0: batch, 2: past}
    caches = [{0: batch, 2: source}] * (2 * model.config.decoder_layers)
    return {
        "encoder": (_encode, (ids, mask), (by_source, by_source)),
        "source": (_source_keys, (torch.zeros(rows, length, model.config.d_model),), (by_source,)),
        "decoder": (
            _decode,
            (
                target,
                torch.arange(tokens),
                torch.zeros(rows, 1, tokens, earlier + tokens),
                torch.zeros(rows, 1, 1, length),
                no_keys(model.config, rows, earlier),
                no_keys(model.config, rows, length),
            ),
            (
                {0: batch, 1: new},
                {0: new},
                {0: batch, 2: new, 3: keys},
                {0: batch, 3: source},
                [by_batch] * len(caches),
                caches,
            ),
        ),
    }


def no_keys(config: PreTrainedConfig, rows: int, length: int = 0) -> list[torch.Tensor]:
    """Returns zeros as keys and values [B, H, P, d] of each layer, by default for no token."""
    heads = config.decoder_attention_heads
    widths = [width or config.d_model // heads for width in (config.d_k, config.d_v)]
    return [torch.zeros(rows, heads, length, width) for _ in range(config.decoder_layers) for width in widths]


def _encode(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    return model.model.encoder(input_ids, attention_mask).last_hidden_state


def _source_keys(model: nn.Module, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Keys and values [B, H, S, d] of the source in each layer of the decoder."""
    pairs = (layer.encoder_attn._keys_and_values(states, states, None, None) for layer in model.model.decoder.layers)
    return tuple(tensor for pair in pairs for tensor in pair)


def _decode(
    model: nn.Module,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
    source_mask: torch.Tensor,
    past: list[torch.Tensor],
    source: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Logits [B, T, V] after tokens [B, T] at positions [T], and keys and values [B, H, P + T, d] of each layer."""
    decoder = model.model.decoder
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    _fill(cache.self_attention_cache, past)
    _fill(cache.cross_attention_cache, source)
    cache.is_updated = dict.fromkeys(range(len(decoder.layers)), True)
    embeddings = decoder.embed_tokens(tokens)
    states = decoder.run(embeddings, positions, mask, embeddings, source_mask, cache)
    present = [tensor for layer in cache.self_attention_cache.layers for tensor in (layer.keys, layer.values)]
    return model.lm_head(states), *present


def _fill(cache: DynamicCache, tensors: list[torch.Tensor]) -> None:
    for index, (keys, values) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        cache.update(keys, values, index)


class _Graph(nn.Module):
    """A function of a model as a module, which can be exported."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.model, *inputs)


def _write_graph(
    model: nn.Module, function: Callable[..., Any], inputs: tuple[Any, ...], shapes: tuple[Any, ...], path: Path
) -> None:
    graph = _Graph(model, function).eval()
    with _without_warnings("torch.onnx"), warnings.catch_warnings():  # they are about torch's own code
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph, inputs, path, dynamo=True, dynamic_shapes=(shapes,), verbose=False, external_data=False
        )


def _quantize(path: Path) -> None:
    """Rounds the weights of matrix products to 8 bits, with one scale for each output.

    The weights are unsigned: ONNX Runtime multiplies signed ones with instructions that overflow on CPUs without VNNI.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _without_warnings(None):  # it recommends a pre-processing that is meant for convolutions
        quantize_dynamic(
            path, path, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QUInt8
        )


@contextmanager
def _without_warnings(logger_name: str | None) -> Iterator[None]:
    """Inside, a logger reports only errors."""
    logger = logging.getLogger(logger_name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
