"""Decoding in ONNX Runtime, with this package's beam search.

    vanilla convert onnx --model runs/demo/model --output_dir runs/demo/onnx

    translator = Translator.from_pretrained("runs/demo/onnx", backend="onnx")

The engine runs the graphs that `converters.onnx` wrote. Searching, scoring and glossaries are those of torch, and so
are the translations. Loading needs `onnxruntime` alone; the folder is checked first.

Shapes: B batch, S source tokens, K beams, T target tokens, P keys so far, V vocabulary.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from torch import nn
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils import cached_file

from vanilla_transformer.converters.supported_models import position_encoding_of, require_quantization
from vanilla_transformer.converters.to_onnx import (
    FORMAT,
    GRAPHS,
    MANIFEST,
    Quantization,
    digest_of,
    export,
    no_keys,
    require_onnx,
)
from vanilla_transformer.hub.loading import HUB_OPTIONS, find_device, load_config, load_generation_config, read_object
from vanilla_transformer.models.full_attention import additive
from vanilla_transformer.models.shared_decoder_steps import RowPerSentence

from .engine import FORCED
from .torch_engine import TorchBackend


class OnnxBackend(TorchBackend):
    """Decodes with exported graphs on the CPU.

    Args:
        model: The graphs as a model.
    """

    name: ClassVar[str] = "onnx"
    title: ClassVar[str] = "ONNX Runtime"
    quantizations: ClassVar[tuple[str, ...]] = get_args(Quantization)

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        quantization: str = "float32",
    ) -> "OnnxBackend":
        """Exports a model in memory. This takes half a minute or so.

        Args:
            model: The model.
            tokenizer: Not needed here.
            target_tokenizer: Not needed here.
            quantization: Type of the weights of linear layers.
        """
        with tempfile.TemporaryDirectory() as folder:
            export(model, folder, quantization=quantization)
            graphs = {name: Graph((Path(folder) / f"{name}.onnx").read_bytes()) for name in GRAPHS}
        return cls(OnnxModel(graphs, model.config, model.generation_config))

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str | None = None, quantization: str = "float32", **options: Any
    ) -> "OnnxBackend":
        """Loads graphs that `vanilla convert onnx` wrote.

        Args:
            name_or_path: Folder, or name on the Hub.
            device: `"cpu"`, or nothing.
            quantization: Type of the weights: that of the export.
            options: Those of `from_pretrained` that say where a model of the Hub is.
        """
        _refuse_torch_options(device, options)
        require_onnx("onnxruntime")
        require_quantization(quantization, cls.quantizations)
        where = {name: value for name, value in options.items() if name in HUB_OPTIONS and name != "trust_remote_code"}
        paths = _checked_graphs(name_or_path, quantization, where)
        config = load_config(name_or_path, **options)
        graphs = {name: Graph(path.read_bytes()) for name, path in paths.items()}
        return cls(OnnxModel(graphs, config, load_generation_config(name_or_path, config, **options)))

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses sampling."""
        if sample:
            raise ValueError("ONNX Runtime does not sample: leave out sample, or leave out backend.")
        super().require_options(options, sample=sample, glossary=glossary)

    def require_support(self, call: str) -> None:
        """Refuses attention, which the graphs do not return."""
        if call not in FORCED:
            raise ValueError(f"ONNX Runtime does not support {call}: make a Translator without backend='onnx'.")


# --- the folder ---


def _refuse_torch_options(device: str | None, options: dict[str, Any]) -> None:
    for name in ("device_map", "dtype", "torch_dtype"):
        if name in options:
            raise ValueError(f"{name}={options[name]!r} is for torch: leave it out, or leave out backend.")
    if device is not None and find_device(device).type != "cpu":
        raise ValueError(f"device={device!r}: this package runs ONNX graphs on the CPU. Leave out device or backend.")


def _checked_graphs(name_or_path: str | Path, quantization: str, where: dict[str, Any]) -> dict[str, Path]:
    """Returns the paths of the graphs, if they are whole and of the right format and type."""
    manifest_path = cached_file(name_or_path, MANIFEST, _raise_exceptions_for_missing_entries=False, **where)
    if manifest_path is None:
        raise ValueError(
            f"{name_or_path} has no {MANIFEST}, so it is no export to ONNX: run vanilla convert onnx --model "
            f"{name_or_path}, and give its --output_dir."
        )
    manifest = read_object(manifest_path)
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{manifest_path} has format {manifest.get('format')!r}, not {FORMAT}: export the model again."
        )
    if manifest.get("quantization") != quantization:
        raise ValueError(
            f"{name_or_path} was exported with quantization={manifest.get('quantization')!r}, not {quantization!r}: "
            "give the one of the export, or export the model again."
        )
    digests = manifest.get("sha256")
    paths = {name: cached_file(name_or_path, f"{name}.onnx", **where) for name in GRAPHS}
    for name, path in paths.items():
        if not isinstance(digests, dict) or digests.get(f"{name}.onnx") != digest_of(path):
            raise ValueError(f"{path} is not the file that was exported (SHA-256): export the model again.")
    return {name: Path(path) for name, path in paths.items()}


# --- the graphs as a model ---


class Graph:
    """A graph that ONNX Runtime runs. Several threads may run it at once; a copy in another process opens it again.

    Args:
        content: The file.
    """

    def __init__(self, content: bytes):
        self.content = content
        self._session: Any = None
        self._process: int | None = None

    def __call__(self, *inputs: Any) -> list[Any]:
        """Maps the inputs to the outputs. Both are the engine's own values: see `to_engine` and `to_torch`."""
        session = self._require_session()
        names = [graph_input.name for graph_input in session.get_inputs()]
        outputs = [output.name for output in session.get_outputs()]
        return session.run_with_ort_values(outputs, dict(zip(names, inputs, strict=True)))

    def _require_session(self) -> Any:
        if self._process != os.getpid():  # the threads of a session do not survive a fork
            (runtime,) = require_onnx("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            session = runtime.InferenceSession(self.content, options, providers=["CPUExecutionProvider"])
            self._session, self._process = session, os.getpid()
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return {"content": self.content, "_session": None, "_process": None}


def to_engine(tensor: torch.Tensor) -> Any:
    """Returns a tensor as a value of the engine."""
    (runtime,) = require_onnx("onnxruntime")
    return runtime.OrtValue.ortvalue_from_numpy(tensor.contiguous().numpy())


def to_torch(value: Any) -> torch.Tensor:
    """Returns a value of the engine as a tensor."""
    return torch.from_numpy(value.numpy())


class OnnxModel(PreTrainedModel, GenerationMixin):
    """Exported graphs with the face of a model of the library. It only decodes and scores.

    Args:
        graphs: The graphs by name.
        config: The config of the model that was exported.
        generation_config: Its decoding settings.
    """

    main_input_name = "input_ids"
    device, dtype = torch.device("cpu"), torch.float32  # there is no parameter to read them from
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, graphs: dict[str, Graph], config: PreTrainedConfig, generation_config: GenerationConfig):
        super().__init__(config)
        self.generation_config = generation_config
        self.graphs = graphs
        self.encoder = OnnxEncoder(graphs["encoder"])

    @property
    def longest_sequence(self) -> int | None:
        """The longest source or target in tokens; `None` for no limit."""
        return position_encoding_of(self.config).max_length

    def get_encoder(self, *args: Any, **kwargs: Any) -> nn.Module:
        return self.encoder

    def forward(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Returns logits [B, T, V] of all tokens at once."""
        assert decoder_input_ids is not None
        encoded = self.encoder(input_ids, attention_mask)
        steps = OnnxSteps(self, 1, {"encoder_outputs": encoded, "attention_mask": attention_mask})
        return Seq2SeqLMOutput(logits=steps.read(decoder_input_ids))

    def make_stepper(self, beams: int, model_kwargs: dict[str, Any]) -> "OnnxSteps":
        """Returns what `beam_search` runs."""
        return OnnxSteps(self, beams, model_kwargs)

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("Graphs are not saved: export the model that they were made of.")

    push_to_hub = save_pretrained


class OnnxEncoder(nn.Module):
    """The encoder of an `OnnxModel`.

    Args:
        graph: Its graph.
    """

    main_input_name = "input_ids"

    def __init__(self, graph: Graph):
        super().__init__()
        self.graph = graph

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        (states,) = self.graph(to_engine(input_ids), to_engine(mask.long()))
        return BaseModelOutput(last_hidden_state=to_torch(states))


class OnnxSteps(RowPerSentence):
    """Runs the decoder's graph: a row is a sentence, and its beams are the row's tokens.

    Keys and values stay in the engine from step to step.

    Args:
        model: The model.
        beams: Number of beams.
        model_kwargs: What `generate` prepared for the model.
    """

    def __init__(self, model: OnnxModel, beams: int, model_kwargs: dict[str, Any]):
        self.decode, self.beams = model.graphs["decoder"], beams
        states = model_kwargs["encoder_outputs"].last_hidden_state[::beams]
        mask = model_kwargs.get("attention_mask")
        is_token = torch.ones(states.shape[:2], dtype=torch.bool) if mask is None else mask[::beams] != 0
        self.padding = additive(is_token, torch.float32)[:, None, None]  # [B, 1, 1, S]
        self.source = model.graphs["source"](to_engine(states))
        self.past = [to_engine(tensor) for tensor in no_keys(model.config, len(states))]
        self.prefix_length = 0

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        self.prefix_length = prefix.shape[1]
        return self.read(prefix)[:, -1:]

    def read(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the logits [B, T, V] of first tokens [B, T], each of which sees those before it."""
        rows, length = tokens.shape
        mask = additive(torch.ones(length, length, dtype=torch.bool).tril(), torch.float32)
        return self._decode(tokens, torch.arange(length), mask.expand(rows, 1, -1, -1))

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        tokens = hypotheses[:, :, -1, 0]  # [B, K]
        position = torch.full((self.beams,), hypotheses.shape[2] - 1)  # the same for all beams
        return self._decode(tokens, position, self._visible(hypotheses, torch.float32))

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""
        self.padding = self.padding[sentences]
        self.source, self.past = (
            [to_engine(to_torch(value)[sentences]) for value in values] for values in (self.source, self.past)
        )

    def _decode(self, tokens: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        inputs: Sequence[torch.Tensor] = (tokens, positions, mask, self.padding)
        logits, *self.past = self.decode(*map(to_engine, inputs), *self.past, *self.source)
        return to_torch(logits)
