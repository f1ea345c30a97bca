"""Lossless subword tokenizers, trained with `tokenizers` and loaded by `AutoTokenizer` without this package.

Text is normalised (NFC by default). A space is put before it, so that a word has the same subwords at the start of a
sentence as inside it. The result is read as UTF-8 bytes, and every byte is in the vocabulary. So every string can be
restored from its ids, and `<unk>` is never needed. All of this is stored in tokenizer.json; there is no class to
import.

With `capitals`, case is written apart (inline casing: Bérard et al. 2019, "NAVER LABS Europe's Systems for the WMT19
Machine Translation Robustness Task"): `The STATION` becomes `↥ the station⇪`. So a word has the same subwords in any
case, and a translation in capitals is a translation with marks.
"""

import copy
import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)


if TYPE_CHECKING:  # importing them imports torch, which other engines do not need
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


Algorithm = Literal["bpe", "wordpiece", "unigram"]
Normalization = Literal["nfc", "nfkc", "none"]

# Their ids are 0 to 3 in this order: the defaults of `VanillaTransformerConfig`.
SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
MASK_TOKEN = "<mask>"  # only for models that predict masked tokens: it follows the learned vocabulary
TARGET = "target"  # the subfolder of a separate target tokenizer
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
# WordPiece marks subwords inside a word. BERT's "##" could occur in text. This character can't: it stands for no byte.
INSIDE = "‿"

# Before a word with a capital and after a word in capitals. In a text itself they are lost.
CAPITAL_MARK, CAPITALS_MARK = "↥", "⇪"
_MARKS = f"[{CAPITAL_MARK}{CAPITALS_MARK}]"

_NORMALIZERS: dict[str, list[Any]] = {"nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()], "none": []}


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 37000,
    algorithm: Algorithm = "bpe",
    normalization: Normalization = "nfc",
    lowercase: bool = False,
    capitals: str = "",
    min_frequency: int = 2,
    show_progress: bool = True,
) -> "PreTrainedTokenizerFast":
    """Learns a vocabulary from texts.

    The texts are read once and not kept in memory. Memory grows with the number of distinct words (BPE, WordPiece) or
    with a table of their substrings (Unigram).

    Args:
        texts: Sentences, of both languages for a joint vocabulary.
        vocab_size: Size of the vocabulary, special tokens and bytes included. A small corpus may give a smaller one.
        algorithm: `"bpe"` (Sennrich et al. 2016; the paper's English-German), `"wordpiece"` (greedy longest match, in
            the style of the paper's English-French) or `"unigram"` (Kudo 2018).
        normalization: Unicode form of all text: `"nfc"`, `"nfkc"` (which also unifies compatible characters) or
            `"none"`.
        lowercase: Whether to lower-case text. The original case is lost.
        capitals: Capital letters that become marks and small letters. The case of all others is lost.
        min_frequency: How often a pair of subwords must occur to be merged (BPE and WordPiece).
        show_progress: Whether to show progress bars.

    Returns:
        A tokenizer whose `tokenizer(source, text_target=target)` gives `input_ids`, `attention_mask` and `labels`.
        Both sides end with `</s>`.
    """
    from transformers import PreTrainedTokenizerFast

    _check_choices(algorithm, normalization)
    smallest = len(SPECIAL_TOKENS) + len(BYTES) * (2 if algorithm == "wordpiece" else 1)
    if vocab_size < smallest:
        raise ValueError(f"vocab_size={vocab_size} can't hold the bytes and special tokens: use {smallest} or more.")

    tokenizer = Tokenizer(_untrained(algorithm))
    steps = [*_NORMALIZERS[normalization], *([normalizers.Lowercase()] if lowercase else []), normalizers.Prepend(" ")]
    splits: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    decoding_steps: list[Any] = [decoders.Replace(INSIDE, "")] if algorithm == "wordpiece" else []
    decoding_steps += [decoders.ByteLevel(), decoders.Fuse()]
    if capitals:
        steps += _marking(capitals)
        splits.insert(0, pre_tokenizers.Split(Regex(_MARKS), "isolated"))
        decoding_steps += _unmarking(capitals)
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits) if capitals else splits[0]
    decoding_steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(decoding_steps)
    tokenizer.train_from_iterator(texts, _trainer(algorithm, vocab_size, min_frequency, show_progress))
    if algorithm == "wordpiece":
        tokenizer = _without_special_bytes(tokenizer)
    elif algorithm == "unigram":
        tokenizer.model = _in_one_order(tokenizer)

    eos = SPECIAL_TOKENS["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    # The text "</s>" in a corpus is ordinary text: it must not become the end of sentence, nor be dropped.
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, split_special_tokens=True, clean_up_tokenization_spaces=False, **SPECIAL_TOKENS
    )


def save_tokenizers(
    folder: str | Path, tokenizer: "PreTrainedTokenizerBase", target_tokenizer: "PreTrainedTokenizerBase | None" = None
) -> None:
    """Saves tokenizers as `load_tokenizers` reads them: the target's is in a subfolder.

    Args:
        folder: The folder.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target's, for separate vocabularies. It is left out if it is the same object.
    """
    tokenizer.save_pretrained(folder)
    if target_tokenizer is not None and target_tokenizer is not tokenizer:
        target_tokenizer.save_pretrained(Path(folder) / TARGET)


def with_mask_token(tokenizer: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """Returns a tokenizer that has `<mask>`: the same one, or a copy with one more token at the end.

    Args:
        tokenizer: The tokenizer of the target.
    """
    if tokenizer.mask_token is not None:
        return tokenizer
    masking = copy.deepcopy(tokenizer)
    masking.add_special_tokens({"mask_token": MASK_TOKEN})
    return masking


def language_tag(language: str) -> str:
    """Returns the tag that asks for a target language, as OPUS-MT writes it: `>>de<<` (Johnson et al. 2017)."""
    return f">>{language}<<"


def with_language_tags(tokenizer: "PreTrainedTokenizerBase", languages: Iterable[str]) -> "PreTrainedTokenizerBase":
    """Returns a tokenizer that has a tag for each target language: the same one, or a copy with more tokens.

    A tag is a plain token that no normalisation changes: a special one would be split (`split_special_tokens`). It
    takes the space after it, so a text has the same subwords with and without a tag.

    Args:
        tokenizer: The joint or source tokenizer.
        languages: The target languages.
    """
    vocabulary = tokenizer.get_vocab()
    missing = [tag for language in languages if (tag := language_tag(language)) not in vocabulary]
    if not missing:
        return tokenizer
    tagging = copy.deepcopy(tokenizer)
    tagging.add_tokens([AddedToken(tag, normalized=False, special=False, rstrip=True) for tag in missing])
    return tagging


def language_tags(tokenizer: "PreTrainedTokenizerBase") -> dict[str, int]:
    """Returns the target languages that a tokenizer has tags for, and the id of each tag."""
    added = sorted(tokenizer.get_added_vocab().items(), key=lambda entry: entry[1])
    return {token[2:-2]: token_id for token, token_id in added if token.startswith(">>") and token.endswith("<<")}


def with_placeholders(tokenizer: "PreTrainedTokenizerBase", number: int) -> "PreTrainedTokenizerBase":
    """Returns a tokenizer that has the placeholders `⟨1⟩`, `⟨2⟩` ...: the same one, or a copy with more tokens.

    The text after an added token gets the space that every text begins with, so decoding drops one there.

    Args:
        tokenizer: The joint tokenizer, or that of one side.
        number: How many placeholders.
    """
    vocabulary = tokenizer.get_vocab()
    missing = [name for place in range(1, number + 1) if (name := placeholder(place)) not in vocabulary]
    if not missing:
        return tokenizer
    replacing = copy.deepcopy(tokenizer)
    replacing.add_tokens([AddedToken(name, normalized=False, special=False) for name in missing])
    content = json.loads(replacing.backend_tokenizer.to_str())
    steps = content["decoder"]["decoders"]
    fused = next(place for place, step in enumerate(steps) if step["type"] == "Fuse")
    drop = {"type": "Replace", "pattern": {"Regex": f"(?<={placeholder('[1-9]')}) "}, "content": ""}
    if drop not in steps:
        steps.insert(fused + 1, drop)
    replacing._tokenizer = Tokenizer.from_str(json.dumps(content))
    return replacing


def placeholders_in(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Returns how many placeholders a tokenizer has: the model that it belongs to has learned to copy them."""
    vocabulary = tokenizer.get_added_vocab()
    return next(number for number in count() if placeholder(number + 1) not in vocabulary)


def placeholder(number: int | str) -> str:
    """Returns the placeholder of something that a translation copies: `⟨1⟩` for the first."""
    return f"⟨{number}⟩"


def _check_choices(algorithm: str, normalization: str) -> None:
    for name, value, choices in [
        ("algorithm", algorithm, get_args(Algorithm)),
        ("normalization", normalization, get_args(Normalization)),
    ]:
        if value not in choices:
            raise ValueError(f"{name}={value!r} is unknown: choose one of {', '.join(choices)}.")


def capitals_in(texts: Iterable[str]) -> str:
    """Returns the capital letters of texts, and A to Z: those that have one small letter, which has no other."""
    letters = set(map(chr, range(ord("A"), ord("Z") + 1)))
    for text in texts:
        letters.update(text)
    return "".join(sorted(letter for letter in letters if letter.isupper() and _is_one_of_two(letter)))


def _is_one_of_two(capital: str) -> bool:
    small = capital.lower()
    return len(small) == 1 and small != capital and small.upper() == capital


def _marking(capitals: str) -> list[Any]:
    """Normalisation steps that write a mark for capitals, and small letters in their place.

    The mark of a single capital stands before the space in front of it, so that the word and its space stay together.
    A word in capitals has two or more letters and one mark behind it. In a word of both, each capital is a single one.
    """
    capital, letter = f"[{capitals}]", _letter(capitals)
    of_mixed_word, single_letter = rf"{capital}{letter}*\p{{Ll}}", f"{capital}(?!{letter})"
    marked = "|".join(
        [
            f"(?= (?:{of_mixed_word}|{single_letter}))",
            f"(?<! )(?={of_mixed_word})",
            f"(?<! |{letter})(?={single_letter})",
            rf"(?<=\p{{Ll}})(?={capital})",
        ]
    )
    ends_word_in_capitals = f"(?<={capital}{capital})(?!{letter})"
    # A replacement at the very beginning of a text is lost: something stands there meanwhile.
    return [
        normalizers.Prepend(CAPITALS_MARK),
        normalizers.Replace(Regex(marked), CAPITAL_MARK),
        normalizers.Replace(Regex(ends_word_in_capitals), CAPITALS_MARK),
        normalizers.Replace(Regex(rf"\A{CAPITALS_MARK}"), ""),
        normalizers.Lowercase(),
    ]


def _letter(capitals: str) -> str:
    """A letter of a word that can be in capitals: scripts without capitals, and other capitals, end it."""
    return rf"[{capitals}\p{{Ll}}]"


def _unmarking(capitals: str) -> list[Any]:
    """Decoding steps that write capitals in place of small letters with a mark, and drop the marks."""

    def marked(small: str) -> Regex:
        return Regex(f"(?<={CAPITAL_MARK}|{CAPITAL_MARK} ){small}|{small}(?={_letter(capitals)}*{CAPITALS_MARK})")

    steps = [decoders.Replace(marked(letter.lower()), letter) for letter in capitals]
    return [*steps, decoders.Replace(Regex(_MARKS), "")]


def _untrained(algorithm: Algorithm) -> models.Model:
    unk = SPECIAL_TOKENS["unk_token"]
    if algorithm == "bpe":
        return models.BPE(unk_token=unk)
    if algorithm == "unigram":
        return models.Unigram()
    return _wordpiece({unk: 0})


def _wordpiece(vocab: dict[str, int]) -> models.WordPiece:
    # The library turns words of more than 100 characters into <unk> unless this limit is raised.
    limits = {"max_input_chars_per_word": 2**31}
    return models.WordPiece(vocab, unk_token=SPECIAL_TOKENS["unk_token"], continuing_subword_prefix=INSIDE, **limits)


def _trainer(algorithm: Algorithm, vocab_size: int, min_frequency: int, show_progress: bool) -> trainers.Trainer:
    shared: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": list(SPECIAL_TOKENS.values()),
        "initial_alphabet": BYTES,
        "show_progress": show_progress,
    }
    if algorithm == "bpe":
        return trainers.BpeTrainer(**shared, min_frequency=min_frequency)
    if algorithm == "unigram":
        return trainers.UnigramTrainer(**shared, unk_token=SPECIAL_TOKENS["unk_token"])
    # WordPiece needs every byte also as a subword inside a word. The trainer adds only those that occur, in an order
    # that changes from run to run and decides between subwords of equal rank. Special tokens keep the given order.
    shared["special_tokens"] += [*BYTES, *(INSIDE + byte for byte in BYTES)]
    return trainers.WordPieceTrainer(**shared, min_frequency=min_frequency, continuing_subword_prefix=INSIDE)


def _without_special_bytes(trained: Tokenizer) -> Tokenizer:
    """Returns the same WordPiece tokenizer with bytes as ordinary tokens rather than special ones."""
    tokenizer = Tokenizer(_wordpiece(trained.get_vocab(with_added_tokens=False)))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.decoder = trained.decoder
    return tokenizer


def _in_one_order(trained: Tokenizer) -> models.Unigram:
    """Returns the same Unigram model with its tokens in an order that is the same in each run.

    The trainer gives bytes that did not occur the lowest score, plus 0.0001 more for each in an order that changes
    from run to run. Here they all get the lowest score, and tokens of equal score are sorted by name.
    """
    tokens = json.loads(trained.to_str())["model"]["vocab"]
    special, learned = tokens[: len(SPECIAL_TOKENS)], tokens[len(SPECIAL_TOKENS) :]
    lowest = min(score for _, score in learned)
    unseen_at_most = lowest + (len(BYTES) + 1) * 1e-4
    learned = [(token, lowest if len(token) == 1 and score <= unseen_at_most else score) for token, score in learned]
    learned = [(token, round(score, 9)) for token, score in learned]  # threads add up scores in any order
    learned.sort(key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([tuple(entry) for entry in special] + learned, unk_id=len(SPECIAL_TOKENS) - 1)


__all__ = [
    "capitals_in",
    "language_tag",
    "language_tags",
    "placeholders_in",
    "save_tokenizers",
    "train_tokenizer",
    "with_language_tags",
    "with_mask_token",
    "with_placeholders",
]
