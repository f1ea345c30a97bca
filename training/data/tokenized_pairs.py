"""Parallel text as token ids, with the tag of the target language in front of the source."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.models.tokenization_vanilla_transformer import language_tag, language_tags
from vanilla_transformer.training.data.corpus_mixing import DIRECTION, TEXT


# Four bytes per id: half the size of the default on disk.
TOKENS = Features({"input_ids": List(Value("int32")), "labels": List(Value("int32"))})


def tokenize(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    target_lang: str | None = None,
    keep_text: bool = False,
    num_proc: int | None = None,
) -> Dataset:
    """Turns `source` and `target` into `input_ids` and `labels`. Both end in `</s>`, and neither is truncated.

    If the tokenizer has tags, each source gets that of its target language, in `source` too.

    `datasets` caches the result, and finds it again for the same text and tokenizers.

    Args:
        dataset: Pairs of text.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
        target_lang: The target language of a corpus with one direction.
        keep_text: Whether to keep the text columns.
        num_proc: Number of processes.
    """
    text = dataset.features if DIRECTION in dataset.column_names else TEXT
    tags = _tags(text, target_lang, tokenizer)
    return dataset.map(
        _encode,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "target_tokenizer": target_tokenizer or tokenizer, "tags": tags},
        remove_columns=[] if keep_text else list(text),
        features=Features({**text, **TOKENS}) if keep_text else TOKENS,
        num_proc=num_proc,
        desc="Tokenising",
        new_fingerprint=_fingerprint(dataset, f"{keep_text} {tags}", tokenizer, target_tokenizer or tokenizer),
    )


def encoder(
    tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase, target_lang: str | None
) -> Callable[[dict[str, list]], dict[str, list]]:
    """Returns what `tokenize` does with columns of text, for a stream. It keeps the text."""
    tags = _tags(TEXT, target_lang, tokenizer)
    return partial(_with_tokens, tokenizer=tokenizer, target_tokenizer=target_tokenizer, tags=tags)


def _with_tokens(columns: dict[str, list], **options: Any) -> dict[str, list]:
    return {**columns, **_encode(columns, **options)}


def _tags(features: Features, target_lang: str | None, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Returns what goes in front of the source in each direction; nothing at all for a tokenizer without tags."""
    known = language_tags(tokenizer)
    targets = [target_lang]
    if DIRECTION in features:
        targets = [Languages.parse(name).target for name in features[DIRECTION].names]
    for language in targets:
        if known and language not in known:
            raise ValueError(
                f"The tokenizer has no tag for {language!r}, only for {', '.join(known)}: learn a vocabulary for all "
                "directions."
            )
    return [f"{language_tag(str(language))} " for language in targets] if known else []


def _encode(
    batch: dict[str, list[Any]],
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
    tags: list[str],
) -> dict[str, list[Any]]:
    options = {"return_attention_mask": False, "truncation": False, "verbose": False}
    tagged = {}
    if tags:
        directions = batch.get(DIRECTION, [0] * len(batch["source"]))
        pairs = zip(batch["source"], directions, strict=True)
        batch["source"] = tagged["source"] = [tags[direction] + source for source, direction in pairs]
    return {
        **tagged,
        "input_ids": tokenizer(batch["source"], **options)["input_ids"],
        "labels": target_tokenizer(text_target=batch["target"], **options)["input_ids"],
    }


def _fingerprint(dataset: Dataset, options: str, *tokenizers: PreTrainedTokenizerBase) -> str:
    """Returns a cache key that depends on the tokenizers' files. In memory, a tokenizer changes with each use, and
    `datasets` would not recognise it."""
    digest = hashlib.sha256(f"{dataset._fingerprint} {options}".encode())
    for tokenizer in tokenizers:
        if not hasattr(tokenizer, "backend_tokenizer"):  # a plain Python tokenizer: its vocabulary identifies it
            digest.update(
                f"{type(tokenizer)} {tokenizer.init_kwargs} {sorted(tokenizer.get_vocab().items())}".encode()
            )
            continue
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        content.pop("padding"), content.pop("truncation")  # left by the last call
        digest.update(json.dumps(content).encode())
    return digest.hexdigest()[:16]
