"""Augmentation: each form by example, its rate, and draws that depend on nothing but seed, epoch and batch."""

from collections import Counter
from random import Random

import pytest

from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.data.augmentation import (
    COPIED,
    FORMS,
    LENGTHENING,
    TWO_SENTENCES,
    AugmentingCollator,
    Pair,
    joined,
    require_rates,
    typos,
)


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


@pytest.mark.parametrize("make", COPIED, ids=lambda make: make.__name__)
def test_what_is_copied_is_varied_and_has_no_line_break(make):
    items = {make(Random(seed)) for seed in range(40)}
    assert len(items) > 15
    assert all(item and item == " ".join(item.split()) for item in items)


def test_two_sentences_have_a_space_between_them_except_after_a_wide_stop():
    assert joined("One.", "Two.") == "One. Two."
    assert joined("一。", "二。") == "一。二。"


class Tokenizer:
    def __call__(self, text=None, text_target=None):
        return {"input_ids": list((text if text_target is None else text_target).encode())}


def make(rates, seed=0, tags=(">>de<<", ">>fr<<")):
    return AugmentingCollator(list, rates, Tokenizer(), Tokenizer(), tags=tags, seed=seed)


def batch(size=40):
    return [
        {"source": f">>{('de', 'fr')[number % 2]}<< Text {number}.", "target": f"Antwort {number}.", "input_ids": []}
        for number in range(size)
    ]


def test_rates_are_shares_of_the_pairs():
    collator = make({"upper_case": 0.25, "no_punctuation": 0.5})
    counts = Counter()
    for epoch in range(400):
        collator.set_epoch(epoch)
        for example in collator(batch(10)):
            form = "upper" if "TEXT" in example["source"] else "stop" if example["source"][-1] != "." else "none"
            counts[form] += 1
    assert counts["upper"] / 4000 == pytest.approx(0.25, abs=0.05)
    assert counts["stop"] / 4000 == pytest.approx(0.5, abs=0.05)


def test_draws_depend_on_seed_epoch_and_text_alone():
    rates = dict.fromkeys((*FORMS, TWO_SENTENCES), 0.1)
    first, again, other = make(rates), make(rates), make(rates, seed=1)
    again(batch(7))
    assert first(batch()) == again(batch())
    assert first(batch()) != other(batch())
    first.set_epoch(1)
    assert first(batch()) != again(batch())


def test_the_tag_stays_in_front_and_partners_have_the_same_one():
    joined_batch = make({TWO_SENTENCES: 1.0})(batch())
    for example in [*joined_batch, *make({"upper_case": 1.0})(batch())]:
        tag, rest = example["source"].split(" ", 1)
        assert tag in (">>de<<", ">>fr<<")
        assert ">>" not in rest
        numbers = [int(number) for number in rest.replace(".", "").split() if number.isdigit()]
        assert {number % 2 for number in numbers} == {tag == ">>fr<<"}, "both sentences have the same target language"
        assert bytes(example["input_ids"]).decode() == example["source"]


@pytest.mark.parametrize("size", [40, 7, 1])
def test_two_sentences_use_every_pair_once(size):
    done = make({TWO_SENTENCES: 1.0})(batch(size))
    assert len(done) == sum((len(batch(size)[start::2]) + 1) // 2 for start in (0, 1))
    targets = " ".join(example["target"] for example in done)
    assert sorted(targets.split(" Antwort ")) == sorted(" ".join(e["target"] for e in batch(size)).split(" Antwort "))


def test_one_long_form_never_pads_a_batch_of_short_ones():
    collator = make({**dict.fromkeys(LENGTHENING, 0.1), "typos": 0.2, "no_punctuation": 0.2})
    lengthened = set()
    for epoch in range(100):
        collator.set_epoch(epoch)
        sources = [example["source"].split(" ", 1)[1] for example in collator(batch())]
        was = [example["source"].split(" ", 1)[1] for example in batch()]
        if sources[0].isupper():
            assert all(map(str.isupper, sources))
            lengthened.add("upper_case")
        elif len(sources) < len(was):
            lengthened.add(TWO_SENTENCES)
        elif max(map(len, sources)) > max(map(len, was)) + 1:  # a typo may add a letter
            assert not set(sources) & set(was), "all pairs are copied, or none"
            lengthened.add("copied")
    assert lengthened == {"upper_case", "copied", TWO_SENTENCES}


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"uper_case": 0.1}, "no form 'uper_case' .did you mean 'upper_case'"),
        ({"typos": 2}, "typos=2 must be a share from 0 to 1"),
        ({"typos": 0.6, "copied": 0.6}, "add up to 1.2"),
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
