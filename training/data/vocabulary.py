"""Learns subword vocabularies from a corpus: one for all languages, or one for each side.

With several directions, small languages are repeated in the text that is learned from, and the characters of every
language are whole before subwords are learned from them: otherwise many Chinese characters would stay three bytes.
"""

import copy
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.models.tokenization_vanilla_transformer import (
    BYTES,
    SPECIAL_TOKENS,
    capitals_in,
    save_tokenizers,
    train_tokenizer,
    with_language_tags,
    with_placeholders,
)
from vanilla_transformer.safe_files.standard_streams import on_terminal
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.data.corpus_mixing import DIRECTION, copies, temperature_weights


logger = logging.getLogger(__name__)

WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my")  # languages whose text is counted in characters
COVERAGE = 0.9995  # of the characters of each language, with several directions
SAMPLE = 1000  # sentences of a language for the report
PRIVATE = 0xF0000  # the first of the characters that no text has: one stands for each token of a vocabulary

Texts = dict[str, Callable[[], Iterator[str]]]  # the text of each language; each call reads it again


def learn_vocabularies(
    text: Dataset | IterableDataset, options: VocabularyArguments, folder: str | Path, *, seed: int = 0
) -> list[int]:
    """Learns from the columns `source` and `target`, saves the tokenizers in `folder`, and returns their sizes.

    A separate target tokenizer is saved as `save_tokenizers` does, in the subfolder `target`. With several target
    languages, the source or joint tokenizer has a tag for each of them, which counts in its size.

    Args:
        text: The parallel text, with the column `direction` if it has several.
        options: How to learn.
        folder: The folder for the tokenizers.
        seed: Seed of the text that is drawn to balance languages.
    """
    print(f"Learning a vocabulary of {options.vocab_size:,} subwords.", file=sys.stderr, flush=True)
    sides = [["source"], ["target"]] if options.separate else [["source", "target"]]
    tags = tagged_languages(text)
    tokenizers = []
    for columns in sides:
        size = options.vocab_size - len(tags) - options.placeholders
        learned = with_language_tags(_learn(_texts(text, columns, options, seed), options, size), tags)
        tokenizers.append(with_placeholders(learned, options.placeholders))
        tags = []  # only the source has them
    save_tokenizers(folder, *tokenizers)
    return [len(tokenizer) for tokenizer in tokenizers]


def extend_vocabulary(
    text: Dataset | IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    options: VocabularyArguments,
    folder: str | Path,
    known: Iterable[str] = (),
    *,
    seed: int = 0,
) -> int:
    """Adds subwords for new languages to a trained vocabulary, saves the tokenizer, and returns its size.

    The frequent characters of the new languages come first, and do not count as `added_subwords`.

    Args:
        text: The parallel text, with the column `direction` if it has several.
        tokenizer: The joint tokenizer of a trained model.
        options: How to learn, and how many subwords.
        folder: The folder for the tokenizer.
        known: The languages of the model. If the text has no others, subwords are learned from all of it.
        seed: Seed of the text that is drawn to balance languages.
    """
    if not isinstance(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None), models.BPE):
        raise ValueError("added_subwords needs a BPE vocabulary, such as those of vanilla train: leave it out.")
    texts, known = _texts(text, ["source", "target"], options, seed), set(known)
    texts = {language: read for language, read in texts.items() if language not in known} or texts
    coverage = COVERAGE if options.character_coverage is None else options.character_coverage
    characters = chain.from_iterable(frequent_characters(read(), tokenizer, coverage) for read in texts.values())
    vocabulary = tokenizer.get_vocab()
    missing = [merge for merge in merges_of_characters(characters) if "".join(merge) not in vocabulary]
    longer = extended(with_merges(tokenizer, missing), _all(texts), options.added_subwords, options.min_frequency)
    lost = [letter for letter in capitals_in(_all(texts)) if _is_lost(letter, tokenizer)]
    if lost and "A" not in lost:  # else the vocabulary has no capitals on purpose
        logger.warning(
            f"The vocabulary has no capitals {', '.join(lost[:20])}{', …' * (len(lost) > 20)}: they are read as small "
            "letters. new_vocabulary with mark_capitals makes one that has them."
        )
    save_tokenizers(folder, longer)
    return len(longer)


def _is_lost(letter: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    ids = tokenizer(letter, add_special_tokens=False)["input_ids"]
    return tokenizer.decode(ids) != letter


def tagged_languages(text: Dataset | IterableDataset) -> list[str]:
    """Returns the target languages of a corpus if it has several: a model with one target needs no tag."""
    targets = dict.fromkeys(direction.target for direction in _directions(text))
    return list(map(str, targets)) if len(targets) > 1 else []


def _directions(text: Dataset | IterableDataset) -> list[Languages]:
    """Returns the directions of a corpus with several."""
    names = text.features[DIRECTION].names if DIRECTION in (text.column_names or ()) else []
    return list(map(Languages.parse, names))


def _learn(texts: Texts, options: VocabularyArguments, size: int) -> PreTrainedTokenizerFast:
    how: dict[str, Any] = {
        "algorithm": options.algorithm,
        "normalization": options.normalization,
        "lowercase": options.lowercase,
        "capitals": capitals_in(_all(texts)) if options.mark_capitals else "",
        "min_frequency": options.min_frequency,
        "show_progress": on_terminal(sys.stderr),
    }
    coverage = options.character_coverage
    if coverage is None:
        coverage = COVERAGE if len(texts) > 1 and options.algorithm == "bpe" else 0
    if not coverage:
        return train_tokenizer(_all(texts), vocab_size=size, **how)
    tokenizer = train_tokenizer([], vocab_size=len(SPECIAL_TOKENS) + len(BYTES), **{**how, "show_progress": False})
    characters = chain.from_iterable(frequent_characters(read(), tokenizer, coverage) for read in texts.values())
    tokenizer = with_merges(tokenizer, merges_of_characters(characters))
    if len(tokenizer) > size:
        raise ValueError(
            f"vocab_size={options.vocab_size:,} is too small for the characters of the text, which need "
            f"{len(tokenizer):,}: raise it, or lower character_coverage from {coverage}."
        )
    return extended(tokenizer, _all(texts), size - len(tokenizer), options.min_frequency)


# --- the text ---


def _texts(text: Dataset | IterableDataset, columns: list[str], options: VocabularyArguments, seed: int) -> Texts:
    """Returns the text to learn from, by language if there are several directions."""
    if not (directions := _directions(text)):
        number = options.vocabulary_pairs
        if number is not None and isinstance(text, Dataset) and number < len(text):
            # The parts of a corpus, such as parliament, web and news, follow each other.
            text = text.select(np.sort(np.random.default_rng(seed).choice(len(text), number, replace=False)))
        return {"": partial(sentences, text, columns, number)}
    assert isinstance(text, Dataset)  # several directions are never streamed
    of_pair = text.with_format("numpy")[DIRECTION][:]
    parts: dict[
        tuple[str, frozenset], tuple[str, np.ndarray]
    ] = {}  # a bitext counts once, also if it serves both ways
    for number, direction in enumerate(directions):
        for column, language in zip(("source", "target"), direction, strict=True):
            if column in columns:
                parts.setdefault((str(language), frozenset(direction)), (column, np.flatnonzero(of_pair == number)))
    by_language: dict[str, list[tuple[str, np.ndarray]]] = {}
    for (language, _), part in parts.items():
        by_language.setdefault(language, []).append(part)
    sizes = [sum(len(rows) for _, rows in of_language) for of_language in by_language.values()]
    weights = temperature_weights(sizes, options.vocabulary_temperature)
    if options.vocabulary_pairs is not None:
        total = sum(size * weight for size, weight in zip(sizes, weights, strict=True))
        weights = [weight * min(1, len(columns) * options.vocabulary_pairs / total) for weight in weights]
    return {
        language: partial(_repeated, text, of_language, weight, seed)
        for (language, of_language), weight in zip(by_language.items(), weights, strict=True)
    }


def _repeated(text: Dataset, parts: list[tuple[str, np.ndarray]], weight: float, seed: int) -> Iterator[str]:
    for column, rows in parts:
        yield from sentences(text.select(rows[copies(len(rows), weight, seed)]), [column])


def _all(texts: Texts) -> Iterator[str]:
    return chain.from_iterable(read() for read in texts.values())


def sentences(dataset: Dataset | IterableDataset, columns: list[str], pairs: int | None = None) -> Iterator[str]:
    """Yields the sentences of some columns, with a thousand pairs in memory at a time."""
    for batch in islice(dataset.iter(batch_size=1000), None if pairs is None else -(-pairs // 1000)):
        for column in columns:
            yield from batch[column]


# --- whole characters, and more subwords for a vocabulary ---


def frequent_characters(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, coverage: float) -> list[str]:
    """Returns the most frequent characters that make up a share of the text.

    Args:
        texts: The texts.
        tokenizer: The tokenizer that normalises them.
        coverage: The share, for example 0.9995.
    """
    normalize = tokenizer.backend_tokenizer.normalizer.normalize_str
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalize(text))
    chosen, missing = [], counts.total() * coverage
    for character, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if missing <= 0:
            break
        chosen.append(character)
        missing -= count
    return chosen


def merges_of_characters(characters: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the merges that make characters of their UTF-8 bytes, from the first byte on."""
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merges: dict[tuple[str, str], None] = {}
    for character in characters:
        ((mapped, _),) = as_bytes.pre_tokenize_str(character)
        merges |= {(mapped[:end], mapped[end]): None for end in range(1, len(mapped))}
    return list(merges)


def extended(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], number: int, min_frequency: int = 2
) -> PreTrainedTokenizerBase:
    """Learns more subwords, each of two tokens that the vocabulary has. They come last, so other text changes little.

    Args:
        tokenizer: A BPE tokenizer; it stays as it is.
        texts: The text to learn from, for example of a new language.
        number: How many subwords to learn at most.
        min_frequency: How often two tokens must be adjacent.

    Returns:
        A copy of the tokenizer with more tokens at the end.
    """

    def words() -> Iterator[str]:
        remaining = iter(texts)
        while batch := list(islice(remaining, 1000)):
            for encoding in tokenizer.backend_tokenizer.encode_batch(batch, add_special_tokens=False):
                tokens = zip(encoding.ids, encoding.word_ids, strict=True)
                yield " ".join(
                    "".join(chr(PRIVATE + token_id) for token_id, _ in word)
                    for _, word in groupby(tokens, key=itemgetter(1))
                )

    learning = Tokenizer(models.BPE())
    learning.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(tokenizer) + number,
        min_frequency=min_frequency,
        initial_alphabet=[chr(PRIVATE + token_id) for token_id in range(len(tokenizer))],
        show_progress=on_terminal(sys.stderr),
    )
    learning.train_from_iterator(words(), trainer)
    names = {token_id: token for token, token_id in tokenizer.get_vocab().items()}
    merges = json.loads(learning.to_str())["model"]["merges"]
    return with_merges(
        tokenizer,
        [
            (
                "".join(names[ord(each) - PRIVATE] for each in one),
                "".join(names[ord(each) - PRIVATE] for each in other),
            )
            for one, other in merges
        ],
    )


def with_merges(tokenizer: PreTrainedTokenizerBase, merges: Iterable[tuple[str, str]]) -> PreTrainedTokenizerBase:
    """Returns a copy of a BPE tokenizer with more merges after its own, and a token for each at the end."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    model = content["model"]
    if model["type"] != "BPE":
        raise ValueError(f"Only a BPE vocabulary can get more subwords, not {model['type']}: leave it as it is.")
    # Tags are in the list of added tokens only. If the vocabulary had a gap there, its ids would move.
    model["vocab"] = {**model["vocab"], **tokenizer.get_added_vocab()}
    for merge in merges:
        model["vocab"].setdefault("".join(merge), len(model["vocab"]))
        model["merges"].append(list(merge))
    changed = copy.deepcopy(tokenizer)
    changed._tokenizer = Tokenizer.from_str(json.dumps(content))
    return changed


# --- report ---


def tokens_per_word(
    text: Dataset, tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase | None = None
) -> dict[str, dict[str, Any]]:
    """Returns for each language of several directions the tokens of a word, or of a character where there are no
    words, and the share of tokens that are less than a character. They are measured on at most 1,000 sentences.

    Args:
        text: Text with its direction, without tags.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
    """
    of_pair = text.with_format("numpy")[DIRECTION][:]
    rows: dict[str, dict[str, Any]] = {}
    for number, direction in enumerate(_directions(text)):
        for column, language, side in zip(
            ("source", "target"), direction, (tokenizer, target_tokenizer or tokenizer), strict=True
        ):
            if str(language) in rows:
                continue
            pairs = np.flatnonzero(of_pair == number)
            sample = text.select(pairs[:: -(-len(pairs) // SAMPLE)])[column][:]
            in_characters = str(language).split("_")[0].lower() in WITHOUT_SPACES
            units = sum(len(line) if in_characters else len(line.split()) for line in sample)
            ids = list(chain.from_iterable(side(sample, add_special_tokens=False)["input_ids"]))
            parts = sum(_is_part_of_character(token) for token in side.convert_ids_to_tokens(ids))
            rows[str(language)] = {
                "counted in": "characters" if in_characters else "words",
                "tokens each": round(len(ids) / max(units, 1), 2),
                "parts of characters": f"{parts / max(len(ids), 1):.2%}",
            }
    return rows


def _is_part_of_character(token: str) -> bool:
    return "\ufffd" in decoders.ByteLevel().decode([token])
