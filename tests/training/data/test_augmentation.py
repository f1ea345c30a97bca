"""Augmentation: each form by example, its rate, and a training set that depends on its text and the seed alone."""

from collections import Counter
from random import Random

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from transformers import AutoTokenizer

from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.data.augmentation import (
    FORMS,
    SHORT_SHARE,
    TWO_SENTENCES,
    Pair,
    augmented,
    copied,
    joined,
    names,
    one_clause,
    require_rates,
    typos,
)
from vanilla_transformer.training.data.copied_items import COPIED
from vanilla_transformer.training.data.corpus_mixing import DIRECTION, TEXT


EXAMPLES = [
    ("upper_case", ("Where is it?", "Wo ist die Straße?"), ("WHERE IS IT?", "WO IST DIE STRASSE?")),
    ("title_case", ("Don't go.", "Geh nicht."), ("Don't Go.", "Geh Nicht.")),
    ("lower_case", ("Berlin is big.", "Berlin ist groß."), ("berlin is big.", "Berlin ist groß.")),
    ("no_punctuation", ("Is it?", "Est-ce vrai\u202f?"), ("Is it", "Est-ce vrai")),
    ("no_punctuation", ("I know.", "我知道。"), ("I know", "我知道")),
    ("no_punctuation", ("...", "..."), ("...", "...")),
]


@pytest.mark.parametrize(("form", "pair", "expected"), EXAMPLES)
def test_forms_by_example(form, pair, expected):
    assert FORMS[form](Pair(*pair), Random(0)) == Pair(*expected)


def test_typos_change_one_place_of_a_word_and_leave_the_target():
    pair = Pair("Yesterday I was there.", "Gestern war ich da.")
    found = {typos(pair, Random(seed)) for seed in range(50)}
    assert len(found) > 10
    for source, target in found:
        assert target == pair.target
        wrong = [(was, now) for was, now in zip(pair.source.split(), source.split(), strict=True) if was != now]
        assert len(wrong) <= 1
        for was, now in wrong:
            assert abs(len(was) - len(now)) <= 1
            assert was[0] == now[0], "the first letter stays"
    assert typos(Pair("我知道。", "I know."), Random(0)).source == "我知道。"


@pytest.mark.parametrize("kind", COPIED)
def test_what_is_copied_is_varied_and_has_no_line_break(kind):
    items = {COPIED[kind](Random(seed)) for seed in range(40)}
    assert len(items) > 15
    assert all(item and item == " ".join(item.split()) for item in items)


@pytest.mark.parametrize(
    ("pair", "clauses"),
    [
        (("Yes, I know.", "Ja, ich weiß."), {("Yes", "Ja"), ("I know.", "Ich weiß.")}),
        (("No, thank you.", "不，谢谢。"), {("No", "不"), ("Thank you.", "谢谢。")}),
        (("One, two, three.", "Eins, zwei und drei."), {("One, two, three.", "Eins, zwei und drei.")}),
        (("It costs 1,000.", "Es kostet 1,000."), {("It costs 1,000.", "Es kostet 1,000.")}),
    ],
)
def test_one_clause_is_either_of_two(pair, clauses):
    assert {tuple(one_clause(Pair(*pair), Random(seed))) for seed in range(20)} == clauses


def test_a_name_or_number_of_both_sides_is_another_on_both():
    found = [copied(Pair("Tom has 12 cats.", "Tom hat 12 Katzen."), Random(seed)) for seed in range(60)]
    words = [(source.split(), target.split()) for source, target in found if source.endswith(" cats.")]
    others = [(source, target) for source, target in words if source != ["Tom", "has", "12", "cats."]]
    assert len(others) > 20
    for source, target in others:
        assert (source[0], source[2]) == (target[0], target[2])
        assert source[0] == "Tom" or source[2] == "12"
    assert {source[0] == "Tom" for source, _ in others} == {True, False}


def test_names_are_others_on_both_sides():
    german = {names(Pair("Tom saw Mary.", "Tom sah Mary."), Random(seed)) for seed in range(50)}
    chinese = {names(Pair("Tom is here.", "汤姆在这里。"), Random(seed)) for seed in range(50)}
    french = {names(Pair("I want Tom to come.", "Je veux que Tom vienne."), Random(seed)) for seed in range(50)}
    assert min(map(len, (german, chinese, french))) > 20
    assert all(source.replace("saw", "sah") == target for source, target in german)
    assert sum("汤姆" in target for _, target in chinese) == sum("Tom " in source for source, _ in chinese) <= 1
    assert not {target.split()[3][0] for _, target in french} & set("AEIOUÉ"), "it would be qu'Anna"
    assert names(Pair("Tom's car.", "Toms Auto."), Random(0)) == ("Tom's car.", "Toms Auto.")


def test_short_pairs_take_a_form_more_often():
    text = Dataset.from_dict({"source": ["Good night."] * 500, "target": ["Gute Nacht."] * 500}, features=TEXT)
    assert len(augmented(text, {"upper_case": 0.1})) - 500 == pytest.approx(500 * 0.1 * SHORT_SHARE, abs=60)


def test_what_has_no_capitals_does_not_ask_for_them():
    text = Dataset.from_dict({"source": ["我知道。"] * 50, "target": ["I know it."] * 50}, features=TEXT)
    assert len(augmented(text, {"upper_case": 1.0, "title_case": 1.0})) == 50


def test_two_sentences_have_a_space_between_them_except_after_a_wide_stop():
    assert joined("One.", "Two.") == "One. Two."
    assert joined("一。", "二。") == "一。二。"


def corpus(size=4000, **columns):
    pairs = {
        "source": [f"This is text {n}." for n in range(size)],
        "target": [f"Das ist Antwort {n}." for n in range(size)],
    }
    return Dataset.from_dict({**pairs, **columns}, features=TEXT if not columns else None)


def test_every_pair_stays_and_rates_are_shares_of_the_pairs():
    text = corpus()
    more = augmented(text, {"upper_case": 0.25, "no_punctuation": 0.5})
    sources = Counter(more["source"])
    assert set(text["source"]) <= set(sources)
    assert sum(source.isupper() for source in sources) / len(text) == pytest.approx(0.25, abs=0.03)
    assert sum(source[-1] != "." for source in sources) / len(text) == pytest.approx(0.5, abs=0.03)
    assert set(sources.values()) == {1}
    for source, target in zip(more["source"], more["target"], strict=True):
        assert source.lower().strip(".").split()[-1] == target.lower().strip(".").split()[-1]


def test_the_pairs_depend_on_the_seed_and_the_text_alone():
    rates = dict.fromkeys((*FORMS, TWO_SENTENCES), 0.1)
    first = augmented(corpus(), rates, seed=1).to_dict()
    assert augmented(corpus(), rates, seed=1).to_dict() == first
    assert augmented(corpus(), rates, seed=2).to_dict() != first


def test_a_form_that_changes_nothing_adds_nothing():
    text = Dataset.from_dict({"source": ["12"] * 50, "target": ["12"] * 50}, features=TEXT)
    assert len(augmented(text, dict.fromkeys(("upper_case", "title_case", "typos", "no_punctuation"), 1.0))) == 50


def test_both_sentences_have_the_same_direction_and_little_in_common():
    numbers = [number % 2 for number in range(1000)]
    label = ClassLabel(names=["en-de", "en-fr"])
    text = Dataset.from_dict(
        {**corpus(1000).to_dict(), DIRECTION: numbers},
        features=Features({"source": Value("string"), "target": Value("string"), DIRECTION: label}),
    )
    more = augmented(text, {TWO_SENTENCES: 0.5})
    assert more.features[DIRECTION] == label
    rows = [row for row in more if row["source"].count("text") == 2]
    assert len(rows) == len(more) - 1000 == pytest.approx(500, abs=80)
    distances = []
    for row in rows:
        first, second = (int(word) for word in row["source"].replace(".", "").split() if word.isdigit())
        assert row["target"] == f"Das ist Antwort {first}. Das ist Antwort {second}."
        assert first % 2 == second % 2 == row[DIRECTION]
        distances.append(abs(first - second))
    assert sum(distances) / len(distances) > 200, "neighbours in a sorted file would be much alike"


def test_a_stream_stays_one():
    stream = augmented(corpus(50).to_iterable_dataset(), {"upper_case": 0.3, TWO_SENTENCES: 0.3})
    rows = list(stream)
    assert len(rows) > 60
    assert list(stream) == rows, "each pass is the same"
    assert [row["source"] for row in rows[:50]] == corpus(50)["source"][:]


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"uper_case": 0.1}, "no form 'uper_case' .did you mean 'upper_case'"),
        ({"typos": 2}, "typos=2 must be a share from 0 to 1"),
    ],
)
def test_mistakes_are_refused(rates, message):
    with pytest.raises(ValueError, match=message):
        require_rates(rates)


def test_an_augmented_run_resumes_exactly(recipe, tmp_path):
    keys = {"augmentation": dict.fromkeys((*FORMS, TWO_SENTENCES), 0.1), "eval_strategy": "no", "max_steps": 8}
    train_script.main(recipe(**keys, output_dir=str(tmp_path / "whole")))
    words = recipe(**keys, output_dir=str(tmp_path / "stopped"))
    train_script.main([*words, "--max_steps", "4"])
    train_script.main([*words, "--resume_from_checkpoint", "last"])
    weights = [(tmp_path / run / "checkpoint-8" / "model.safetensors").read_bytes() for run in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_the_vocabulary_and_the_batches_know_the_forms(recipe, tmp_path):
    vocabularies, lengths = [], []
    for run, rates in (("plain", None), ("forms", {"upper_case": 1.0, "two_sentences": 0.5})):
        words = recipe(augmentation=rates, eval_strategy="no", vocab_size=400, output_dir=str(tmp_path / run))
        data = train_script.prepare_text(*train_script.parse_recipe("", words))
        vocabularies.append(AutoTokenizer.from_pretrained(tmp_path / run / "tokenizer").get_vocab())
        lengths.append(max(map(len, data.datasets["train"]["input_ids"])))
        assert all(
            row["input_ids"] == data.tokenizers[0](row["source"])["input_ids"] for row in data.datasets["train"]
        )
    few, many = (sum(token[0] == "Ġ" and token[1:].isupper() for token in each) for each in vocabularies)
    assert few == 0 < many
    assert lengths[1] > lengths[0]
