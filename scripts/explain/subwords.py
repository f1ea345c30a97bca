"""BPE, WordPiece and Unigram on the same text."""

from collections.abc import Sequence

from tokenizers import decoders
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.models.tokenization_vanilla_transformer import INSIDE, Algorithm, train_tokenizer
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.training.data.demo_corpus import demo_corpus


ALGORITHMS: tuple[Algorithm, ...] = ("bpe", "wordpiece", "unigram")
WORDS = ("unfriendly", "bookshelf", "Kindergarten", "translated", "Sprachwissenschaftler")
SHARED = "WordPiece's that BPE has"


def explain(options: ExplainArguments) -> Explanation:
    """BPE, WordPiece and Unigram on the same text: how finely they split, and what they share."""
    sizes = options.choose([600, 1000, 2000], quick=[600, 800])
    texts = corpus_text("train", options.choose(2000, quick=300))
    unseen = corpus_text("test", options.choose(200, quick=50))
    rows: dict[str, dict[str, float]] = {}
    for size in sizes:
        learned = {name: learn(texts, name, size) for name in ALGORITHMS}
        rows[f"{size:,}"] = {
            **{name: tokens_per_word(tokenizer, unseen) for name, tokenizer in learned.items()},
            SHARED: shared_merges(learned["wordpiece"], learned["bpe"]),
        }
    split = Table(
        "tokens per word of unseen sentences, by size of the vocabulary",
        {**dict.fromkeys(ALGORITHMS, "{:.2f}"), SHARED: "{:.1%}"},
        rows,
        notes=[
            f"{SHARED}: share of WordPiece's subwords that BPE learned too, single bytes left out.",
            "WordPiece needs 256 tokens more for single bytes: inside a word they are other tokens than at its start.",
        ],
    )
    examples = Table(
        f"unusual words with a vocabulary of {sizes[-1]:,}",
        dict.fromkeys(ALGORITHMS, "{}"),
        {word: {name: pieces(tokenizer, word) for name, tokenizer in learned.items()} for word in WORDS},
    )
    curves = {str(name): [row[name] for row in rows.values()] for name in ALGORITHMS}
    panels = [
        Curves("how finely text is split", "size of the vocabulary", "tokens per word", sizes, curves),
        Curves(
            "WordPiece's subwords that BPE has",
            "size of the vocabulary",
            "share, %",
            sizes,
            {"share": [100 * row[SHARED] for row in rows.values()]},
        ),
    ]
    return Explanation([split, examples], [Picture("Subwords learned from the same text", [panels])])


def corpus_text(split: str, size: int) -> list[str]:
    """Sentences of both languages of the demo corpus."""
    return [text for pair in demo_corpus(split, size) for text in pair.values()]


def learn(texts: Sequence[str], algorithm: Algorithm, size: int) -> PreTrainedTokenizerFast:
    return train_tokenizer(texts, vocab_size=size, algorithm=algorithm, show_progress=False)


def tokens_per_word(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> float:
    """Tokens, end of sentence left out, divided by words."""
    tokens = sum(len(ids) - 1 for ids in tokenizer(list(texts)).input_ids)
    return tokens / sum(len(text.split()) for text in texts)


def merges(tokenizer: PreTrainedTokenizerFast) -> set[str]:
    """Subwords of more than one byte, without the mark of a subword inside a word."""
    words = {token.replace(INSIDE, "") for token in tokenizer.get_vocab()}
    return {word for word in words if len(word) > 1} - set(tokenizer.all_special_tokens)


def shared_merges(first: PreTrainedTokenizerFast, second: PreTrainedTokenizerFast) -> float:
    """Share of the first tokenizer's subwords that the second has too."""
    return len(merges(first) & merges(second)) / max(len(merges(first)), 1)


def pieces(tokenizer: PreTrainedTokenizerFast, word: str) -> str:
    """The subwords of a word, readable and with bars between them."""
    tokens = [token.replace(INSIDE, "") for token in tokenizer.tokenize(word)]
    return "|".join(decoders.ByteLevel().decode([token]) for token in tokens).strip(" |")  # the space may be a token
