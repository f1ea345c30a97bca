"""Why BERT masks input tokens and not attention scores: an encoder with an output layer learns to fill them in."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerEncoderModel
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_mask_token
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import smooth
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Columns, Curves, Panel, Picture
from vanilla_transformer.training.data.demo_corpus import demo_corpus


REPLACED, BLOCKED, NOTHING = "tokens replaced", "attention blocked", "nothing hidden"
WAYS = (REPLACED, BLOCKED, NOTHING)
SHARE = 0.15  # of the tokens are to be predicted, as in BERT
RATE, BATCH = 3e-3, 64
LOSS, OWN, FOREIGN, HIDDEN = "training loss", "right as trained", "in a foreign context", "right where replaced"


@dataclass(frozen=True)
class Batch:
    """Sentences [B, T], which tokens of them are to be predicted, and which are padding."""

    ids: torch.Tensor
    chosen: torch.Tensor
    padding: torch.Tensor


@dataclass(frozen=True)
class Filler:
    """An encoder, the output layer on its states, and the id of `<mask>`."""

    encoder: VanillaTransformerEncoderModel
    output: nn.Linear
    mask_id: int

    def logits(self, batch: Batch, way: str) -> torch.Tensor:
        """Logits [N, V] of the tokens to be predicted, which are hidden in one of `WAYS`."""
        ids = batch.ids.masked_fill(batch.chosen, self.mask_id) if way == REPLACED else batch.ids
        visible = ~(batch.padding | batch.chosen) if way == BLOCKED else ~batch.padding
        states = self.encoder(ids, attention_mask=visible.long()).last_hidden_state
        return self.output(states[batch.chosen])


def explain(options: ExplainArguments) -> Explanation:
    """Filling in masked tokens: tokens replaced, attention to them blocked, nothing hidden."""
    updates = options.choose(600, quick=20)
    sizes = options.choose({"train": 6000, "test": 500}, quick={"train": 300, "test": 50})
    train, test = ([pair["en"] for pair in demo_corpus(split, size)] for split, size in sizes.items())
    tokenizer = with_mask_token(train_tokenizer(train, vocab_size=1000, show_progress=False))
    (unseen,) = batches(test, tokenizer, size=len(test), number=1, seed=1)
    losses, rows = {}, {}
    for way in WAYS:
        filler = make_filler(tokenizer)
        losses[way] = learn(filler, way, batches(train, tokenizer, size=BATCH, number=updates))
        rows[way] = {
            LOSS: smooth(losses[way])[-1],
            OWN: right(filler, unseen, way),
            FOREIGN: right(filler, in_foreign_context(unseen), way),
            HIDDEN: right(filler, unseen, REPLACED),
        }
    table = Table(
        f"an encoder that fills in {SHARE:.0%} of the tokens of demo sentences, {updates} updates, one seed",
        {LOSS: "{:.3f}", **dict.fromkeys((OWN, FOREIGN, HIDDEN), "{:.0%}")},
        rows,
        notes=[
            f"{len(test)} unseen sentences. Foreign context: all other tokens come from other sentences. A model that",
            "was trained without <mask> does not know it; it does not know the neighbours of a token either.",
        ],
    )
    points = range(10, 10 * len(smooth(losses[REPLACED])) + 1, 10)
    curves = {way: smooth(values) for way, values in losses.items()}
    tests = {"as trained": OWN, "foreign\ncontext": FOREIGN, "token\nreplaced": HIDDEN}
    groups = {name: {way: 100 * row[column] for way, row in rows.items()} for name, column in tests.items()}
    panels: list[Panel] = [
        Curves("filling in tokens", "update", "training loss, nats", points, curves, markers=False),
        Columns("unseen sentences", "how they are tested", "right tokens, %", groups, "{:.0f}"),
    ]
    return Explanation([table], [Picture("A token that is visible at its place is copied, not predicted", [panels])])


def make_filler(tokenizer: PreTrainedTokenizerBase) -> Filler:
    """A small encoder with an output layer, always with the same first weights."""
    torch.manual_seed(0)
    sizes = {"d_model": 64, "encoder_layers": 2, "encoder_ffn_dim": 128, "dropout": 0.0}
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), **sizes)
    encoder = VanillaTransformerEncoderModel(config)
    return Filler(encoder, nn.Linear(config.d_model, len(tokenizer)), tokenizer.mask_token_id)


def batches(
    texts: list[str], tokenizer: PreTrainedTokenizerBase, *, size: int, number: int, seed: int = 0
) -> Iterator[Batch]:
    """Random sentences, with other tokens to be predicted each time."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.tensor(ids) for ids in tokenizer(texts)["input_ids"]]
    for _ in range(number):
        drawn = torch.randperm(len(rows), generator=generator)[:size].tolist()
        ids = pad_sequence([rows[row] for row in drawn], batch_first=True, padding_value=tokenizer.pad_token_id)
        padding = ids == tokenizer.pad_token_id
        words = ~padding & (ids != tokenizer.eos_token_id)
        yield Batch(ids, words & (torch.rand(ids.shape, generator=generator) < SHARE), padding)


def learn(filler: Filler, way: str, data: Iterator[Batch]) -> list[float]:
    """Trains with Adam on the cross-entropy of the chosen tokens, and returns the losses."""
    optimizer = torch.optim.Adam([*filler.encoder.train().parameters(), *filler.output.parameters()], lr=RATE)
    losses = []
    for batch in data:
        loss = F.cross_entropy(filler.logits(batch, way), batch.ids[batch.chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    filler.encoder.eval()
    return losses


@torch.no_grad()
def right(filler: Filler, batch: Batch, way: str) -> float:
    """Share of the chosen tokens that are predicted when they are hidden in some way."""
    return (filler.logits(batch, way).argmax(-1) == batch.ids[batch.chosen]).float().mean().item()


def in_foreign_context(batch: Batch) -> Batch:
    """The same tokens to be predicted, among tokens of other sentences."""
    others = ~(batch.chosen | batch.padding)
    ids, context = batch.ids.clone(), batch.ids[others]
    ids[others] = context[torch.randperm(len(context), generator=torch.Generator().manual_seed(0))]
    return Batch(ids, batch.chosen, batch.padding)
