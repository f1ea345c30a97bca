"""An engine for tests whose translation is the text, with attention of each token to the one in its place."""

from types import SimpleNamespace

import torch
from transformers import GenerationConfig

from vanilla_transformer.engines.engine import Attention, Generated


class CopyingBackend:
    """An engine whose translation is the text, or what a function makes of its ids."""

    name, title, longest_input = "copying", "the copying engine", None

    def __init__(self, placeholders=9, changed=list):
        self.config = SimpleNamespace(
            placeholders=placeholders,
            decoder_start_token_id=1,
            pad_token_id=0,
            vocab_size=310,
            is_encoder_decoder=True,
        )
        self.model = SimpleNamespace(config=self.config, generation_config=GenerationConfig())
        self.generation_config = self.model.generation_config
        self.changed, self.read = changed, []

    def require_options(self, options, *, sample=False, glossary=False):
        """Everything is possible."""

    require_support = require_options

    def generate(self, sources, prefixes, *, search, num_return_sequences=1, **options):
        self.read += sources
        rows = [
            [*prefix, *self.changed(source[len(prefix) - 1 :])]
            for source, prefix in zip(sources, prefixes, strict=True)
            for _ in range(num_return_sequences)
        ]
        length = options.get("max_length")
        return Generated([row[:length] for row in rows], [-1.0] * len(rows))

    def score(self, sources, targets):
        return [[-0.5] * (len(target) - 1) for target in targets]

    def attend(self, sources, targets):
        """Each token attends to the one in its place."""
        crosses = [
            torch.eye(max(len(target), len(source)))[: len(target), : len(source)]
            for source, target in zip(sources, targets, strict=True)
        ]
        return [
            Attention(
                torch.eye(cross.shape[1])[None, None], torch.eye(len(cross))[None, None], cross[None, None], cross
            )
            for cross in crosses
        ]


def without(*pieces):
    """Makes a function that drops the tokens of pieces of text."""

    def changed(tokenizer):
        return lambda ids: [number for number in ids if tokenizer.decode([number]).strip() not in pieces]

    return changed
