"""Train encoders to find one word in a long text, with window attention and with Longformer.

    vanilla benchmark retrieval
    vanilla benchmark retrieval --lengths 64 256 --output_dir runs/retrieval

A text is random noise with one of a few special words in its first half. The encoder must name that word at the last
token. With N layers and a window of w, a token learns nothing of those further away than N * w / 2. So a plain window
can only guess. Longformer's first token is global: it sees the word, and the last token sees it.

Each encoder is trained on texts of the first length, then with a few updates on those of each longer one, and tested
on new texts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.scripts.benchmarks.measuring import MeasurementArguments, conditions, set_up
from vanilla_transformer.scripts.benchmarks.report import Table, report


PATTERNS = ("window", "longformer")
LAYERS, WINDOW = 2, 16
# Ids of the first and the last token, and of the first special word.
START, QUESTION, FIRST_WORD = 1, 3, 4


@dataclass
class RetrievalBenchmarkArguments(MeasurementArguments):
    """The texts, and how long the encoders learn."""

    lengths: list[int] = key([64, 256, 1024, 4096, 16384], "Lengths of the texts, the shortest first.")
    words: int = key(8, "Number of special words: guessing is right once in so many times.")
    noise: int = key(4, "Number of other words.")
    max_tokens: int = key(4096, "Tokens in a batch; a longer text is a batch of its own.")
    steps: int = key(400, "Updates on texts of the first length.")
    more_steps: int = key(20, "Updates on texts of each other length.")
    tests: int = key(64, "Number of test texts of each length.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("words", "noise", "max_tokens", "steps", "tests"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")
        reach = LAYERS * WINDOW // 2
        if not self.lengths or min(self.lengths) // 2 <= reach:
            raise ValueError(
                f"--lengths {self.lengths}: give lengths of more than {2 * reach + 1}, so that the word is beyond "
                f"the {reach} tokens that {LAYERS} layers see."
            )


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([RetrievalBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: RetrievalBenchmarkArguments) -> Iterator[Table]:
    """One table: the share of right answers for each pattern and length."""
    device = set_up(options)
    rows = {}
    for pattern in PATTERNS:
        encoder = train(pattern, options, device)
        rows[pattern] = {f"{length:,} tokens": accuracy(encoder, length, options) for length in options.lengths}
    columns = list(rows["window"])
    rows["guessing"] = dict.fromkeys(columns, 1 / options.words)
    yield Table(
        f"right answers about a word far away; {LAYERS} layers, attention_window={WINDOW}; "
        f"{conditions(options, device)}",
        dict.fromkeys(columns, "{:.0%}"),
        rows,
        drawn=columns[-1:],
    )


def texts(number: int, length: int, options: RetrievalBenchmarkArguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Random texts [number, length], and which special word each has [number]."""
    first_noise = FIRST_WORD + options.words
    ids = torch.randint(first_noise, first_noise + options.noise, (number, length))
    words, places = torch.randint(options.words, (number,)), torch.randint(1, length // 2, (number,))
    ids[torch.arange(number), places] = FIRST_WORD + words
    ids[:, 0], ids[:, -1] = START, QUESTION
    return ids, words


def train(pattern: str, options: RetrievalBenchmarkArguments, device: torch.device) -> nn.Module:
    """Trains an encoder, first on the shortest texts and last on the longest."""
    torch.manual_seed(1)
    encoder = make_encoder(pattern, options).to(device).train()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    for length in options.lengths:
        steps = options.steps if length == options.lengths[0] else options.more_steps
        for _ in range(steps):
            ids, words = texts(max(1, options.max_tokens // length), length, options)
            loss = cross_entropy(scores(encoder, ids.to(device), options), words.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3  # the rest is fine tuning
    return encoder.eval()


def make_encoder(pattern: str, options: RetrievalBenchmarkArguments) -> VanillaTransformerEncoder:
    """A small encoder without positions: where a word is does not matter."""
    return VanillaTransformerEncoder(
        VanillaTransformerConfig(
            vocab_size=FIRST_WORD + options.words + options.noise,
            d_model=32,
            encoder_layers=LAYERS,
            encoder_attention_heads=2,
            encoder_ffn_dim=64,
            attention_pattern=pattern,
            attention_window=WINDOW,
            position_encoding="none",
            norm_placement="pre",
            dropout=0.0,
        )
    )


def scores(encoder: nn.Module, ids: torch.Tensor, options: RetrievalBenchmarkArguments) -> torch.Tensor:
    """The scores of the special words at the last token [B, words]: products with their embeddings."""
    words = encoder.embed_tokens.weight[FIRST_WORD : FIRST_WORD + options.words]
    return encoder(ids).last_hidden_state[:, -1] @ words.T


@torch.no_grad()
def accuracy(encoder: nn.Module, length: int, options: RetrievalBenchmarkArguments) -> float:
    """The share of right answers about new texts."""
    right, left = 0, options.tests
    while left:
        number = min(left, max(1, options.max_tokens // length))
        ids, words = texts(number, length, options)
        right += int(scores(encoder, ids.to(encoder.device), options).argmax(-1).cpu().eq(words).sum())
        left -= number
    return right / options.tests


if __name__ == "__main__":
    main()
