"""Loading, cleaning and tokenising through `datasets`, from files and from folders in the Hub's layout."""

import os
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from datasets import Dataset, DatasetDict, Features, IterableDataset, Translation, Value
from transformers import AutoTokenizer

from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.corpus_languages import languages_of_corpus
from vanilla_transformer.training.data.parallel_corpus import load_corpus
from vanilla_transformer.training.data.tokenized_pairs import encoder, tokenize


corpus_arguments = partial(CorpusArguments, source_lang="en", target_lang="de")
PAIRS = [(f"sentence number {n}", f"Satz Nummer {n}") for n in range(20)]


def write(folder, name, pairs=PAIRS):
    for side, language in enumerate(["en", "de"]):
        (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return [str(folder / name)]


def rows(dataset) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in dataset]


# --- files ---


@pytest.mark.parametrize("streaming", [False, True])
def test_files_become_splits(tmp_path, streaming):
    arguments = corpus_arguments(
        train_files=write(tmp_path, "train"), test_files=write(tmp_path, "test", PAIRS[:3]), streaming=streaming
    )
    corpus = load_corpus(arguments)
    assert set(corpus.splits) == {"train", "test"}
    assert isinstance(corpus["train"], IterableDataset if streaming else Dataset)
    assert rows(corpus["train"]) == PAIRS
    assert rows(corpus["test"]) == PAIRS[:3]
    assert corpus.report.kept == 20
    with pytest.raises(KeyError, match="no validation split, only train, test: give validation_files"):
        corpus["validation"]


def test_a_changed_file_is_read_again(tmp_path):
    arguments = corpus_arguments(train_files=write(tmp_path, "train"))
    assert len(load_corpus(arguments)["train"]) == 20
    write(tmp_path, "train", PAIRS[:5])
    os.utime(tmp_path / "train.en", ns=(1, 1))
    assert len(load_corpus(arguments)["train"]) == 5


def test_mistakes_come_through_datasets_as_sentences(tmp_path):
    files = write(tmp_path, "train")
    (tmp_path / "train.de").write_text("nur eine Zeile\n")
    with pytest.raises(ValueError, match=r"train\.en has 20 lines but .*train\.de has 1"):
        load_corpus(corpus_arguments(train_files=files))
    with pytest.raises(ValueError, match=r"no file .*nowhere"):
        load_corpus(corpus_arguments(train_files=[str(tmp_path / "nowhere")]))
    with pytest.raises(ValueError, match=r"train split is empty: .*empty has no pair"):
        load_corpus(corpus_arguments(train_files=write(tmp_path, "empty", [])))
    with pytest.raises(ValueError, match=r"corpus has no train split: set train_files"):
        load_corpus(corpus_arguments(test_files=write(tmp_path, "test")))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source_lang": 1}, "source_lang=1 is not text"),
        ({}, "No corpus is given: set dataset"),
        ({"dataset": "demo", "train_files": ["x"]}, "Both dataset='demo' and train_files are given"),
        ({"dataset": "demo", "target_lang": "en"}, "both 'en': give two languages"),
        ({"dataset": "demo", "max_ratio": 0.5}, "max_ratio=0.5 must be at least 1"),
    ],
)
def test_contradictory_arguments_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        corpus_arguments(**fields)


def test_the_languages_are_given_except_for_the_demo(tmp_path):
    for given in ({}, {"source_lang": "en"}):
        with pytest.raises(ValueError, match=r"languages .* are not known .*set source_lang and target_lang"):
            load_corpus(CorpusArguments(train_files=write(tmp_path, "train"), **given))
    assert languages_of_corpus(CorpusArguments(dataset="demo")) == ("en", "de")


# --- the Hub's layouts, in local folders ---


def hub_folder(folder, layout: str) -> str:
    texts = {"en": [s for s, _ in PAIRS], "de": [t for _, t in PAIRS]}
    if layout == "flat":
        data = Dataset.from_dict(texts)
    elif layout == "translation":
        features = Features({"translation": Translation(languages=["de", "en"])})
        data = Dataset.from_dict({"translation": [{"de": t, "en": s} for s, t in PAIRS]}, features=features)
    else:
        features = Features({"id": Value("string"), "translation": {"en": Value("string"), "de": Value("string")}})
        columns = {"id": list("abcdefghijklmnopqrst"), "translation": [{"de": t, "en": s} for s, t in PAIRS]}
        data = Dataset.from_dict(columns, features=features)
    for split, part in DatasetDict(train=data, validation=data.select(range(4)), test=data.select([7])).items():
        (folder / "de-en").mkdir(exist_ok=True)
        part.to_parquet(folder / "de-en" / f"{split}-00000-of-00001.parquet")
    splits = ("train", "validation", "test")
    files = "".join(f"\n  - split: {split}\n    path: de-en/{split}-*" for split in splits)
    other = "\n- config_name: fr-en\n  data_files: de-en/test-*"
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: de-en\n  data_files:{files}{other}\n---\n")
    return str(folder)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("layout", ["flat", "translation", "struct"])
def test_both_layouts_of_the_hub_in_both_directions(tmp_path, layout, streaming):
    where = {"dataset": hub_folder(tmp_path, layout), "streaming": streaming}
    corpus = load_corpus(corpus_arguments(**where))
    assert rows(corpus["train"]) == PAIRS
    assert rows(corpus["validation"]) == PAIRS[:4]
    assert rows(corpus["test"]) == [PAIRS[7]]
    back = load_corpus(corpus_arguments(**where, source_lang="de", target_lang="en"), splits=("test",))
    assert rows(back["test"]) == [(PAIRS[7][1], PAIRS[7][0])]


def test_a_slice_of_a_split(tmp_path):
    folder = hub_folder(tmp_path, "flat")
    assert len(load_corpus(corpus_arguments(dataset=folder, train_split="train[:6]"))["train"]) == 6
    assert len(load_corpus(corpus_arguments(dataset=folder, train_split="train[:6]+validation"))["train"]) == 10
    with pytest.raises(ValueError, match=r"stream can't be sliced"):
        load_corpus(corpus_arguments(dataset=folder, train_split="train[:6]", streaming=True))


def test_what_the_hub_does_not_have_is_named(tmp_path):
    folder = hub_folder(tmp_path, "flat")
    with pytest.raises(ValueError, match=r"configurations de-en, fr-en, none of them named after en-cs"):
        load_corpus(corpus_arguments(dataset=folder, target_lang="cs"))
    with pytest.raises(ValueError, match=r"no 'cs' among its columns 'en', 'de'"):
        load_corpus(corpus_arguments(dataset=folder, dataset_config="de-en", target_lang="cs"))
    with pytest.raises(ValueError, match=r"dataset 'someone/nothing' can't be loaded"):
        load_corpus(corpus_arguments(dataset="someone/nothing", dataset_config="x"))
    with pytest.raises(
        ValueError, match=r"train_split='training' is not among the splits of .*: train, validation, te"
    ):
        load_corpus(corpus_arguments(dataset=folder, train_split="training"), splits=("train",))
    with pytest.raises(ValueError, match=r"test_split='tset' is not among the splits of"):
        load_corpus(corpus_arguments(dataset=folder, test_split="tset"))


@pytest.mark.parametrize("streaming", [False, True])
def test_the_demo_corpus_needs_nothing(streaming):
    corpus = load_corpus(corpus_arguments(dataset="demo", streaming=streaming), splits=("test",))
    assert len(rows(corpus["test"])) == 1000
    slices = {"train_split": "train[:30]", "validation_split": "validation[:1%]", "test_split": "test[10:12]"}
    corpus = load_corpus(corpus_arguments(dataset="demo", streaming=streaming, **slices))
    assert [len(rows(corpus[split])) for split in ("train", "validation", "test")] == [30, 10, 2]
    with pytest.raises(ValueError, match=r'Unknown split "tset"'):
        load_corpus(corpus_arguments(dataset="demo", test_split="tset"), splits=("test",))
    with pytest.raises(ValueError, match=r"demo corpus has no 'fr' among its columns 'en', 'de'"):
        load_corpus(corpus_arguments(dataset="demo", target_lang="fr"), splits=("test",))


# --- cleaning ---

DIRTY = [
    ("a b c", "x y z"),
    ("", "x"),
    ("a", "  "),
    ("one two three four five six", "x y z"),
    ("a b c d", "x"),
    ("same same", "same same"),
    ("a b c", "x y z"),
    ("a b c", "x y"),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("steps", "dropped"),
    [
        ({}, {"empty side": 2}),
        ({"drop_empty": False}, {}),
        ({"max_words": 5}, {"empty side": 2, "over 5 words": 1}),
        ({"max_ratio": 3.0}, {"empty side": 2, "ratio over 3": 1}),
        ({"drop_identical": True}, {"empty side": 2, "identical sides": 1}),
        ({"drop_duplicates": True}, {"empty side": 2, "duplicate": 1}),
        ({"drop_empty": False, "max_ratio": 3.0}, {"ratio over 3": 3}),
    ],
)
def test_each_step_drops_what_it_says_and_counts_it(tmp_path, steps, dropped, streaming):
    files = write(tmp_path, "train", DIRTY)
    corpus = load_corpus(corpus_arguments(train_files=files, streaming=streaming, **steps))
    kept = rows(corpus["train"])
    assert corpus.report.dropped == dropped
    assert corpus.report.loaded == len(DIRTY)
    assert len(kept) == corpus.report.kept == len(DIRTY) - sum(dropped.values())
    assert kept == [pair for n, pair in enumerate(DIRTY) if pair in kept and not (dropped.get("duplicate") and n == 6)]


def test_a_second_pass_over_a_stream_is_cleaned_like_the_first(tmp_path):
    arguments = corpus_arguments(train_files=write(tmp_path, "train", DIRTY), streaming=True, drop_duplicates=True)
    corpus = load_corpus(arguments)
    first, second = rows(corpus["train"]), rows(corpus["train"])
    assert len(first) == 5
    assert second == first
    assert corpus.report.loaded == len(DIRTY)


def test_the_report_is_a_table(tmp_path):
    corpus = load_corpus(corpus_arguments(train_files=write(tmp_path, "train", DIRTY), max_words=5))
    assert [line.split() for line in str(corpus.report).splitlines()] == [
        ["pairs", "loaded", "8"],
        ["-", "empty", "side", "2"],
        ["-", "over", "5", "words", "1"],
        ["kept", "5"],
    ]


def test_only_the_training_split_is_cleaned(tmp_path):
    files = write(tmp_path, "all", DIRTY)
    corpus = load_corpus(corpus_arguments(train_files=files, validation_files=files, test_files=files))
    assert rows(corpus["validation"]) == rows(corpus["test"]) == DIRTY


def test_cleaning_everything_away_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)left no pair.*over 1 words"):
        load_corpus(corpus_arguments(train_files=write(tmp_path, "train"), max_words=1))


# --- weights ---


def test_files_count_by_their_weights_after_cleaning(tmp_path):
    files = [*write(tmp_path, "real", PAIRS[:4]), *write(tmp_path, "made", [*PAIRS[2:], ("", "empty")])]
    languages = {"source_lang": "en", "target_lang": "de"}
    arguments = CorpusArguments(train_files=files, train_weights=[2.5, 1], drop_duplicates=True, **languages)
    corpus = load_corpus(arguments, seed=1)
    counts = Counter(rows(corpus["train"]))
    assert [counts[pair] for pair in PAIRS[4:]] == [1] * 16
    assert sorted(counts[pair] for pair in PAIRS[:4]) == [2, 2, 3, 3]
    assert corpus.report.as_dict() == {
        **{"loaded": 23, "empty side": 1, "duplicate": 2, "kept": 20},
        "mixed": {f"{files[0]} x 2.5": 10, f"{files[1]} x 1": 16},
    }
    assert corpus["train"].column_names == ["source", "target"]
    assert rows(load_corpus(arguments, seed=1)["train"]) == rows(corpus["train"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"train_weights": [1, 2]}, "train_weights has 2 numbers, but train_files has 1 entries"),
        ({"train_weights": [0]}, "must be above 0"),
        ({"train_weights": [2], "streaming": True}, "set streaming to false"),
    ],
)
def test_weights_that_fit_no_files_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        CorpusArguments(train_files=["a"], **fields)


# --- tokenising ---


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([text for pair in PAIRS for text in pair], vocab_size=300, show_progress=False)


@pytest.mark.parametrize("num_proc", [None, 2])
def test_tokenised_pairs_are_the_tokenizers_own(tmp_path, tokenizer, num_proc):
    text = load_corpus(corpus_arguments(train_files=write(tmp_path, "train")))["train"]
    tokens = tokenize(text, tokenizer, num_proc=num_proc)
    assert tokens.column_names == ["input_ids", "labels"]
    for row, (source, target) in zip(tokens, PAIRS, strict=True):
        expected = tokenizer(source, text_target=target)
        assert row == {"input_ids": expected["input_ids"], "labels": expected["labels"]}


def test_a_stream_is_tokenised_as_it_is_read(tmp_path, tokenizer):
    arguments = corpus_arguments(train_files=write(tmp_path, "train"), streaming=True)
    columns = {"source": [], "target": []}
    for row in load_corpus(arguments)["train"]:
        for name, text in row.items():
            columns[name].append(text)
    on_disk = tokenize(load_corpus(replace(arguments, streaming=False))["train"], tokenizer, keep_text=True)
    assert encoder(tokenizer, tokenizer, None)(columns) == on_disk.to_dict()


def test_separate_vocabularies(tmp_path, tokenizer):
    text = load_corpus(corpus_arguments(train_files=write(tmp_path, "train")))["train"]
    other = train_tokenizer([target for _, target in PAIRS], vocab_size=280, show_progress=False)
    row = tokenize(text, tokenizer, other)[3]
    assert row["input_ids"] == tokenizer(PAIRS[3][0])["input_ids"]
    assert row["labels"] == other(PAIRS[3][1])["input_ids"]


def test_tokenised_data_is_found_again_even_by_a_tokenizer_that_has_been_used(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = corpus_arguments(train_files=write(tmp_path, "train"))
    first = tokenize(load_corpus(arguments)["train"], tokenizer)
    assert first.cache_files
    tokenizer(["a", "b b b"], padding=True, truncation=True, max_length=2)
    for same in (tokenizer, AutoTokenizer.from_pretrained(tmp_path / "tokenizer")):
        assert tokenize(load_corpus(arguments)["train"], same).cache_files == first.cache_files
    other = train_tokenizer([target for _, target in PAIRS], vocab_size=270, show_progress=False)
    assert tokenize(load_corpus(arguments)["train"], other).cache_files != first.cache_files
