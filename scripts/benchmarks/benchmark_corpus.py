"""The text that systems are compared on: learned vocabulary, tokens, and a limit that all pairs fit in."""

from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.parallel_corpus import load_corpus
from vanilla_transformer.training.data.tokenized_pairs import tokenize
from vanilla_transformer.training.data.vocabulary import sentences


@dataclass
class BenchmarkCorpusArguments(CorpusArguments):
    """The corpus of a benchmark. Its languages only name files and columns."""

    source_lang: str | None = key("en", "Suffix or column of the source side.")
    target_lang: str | None = key("de", "Suffix or column of the target side.")


def learn_and_tokenise(corpus_arguments: CorpusArguments, vocab_size: int) -> tuple[PreTrainedTokenizerBase, Dataset]:
    """A tokenizer with a joint vocabulary of the training text, and the tokenised text."""
    if corpus_arguments.streaming:
        raise ValueError("--streaming: a stream cannot be reordered, leave it out.")
    text = load_corpus(corpus_arguments, splits=("train",))["train"]
    tokenizer = train_tokenizer(sentences(text, ["source", "target"]), vocab_size=vocab_size, show_progress=False)
    return tokenizer, tokenize(text, tokenizer, num_proc=corpus_arguments.num_proc)


def longest_fitting(max_tokens: int, source: np.ndarray, target: np.ndarray) -> int:
    """The length of the longest side of all pairs; raises an error if it does not fit in a batch."""
    longest = int(max(source.max(), target.max()))
    if longest > max_tokens:
        raise ValueError(
            f"--max_tokens {max_tokens}: the longest pair has {longest} tokens on a side. Give at least that, or "
            "leave out long pairs with --max_words."
        )
    return longest
