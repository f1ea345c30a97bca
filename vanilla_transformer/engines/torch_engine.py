"""Decoding in torch: any encoder-decoder of the library, with the search that its class names."""

from collections.abc import Callable, Sequence
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.converters.supported_models import aligning_heads
from vanilla_transformer.converters.weight_sharing import copy_sharing_weights
from vanilla_transformer.hub.loading import find_device, load_model
from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.search_options import BeamSearchOptions, SearchOptions

from .engine import Attention, Generated, TokenIds


class TorchBackend:
    """Decodes with a torch model.

    No method changes the model, so several threads may share it.

    Args:
        model: The model. It is set to evaluation mode.
    """

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "the model"
    quantizations: ClassVar[tuple[str, ...]] = ("float32",)

    def __init__(self, model: PreTrainedModel):
        self._model: PreTrainedModel = model.eval()
        self._eager_copy: PreTrainedModel | None = None

    @classmethod
    def from_model(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        quantization: str = "float32",
    ) -> "TorchBackend":
        """Makes a backend of a model in memory.

        Args:
            model: The model.
            tokenizer: Not needed here.
            target_tokenizer: Not needed here.
            quantization: `"float32"`: the weights as they are.
        """
        _require_float32(quantization)
        return cls(model)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str | None = None, quantization: str = "float32", **options: Any
    ) -> "TorchBackend":
        """Loads a model from a folder or the Hub.

        Args:
            name_or_path: Folder, or name on the Hub.
            device: Where to run; a GPU if there is one.
            quantization: `"float32"`: the weights as they are.
            options: Those of `from_pretrained`, such as `dtype`, `revision`, and `device_map` in place of `device`.
        """
        if "device_map" in options and device:
            raise ValueError("device_map is for torch and takes the place of device: give one of them.")
        where = None if "device_map" in options else find_device(device)
        _require_float32(quantization)
        model = load_model(name_or_path, **options)
        return cls(model if where is None else model.to(where))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_eager_copy": None}  # it shares the model's weights: pickle them once

    @property
    def model(self) -> PreTrainedModel:
        return self._model

    @property
    def config(self) -> PreTrainedConfig:
        return self._model.config

    @property
    def generation_config(self) -> GenerationConfig:
        return self._model.generation_config

    @property
    def longest_input(self) -> int | None:
        return longest_sequence(self._model)

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses samples and required terms for a model that can't have them. `generate` refuses unknown options."""
        if sample:
            self.require_support("sample=True")
        if glossary and "selection" not in signature(self._search).parameters:
            raise ValueError(f"The search of {type(self._model).__name__} has no glossary: leave it out.")

    def require_support(self, call: str) -> None:
        """Refuses calls that need a model that works from left to right, if this one does not."""
        if not getattr(self._model, "is_autoregressive", True):
            raise ValueError(
                f"{call} needs a model that works from left to right, and {type(self._model).__name__} writes all "
                "tokens at once: use an autoregressive model."
            )

    def set_seed(self, seed: int) -> None:
        """Seeds torch's random numbers, which draw the samples."""
        torch.manual_seed(seed)

    @property
    def _search(self) -> Callable[..., Any]:
        """The search of the model's class; beam search for other models of the library."""
        return getattr(self._model, "search", beam_search.search)

    @torch.no_grad()
    def generate(
        self,
        sources: Sequence[TokenIds],
        prefixes: Sequence[TokenIds],
        *,
        search: SearchOptions | None,
        num_return_sequences: int = 1,
        **options: Any,
    ) -> Generated:
        """Translates a batch with the search of the model's class, or by sampling."""
        batch = self._padded(sources)
        if search is not None:  # `generate` encodes the sources, then calls the search with the model
            options |= {"custom_generate": self._search, "options": search, **self._search_arguments(batch)}
        if isinstance(search, BeamSearchOptions):
            # `generate` repeats everything for each beam. The penalty is that of `options`.
            options |= {"num_beams": search.num_beams, "length_penalty": 1.0}
        elif search is None and hasattr(self._model, "search_options"):
            options["search"] = None  # samples are the library's
        output = self._model.generate(
            **batch,
            decoder_input_ids=torch.tensor(prefixes, device=self._model.device),
            do_sample=search is None,
            num_return_sequences=num_return_sequences,
            return_dict_in_generate=True,
            use_cache=True,
            **options,
        )
        scores = getattr(output, "sequences_scores", None) if search is not None else None
        return Generated(output.sequences.tolist(), None if scores is None else scores.tolist())

    def _search_arguments(self, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Further arguments of the search for a batch of sources."""
        return {}

    @torch.no_grad()
    def score(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[list[float]]:
        """Returns the log-probability of each token of each target, given the source and the tokens before it."""
        labels = self._padded([ids[1:] for ids in targets])["input_ids"]
        logits = self._logits(sources, [ids[:-1] for ids in targets])  # [B, T, V]
        log_probabilities = logits.float().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1).tolist()
        return [row[: len(ids) - 1] for row, ids in zip(log_probabilities, targets, strict=True)]

    def _logits(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> torch.Tensor:
        """Returns the logits [B, T, V] of the token after each target token."""
        return self._model(**self._padded(sources), decoder_input_ids=self._padded(targets)["input_ids"]).logits

    @torch.no_grad()
    def attend(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns the attention weights of each pair, from one pass over all tokens."""
        output = self._model_with_eager_attention()(
            **self._padded(sources),
            decoder_input_ids=self._padded(targets)["input_ids"],
            output_attentions=True,
            use_cache=False,
        )
        if output.cross_attentions is None:
            raise ValueError(f"This {type(self._model).__name__} does not attend to the source: it has no weights.")
        encoder, decoder = output.encoder_attentions, output.decoder_attentions  # recurrent stacks have none
        lengths = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        pairs = []
        for row, (s, t) in enumerate(lengths):
            cross = _weights_of(output.cross_attentions, row, t, s)
            layer, heads = aligning_heads(self.config, *cross.shape[:2])
            pairs.append(
                Attention(
                    encoder=None if encoder is None else _weights_of(encoder, row, s, s),
                    decoder=None if decoder is None else _weights_of(decoder, row, t, t),
                    cross=cross,
                    alignment=cross[layer, :heads].mean(0),
                )
            )
        return pairs

    def _model_with_eager_attention(self) -> PreTrainedModel:
        """Returns a copy of the model whose attention is eager: other implementations return no weights.

        The copy is made once and shares the model's weights. Switching the model itself would change what other
        threads compute.
        """
        with LOADING:
            if self._eager_copy is None or not _have_same_tensors(self._eager_copy, self._model):
                eager_copy = copy_sharing_weights(self._model).eval()
                eager_copy.set_attn_implementation("eager")
                self._eager_copy = eager_copy
            return self._eager_copy

    def _padded(self, rows: Sequence[TokenIds]) -> dict[str, torch.Tensor]:
        """Returns ids and mask, padded on the right."""
        longest = max(map(len, rows))
        pad = self.config.pad_token_id
        ids = [[*row, *[pad] * (longest - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        return {name: tensor.to(self._model.device) for name, tensor in tensors.items()}


def _require_float32(quantization: str) -> None:
    if quantization != "float32":
        raise ValueError(
            f"quantization={quantization!r} is for CTranslate2: set backend='ctranslate2', or leave out quantization. "
            "torch has dtype."
        )


def longest_sequence(model: PreTrainedModel) -> int | None:
    """Returns how many tokens a model has positions for; `None` if there is no limit.

    This package's models declare it as `longest_sequence`. Other models have a table of `max_position_embeddings`.
    """
    return getattr(model, "longest_sequence", getattr(model.config, "max_position_embeddings", None))


def _weights_of(layers: tuple[torch.Tensor, ...], row: int, queries: int, keys: int) -> torch.Tensor:
    """Returns the weights [layers, heads, queries, keys] of a row of the batch, in float32: numpy has no bfloat16."""
    return torch.stack([layer[row, :, :queries, :keys] for layer in layers]).float().cpu()


def _have_same_tensors(model: PreTrainedModel, other: PreTrainedModel) -> bool:
    """Whether two models share all tensors. They no longer do after one was resized or moved to another device."""

    def tensor_ids(model: PreTrainedModel) -> list[int]:
        return [id(tensor) for tensor in chain(model.parameters(), model.buffers())]

    return tensor_ids(model) == tensor_ids(other)
