"""Subword tokenizers that lose nothing, trained with `tokenizers` and loaded by `AutoTokenizer` without this package.

Text is normalised (NFC by default), a space is put before it so that a word is the same piece at the start of a
sentence as inside it, and it is read as UTF-8 bytes, each of which is a piece of the vocabulary. So every string comes
back from its ids, and `<unk>` is never needed. All of that lives in tokenizer.json; there is no class to import.
"""

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import cached_file


Algorithm = Literal["bpe", "wordpiece", "unigram"]
Normalization = Literal["nfc", "nfkc", "none"]

# In this order they have the ids 0 to 3, which are the defaults of `VanillaTransformerConfig`.
SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
TARGET = "target"  # the subfolder in which a separate target tokenizer is kept
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
# WordPiece marks pieces inside a word. BERT's "##" could be text; this sign can't be, for it stands for no byte.
INSIDE = "‿"

_NORMALIZERS = {"nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()], "none": []}


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 37000,
    algorithm: Algorithm = "bpe",
    normalization: Normalization = "nfc",
    lowercase: bool = False,
    min_frequency: int = 2,
    show_progress: bool = True,
) -> PreTrainedTokenizerFast:
    """Learns a vocabulary from texts.

    The texts are read once and never held: memory grows with the number of distinct words (BPE, WordPiece) or with a
    table of substrings of them (Unigram).

    Args:
        texts: Sentences; for a joint vocabulary those of both languages.
        vocab_size: Pieces to learn, special tokens and bytes included. A small corpus may give fewer.
        algorithm: `"bpe"` (Sennrich et al. 2016; the paper's English-German), `"wordpiece"` (greedy longest match, in
            the style of the paper's English-French) or `"unigram"` (Kudo 2018).
        normalization: The Unicode form of all text: `"nfc"`, `"nfkc"` (which also folds look-alikes) or `"none"`.
        lowercase: Whether to lower-case as well, which can't be undone.
        min_frequency: How often two pieces must meet to be joined (BPE and WordPiece).
        show_progress: Whether to show progress bars.

    Returns:
        A tokenizer whose `tokenizer(source, text_target=target)` gives `input_ids`, `attention_mask` and `labels`,
        each side ending in `</s>`.
    """
    _check_choices(algorithm, normalization)
    smallest = len(SPECIAL_TOKENS) + len(BYTES) * (2 if algorithm == "wordpiece" else 1)
    if vocab_size < smallest:
        raise ValueError(f"vocab_size={vocab_size} can't hold the bytes and special tokens: use {smallest} or more.")

    tokenizer = Tokenizer(_untrained(algorithm))
    steps = [*_NORMALIZERS[normalization], *([normalizers.Lowercase()] if lowercase else []), normalizers.Prepend(" ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    undo = [decoders.Replace(INSIDE, "")] if algorithm == "wordpiece" else []
    undo += [decoders.ByteLevel(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(undo)
    tokenizer.train_from_iterator(texts, _trainer(algorithm, vocab_size, min_frequency, show_progress))
    if algorithm == "wordpiece":
        tokenizer = _without_special_bytes(tokenizer)
    elif algorithm == "unigram":
        tokenizer.model = _in_one_order(tokenizer)

    eos = SPECIAL_TOKENS["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    # Text that happens to read "</s>" is text: it must neither end a sentence nor vanish.
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, split_special_tokens=True, clean_up_tokenization_spaces=False, **SPECIAL_TOKENS
    )


def load_tokenizers(
    name_or_path: str | Path, **options
) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]:
    """The joint or source tokenizer of a folder or a repository of the Hub, and the target's where it has its own.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Those of `from_pretrained`, such as `revision`.
    """
    target = cached_file(
        name_or_path, f"{TARGET}/tokenizer.json", _raise_exceptions_for_missing_entries=False, **options
    )
    return (
        AutoTokenizer.from_pretrained(name_or_path, **options),
        AutoTokenizer.from_pretrained(name_or_path, subfolder=TARGET, **options) if target else None,
    )


def save_tokenizers(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase | None = None
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


def with_bpe_dropout(tokenizer: PreTrainedTokenizerFast, probability: float) -> PreTrainedTokenizerFast:
    """A copy that skips each merge with some probability, so that a word is cut differently each time (Provilkov et
    al. 2020). For training only: the copy is not meant to be saved, and no seed reaches the source from which
    `tokenizers` draws."""
    if not 0 <= probability < 1:
        raise ValueError(f"A BPE-dropout of {probability} must be at least 0 and less than 1; 0.1 is usual.")
    noisy = copy.deepcopy(tokenizer)
    model = noisy.backend_tokenizer.model
    if not isinstance(model, models.BPE):
        raise ValueError(f"BPE-dropout needs a BPE tokenizer, not {type(model).__name__}: set it to 0 or train one.")
    model.dropout = probability or None
    return noisy


def _check_choices(algorithm: str, normalization: str) -> None:
    for name, value, choices in [
        ("algorithm", algorithm, get_args(Algorithm)),
        ("normalization", normalization, get_args(Normalization)),
    ]:
        if value not in choices:
            raise ValueError(f"{name}={value!r} is unknown: choose one of {', '.join(choices)}.")


def _untrained(algorithm: Algorithm) -> models.Model:
    unk = SPECIAL_TOKENS["unk_token"]
    if algorithm == "bpe":
        return models.BPE(unk_token=unk)
    if algorithm == "unigram":
        return models.Unigram()
    return _wordpiece({unk: 0})


def _wordpiece(vocab: dict[str, int]) -> models.WordPiece:
    # The library's limit of 100 characters a word would turn a long one into <unk>.
    limits = {"max_input_chars_per_word": 2**31}
    return models.WordPiece(vocab, unk_token=SPECIAL_TOKENS["unk_token"], continuing_subword_prefix=INSIDE, **limits)


def _trainer(algorithm: Algorithm, vocab_size: int, min_frequency: int, show_progress: bool) -> trainers.Trainer:
    shared = {
        "vocab_size": vocab_size,
        "special_tokens": list(SPECIAL_TOKENS.values()),
        "initial_alphabet": BYTES,
        "show_progress": show_progress,
    }
    if algorithm == "bpe":
        return trainers.BpeTrainer(**shared, min_frequency=min_frequency)
    if algorithm == "unigram":
        return trainers.UnigramTrainer(**shared, unk_token=SPECIAL_TOKENS["unk_token"])
    # WordPiece needs each byte inside a word too. The trainer would add only those it meets, in an order that changes
    # from run to run and decides between pieces of equal worth; special tokens come first and in the order given.
    shared["special_tokens"] += [*BYTES, *(INSIDE + byte for byte in BYTES)]
    return trainers.WordPieceTrainer(**shared, min_frequency=min_frequency, continuing_subword_prefix=INSIDE)


def _without_special_bytes(trained: Tokenizer) -> Tokenizer:
    """The same WordPiece tokenizer, the bytes being ordinary pieces again."""
    tokenizer = Tokenizer(_wordpiece(trained.get_vocab(with_added_tokens=False)))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.decoder = trained.decoder
    return tokenizer


def _in_one_order(trained: Tokenizer) -> models.Unigram:
    """The same Unigram model, its pieces in an order that is the same in each run.

    The trainer gives the bytes it never saw the lowest score of all, plus one ten-thousandth more for each in an order
    that changes from run to run. Here they share that lowest score, and pieces of equal score go by their names.
    """
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    special, learned = pieces[: len(SPECIAL_TOKENS)], pieces[len(SPECIAL_TOKENS) :]
    lowest = min(score for _, score in learned)
    unseen_at_most = lowest + (len(BYTES) + 1) * 1e-4
    learned = [(piece, lowest if len(piece) == 1 and score <= unseen_at_most else score) for piece, score in learned]
    learned = [(piece, round(score, 9)) for piece, score in learned]  # threads sum in any order
    learned.sort(key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([tuple(entry) for entry in special] + learned, unk_id=len(SPECIAL_TOKENS) - 1)


__all__ = ["load_tokenizers", "save_tokenizers", "train_tokenizer", "with_bpe_dropout"]
