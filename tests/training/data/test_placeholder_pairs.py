"""Training pairs with placeholders: only where both sides have the same things, each under one number."""

from random import Random

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoTokenizer

from vanilla_transformer.models.tokenization_vanilla_transformer import (
    placeholders_in,
    train_tokenizer,
    with_placeholders,
)
from vanilla_transformer.training import train
from vanilla_transformer.training.data.augmentation import Pair
from vanilla_transformer.training.data.placeholder_pairs import with_placeholders as pair_with_placeholders
from vanilla_transformer.training.data.placeholder_pairs import with_placeholders_in_pairs
from vanilla_transformer.training.data.prepared_text import prepare_text
from vanilla_transformer.translation.placeholders import PLACEHOLDERS


@pytest.mark.parametrize(
    "pair",
    [
        ("It is 10:30.", "Es ist halb elf."),  # only one side has it
        ("It costs 1,250.", "Es kostet 1.250."),  # not the same
        ("No number.", "Keine Zahl."),
    ],
)
def test_other_pairs_stay_as_they_are(pair):
    assert pair_with_placeholders(Pair(*pair), 9, Random(0)) == Pair(*pair)


@given(
    st.lists(st.sampled_from(["info@example.com", "10:30", "$5", "AB-1234", "42"]), min_size=1, max_size=6),
    st.randoms(),
)
def test_values_can_be_put_back_on_both_sides(values, random):
    shuffled = random.sample(values, len(values))
    source, target = pair_with_placeholders(Pair(" ; ".join(values), " ; ".join(shuffled)), 9, random)
    names = source.split(" ; ")
    assert names == sorted(names)
    assert set(names) <= set(PLACEHOLDERS)
    value_of = dict(zip(names, values, strict=True))
    assert [value_of[name] for name in target.split(" ; ")] == shuffled
    assert sorted(target.split(" ; ")) == names


def test_all_placeholders_are_used_and_the_seed_decides():
    pairs = {"source": [f"Call {n}." for n in range(100, 200)], "target": [f"Ruf {n} an." for n in range(100, 200)]}
    text = Dataset.from_dict(pairs)
    replaced = with_placeholders_in_pairs(text, 5, seed=1)
    assert {source[5:8] for source in replaced["source"]} == set(PLACEHOLDERS[:5])
    assert replaced.to_dict() == with_placeholders_in_pairs(text, 5, seed=1).to_dict()
    assert replaced.to_dict() != with_placeholders_in_pairs(text, 5, seed=2).to_dict()


@pytest.mark.parametrize("capitals", ["", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"])
@given(pieces=st.lists(st.sampled_from([*PLACEHOLDERS, " ", "a", " Ab", ".", "，", "  ", "⟨", "1"]), max_size=8))
def test_placeholders_are_single_tokens_and_every_text_survives(tokenizers, capitals, pieces):
    tokenizer, text = tokenizers[capitals], "".join(pieces)
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert sum(token in PLACEHOLDERS for token in tokens) == sum(map(text.count, PLACEHOLDERS))


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Tokenizers with and without marks for capitals, saved and loaded again."""
    loaded = {}
    for capitals in ("", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        folder = tmp_path_factory.mktemp("tokenizer")
        learned = train_tokenizer(["A text."], vocab_size=300, capitals=capitals, show_progress=False)
        assert with_placeholders(learned, 0) is learned
        with_placeholders(learned, 9).save_pretrained(folder)
        loaded[capitals] = AutoTokenizer.from_pretrained(folder)
        assert with_placeholders(loaded[capitals], 9) is loaded[capitals]
    return loaded


def test_a_run_records_that_its_model_knows_placeholders_and_a_further_stage_keeps_them(recipe, tmp_path):
    for language, sentence in {"en": "Call {} now.", "de": "Ruf {} an."}.items():
        lines = (sentence.format(number) for number in range(1000, 1040))
        (tmp_path / f"calls.{language}").write_text("".join(f"{line}\n" for line in lines))
    files = {"train_files": [str(tmp_path / "calls")], "validation_files": [str(tmp_path / "calls")], "max_steps": 1}
    train.main(recipe(**files, placeholders=3, vocab_size=280))
    model = str(tmp_path / "run" / "model")
    assert AutoConfig.from_pretrained(model).placeholders == 3
    again = recipe(**files, model_name_or_path=model, model_config={}, output_dir=str(tmp_path / "again"))
    data = prepare_text(*train.parse_recipe("", again)[-4:])
    assert {source[6] for source in data.datasets["train"]["source"]} <= set("123")
    assert placeholders_in(data.tokenizers[0]) == 3
