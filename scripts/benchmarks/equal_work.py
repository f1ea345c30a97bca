"""Decoding of identical work: the same token ids, the same weights, the same number of steps for all systems.

With real text, systems differ in when they stop, in which sentences they drop from the batch, and in how they sort.
Here they get one batch, and no hypothesis can end before the last step. What remains is the speed of encoder, steps
and search.
"""

import copy
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.converters import to_ctranslate2 as ctranslate2_converter
from vanilla_transformer.converters.from_and_to_marian import to_marian
from vanilla_transformer.cpu import packed_decoder_steps
from vanilla_transformer.models import beam_search, decoder_steps


System = Callable[[], list[int]]  # returns the length of each translation


@torch.no_grad()
def make_endless(model: VanillaTransformerForConditionalGeneration) -> None:
    """Makes the end of sentence impossible, without any work at the steps.

    The output of the last norm gets a mean of 1, and the end of sentence a vector that points the other way.
    """
    model.model.decoder.layers[-1].feed_forward_residual.norm.bias.fill_(1.0)
    model.lm_head.weight[model.config.eos_token_id].fill_(-10.0)


@dataclass
class EqualWork:
    """Systems that decode one batch for the same number of steps.

    Args:
        model: The model, whose hypotheses never end.
        tokenizer: Its tokenizer.
        lines: The text of the batch.
        length: Number of steps.
        engines: The engines to measure besides torch.
    """

    model: VanillaTransformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    lines: list[str]
    length: int
    engines: list[str]

    def systems(self, beams: int, reference: str) -> dict[str, System]:
        """The systems by name."""
        search = {"custom_generate": beam_search.search}
        systems: dict[str, System] = {
            reference: partial(self._generate, to_marian(self.model), beams),
            "this model, beam_search": partial(self._generate, self.model, beams, **search),
            # Without oneDNN's private order of weights, and without anything of the room.
            "this model, weights transposed": patch.object(packed_decoder_steps, "LEAST_FOR_ONEDNN", math.inf)(
                partial(self._generate, copy.deepcopy(self.model), beams, **search)
            ),
            "this model, without cpu/": patch.object(decoder_steps, "FASTER_STEPPERS", [])(
                partial(self._generate, self.model, beams, **search)
            ),
        }
        if "ctranslate2" in self.engines:
            systems["CTranslate2"] = self._ctranslate2(beams, "float32")
            systems["CTranslate2 int8"] = self._ctranslate2(beams, "int8")
        return systems

    def require_equal(self, lengths: Iterator[list[int]]) -> None:
        """Refuses translations of any other length."""
        if any(length != self.length for system in lengths for length in system):
            raise RuntimeError(f"A translation does not have {self.length} tokens: the work was not equal.")

    def _generate(self, model: PreTrainedModel, beams: int, **options: Any) -> list[int]:
        batch = self.tokenizer(self.lines, padding=True, return_tensors="pt")
        penalty = {"length_penalty": 0.6} if beams > 1 else {}
        rows = model.generate(**batch, num_beams=beams, max_new_tokens=self.length, **penalty, **options)
        return [rows.shape[1] - 1] * len(rows)

    def _ctranslate2(self, beams: int, quantization: str) -> System:
        engine = ctranslate2_converter.require_ctranslate2()
        with tempfile.TemporaryDirectory() as folder:
            ctranslate2_converter.export(self.model, self.tokenizer, folder, quantization=quantization)
            translator = engine.Translator(folder, intra_threads=torch.get_num_threads())

        def translate() -> list[int]:
            sources = [self.tokenizer(line).tokens() for line in self.lines]
            options = {"num_beams": beams, "max_new_tokens": self.length}
            return [len(tokens) for tokens in ctranslate2_converter.translate(translator, sources, **options)]

        return translate
