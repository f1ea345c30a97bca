"""The text of a run, cleaned and tokenised, and its vocabulary: what `vanilla prepare` leaves for `vanilla train`."""

from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.hub.languages import load_directions
from vanilla_transformer.hub.loading import load_tokenizers, read_object
from vanilla_transformer.models.tokenization_vanilla_transformer import (
    language_tags,
    placeholders_in,
    with_language_tags,
    with_mask_token,
    with_placeholders,
)
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_json
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.build_model import needs_mask_token
from vanilla_transformer.training.data.augmentation import augmented
from vanilla_transformer.training.data.corpus_mixing import balanced_directions
from vanilla_transformer.training.data.parallel_corpus import Corpus, content_digests, load_corpus
from vanilla_transformer.training.data.placeholder_pairs import with_placeholders_in_pairs
from vanilla_transformer.training.data.tokenized_pairs import tokenize
from vanilla_transformer.training.data.vocabulary import (
    extend_vocabulary,
    learn_vocabularies,
    tagged_languages,
    tokens_per_word,
)
from vanilla_transformer.training.data.word_links import with_links


PREPARED = "prepared.json"  # in the run's folder: which text and options its vocabulary is learned from

Tokenizers = tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]
Datasets = dict[str, Dataset | IterableDataset]


@dataclass
class PreparedText:
    """The text of a run, ready for training.

    Args:
        corpus: The text.
        datasets: The same, tokenised.
        tokenizers: The joint or source tokenizer, and the target tokenizer of separate vocabularies.
        digests: What `content_digests` returns.
    """

    corpus: Corpus
    datasets: Datasets
    tokenizers: Tokenizers
    digests: dict[str, dict[str, str]]


def prepare_text(
    model_arguments: ModelArguments,
    corpus_arguments: CorpusArguments,
    vocabulary_arguments: VocabularyArguments,
    args: TranslationTrainingArguments,
    *,
    learn: bool = True,
) -> PreparedText:
    """Loads the corpus and the tokenizers, and tokenises every split. What was prepared before is not done again.

    Args:
        model_arguments: Which tokenizer to load, if any.
        corpus_arguments: Where the text is.
        vocabulary_arguments: How to learn a vocabulary, if none is given.
        args: The folder of the run, which keeps a learned tokenizer and word links; the seed of what a fraction in
            `train_weights` draws; and whether training needs word links.
        learn: Whether this process learns the vocabulary and the word links, unless the folder has them; if not, it
            loads them.
    """
    folder, seed = Path(args.output_dir), args.seed
    added, new = vocabulary_arguments.added_subwords, vocabulary_arguments.new_vocabulary
    if (added or new) and (not model_arguments.model_name_or_path or model_arguments.tokenizer):
        name = "added_subwords" if added else "new_vocabulary"
        raise ValueError(f"{name} is for a trained model and its own vocabulary: set model_name_or_path alone.")
    corpus = load_corpus(corpus_arguments, seed=seed)
    if args.augmentation_rates:
        corpus.splits["train"] = augmented(corpus["train"], args.augmentation_rates, seed=seed)
        if corpus.report is not None and isinstance(corpus["train"], Dataset):
            corpus.report.mixed["with those in other forms"] = len(corpus["train"])
    given = model_arguments.tokenizer or model_arguments.model_name_or_path or model_arguments.initialize_from
    placeholders = vocabulary_arguments.placeholders or (placeholders_in(load_tokenizers(given)[0]) if given else 0)
    if placeholders:
        corpus.splits = {
            name: with_placeholders_in_pairs(split, placeholders, seed=seed) for name, split in corpus.splits.items()
        }
    now = {**state, "trained": given} if (state := _state(corpus, vocabulary_arguments)) else {}
    before = read_object(folder / PREPARED) if now and (folder / PREPARED).is_file() else {}
    has_digests = "digests" in before and before["text"] == now["text"]
    has_vocabulary = has_digests and now.items() <= before.items() and (folder / "tokenizer").is_dir()
    digests = before["digests"] if has_digests else content_digests(corpus_arguments, corpus) if learn else {}
    if learn and not has_vocabulary:
        if not given or added or new:
            with whole_folder(folder / "tokenizer", known_by="tokenizer.json", overwrite=True) as temporary:
                _learn(corpus["train"], given if added else None, vocabulary_arguments, temporary, seed)
        if now:
            write_json(folder / PREPARED, {**now, "digests": digests})
    tokenizers = load_tokenizers(folder / "tokenizer" if added or new or not given else given)
    tokenizers = _with_added_tokens(tokenizers, corpus, corpus_arguments, placeholders)
    if needs_mask_token(model_arguments):
        source, target = tokenizers
        tokenizers = (with_mask_token(source), None) if target is None else (source, with_mask_token(target))
    datasets: Datasets = {}
    for split, text in corpus.splits.items():
        if isinstance(text, IterableDataset):
            if split == "train":
                datasets[split] = text  # tokenised as it is read
                continue
            text = Dataset.from_list(list(text))  # evaluation needs all of it, and it is small
        target_lang, num_proc = corpus_arguments.target_lang, corpus_arguments.num_proc
        datasets[split] = tokenize(text, *tokenizers, target_lang=target_lang, keep_text=True, num_proc=num_proc)
    if corpus_arguments.directions and corpus.report is not None:
        temperature = corpus_arguments.temperature
        datasets["train"], corpus.report.directions = balanced_directions(datasets["train"], temperature, seed)
        corpus.report.languages = tokens_per_word(corpus["train"], *tokenizers)
    if args.guided_alignment:
        datasets["train"] = with_links(datasets["train"], folder, compute=learn)
    return PreparedText(corpus, datasets, tokenizers, digests)


def _with_added_tokens(
    tokenizers: Tokenizers, corpus: Corpus, corpus_arguments: CorpusArguments, placeholders: int
) -> Tokenizers:
    """Adds the tags of target languages to the source's tokenizer, and placeholders to both."""
    source, target = tokenizers
    tags = tagged_languages(corpus["train"])
    if language_tags(source):  # a model that knows tags needs one for a single target, too
        tags = tags or list(dict.fromkeys(str(direction.target) for direction in corpus_arguments.all_directions))
    source = with_placeholders(with_language_tags(source, tags), placeholders)
    return source, target and with_placeholders(target, placeholders)


def _learn(
    text: Dataset | IterableDataset, trained: str | None, arguments: VocabularyArguments, folder: Path, seed: int
) -> None:
    """Learns a vocabulary, or more subwords for that of a trained model."""
    if trained is None:
        learn_vocabularies(text, arguments, folder, seed=seed)
        return
    known = map(str, chain.from_iterable(load_directions(trained)))
    extend_vocabulary(text, load_tokenizers(trained)[0], arguments, folder, known, seed=seed)


def _state(corpus: Corpus, vocabulary_arguments: VocabularyArguments) -> dict[str, Any]:
    """What a preparation depends on: the text, by the keys of its cache, and how the vocabulary is learned. A stream
    has no such key."""
    if any(isinstance(text, IterableDataset) for text in corpus.splits.values()):
        return {}
    fingerprints = {split: text._fingerprint for split, text in corpus.splits.items()}
    return {"text": fingerprints, "vocabulary": asdict(vocabulary_arguments)}
