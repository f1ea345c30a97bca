import json
import os
import random
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.hub.loading import load_tokenizers
from vanilla_transformer.hub.saved_tokenizer import read_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import (
    CAPITAL_MARK,
    CAPITALS_MARK,
    SPECIAL_TOKENS,
    TARGET,
    capitals_in,
    save_tokenizers,
    train_tokenizer,
    with_mask_token,
)


ALGORITHMS = ["bpe", "wordpiece", "unigram"]
# Words of an invented language: enough of them that every algorithm has pieces to find.
SYLLABLES = ["ba", "do", "ki", "lu", "me", "no", "ra", "si", "tu", "ve", "wan", "zor", "grö", "ßer"]
HARD = [
    *("", " ", "  two  spaces ", "\x00", "\t\r\n", "‿ ▁ ## @@ Ġ", "</s> <pad> <s> <unk>", "e\u0301 = é", "ﬁ ½ Å"),
    *("日本語 עברית العربية 🙂👩‍👩‍👧", "\u200b\u2028\ufeff", "x" * 5000, "ß" * 300),
]


def sentences(number: int = 600) -> list[str]:
    draw = random.Random(0)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(800)]
    return [" ".join(draw.choices(words, k=draw.randint(2, 9))) + "." for _ in range(number)]


@pytest.fixture(scope="module", params=ALGORITHMS)
def tokenizer(request, tmp_path_factory):
    """Trained, saved, and loaded again by `AutoTokenizer`."""
    folder = tmp_path_factory.mktemp(request.param)
    train_tokenizer(sentences(), vocab_size=600, algorithm=request.param, show_progress=False).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def round_trip(tokenizer, text: str) -> str:
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert ids[-1] == tokenizer.eos_token_id
    assert not set(ids[:-1]) & set(tokenizer.all_special_ids)
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_hard_strings_come_back(tokenizer, text):
    assert round_trip(tokenizer, text) == unicodedata.normalize("NFC", text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_unicode_string_comes_back(tokenizer, text):
    assert round_trip(tokenizer, text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize(("normalization", "form"), [("nfkc", "NFKC"), ("none", None)])
@pytest.mark.parametrize("lowercase", [False, True])
def test_text_comes_back_in_the_declared_form(normalization, form, lowercase):
    options = {"normalization": normalization, "lowercase": lowercase, "show_progress": False}
    tokenizer = train_tokenizer(sentences(), vocab_size=400, **options)
    for text in HARD:
        expected = unicodedata.normalize(form, text) if form else text
        assert round_trip(tokenizer, text) == (expected.lower() if lowercase else expected)


# --- capitals as marks ---

CAPITALS = capitals_in(["Ärger Über Öl, É"])


@pytest.fixture(scope="module", params=ALGORITHMS)
def marking(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    options = {"vocab_size": 700, "algorithm": request.param, "capitals": CAPITALS, "show_progress": False}
    train_tokenizer([*sentences(), *(line.upper() for line in sentences())], **options).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_capitals_have_one_small_letter_that_has_no_other():
    assert capitals_in(["ẞ İ Äß", "ǅ ab"]) == "ABCDEFGHIJKLMNOPQRSTUVWXYZÄ"


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Where is the Station?", "↥ where is the↥ station?"),
        ("WHERE IS IT", " where⇪ is⇪ it⇪"),
        ("I, (Ärger) and A", "↥ i, (↥ärger) and↥ a"),
        ("iPhone McDonald USAs", " i↥phone↥ mc↥donald↥ u↥s↥as"),
        ("U-BAHN  Öl", "↥ u-bahn⇪ ↥ öl"),
        ("A𝕬 T恤", "↥ a𝕬↥ t恤"),
        ("small", " small"),
    ],
)
def test_marks_stand_where_capitals_were(marking, text, marked):
    assert marking.backend_tokenizer.normalizer.normalize_str(text) == marked
    assert round_trip(marking, text) == text


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.one_of(st.sampled_from("aAbBßÄä .'-1\n"), st.characters(exclude_categories=["Cs"]))))
def test_any_case_comes_back(marking, text):
    text = unicodedata.normalize("NFC", text)
    lost = [letter for letter in text if letter != letter.lower() and letter not in CAPITALS]
    if not lost and not {CAPITAL_MARK, CAPITALS_MARK} & set(text):
        assert round_trip(marking, text) == text


def test_a_word_has_the_same_subwords_in_any_case(marking):
    def words(text):
        marks = marking.tokenize(CAPITAL_MARK + CAPITALS_MARK)
        return [token for token in marking.tokenize(text) if token not in marks]

    assert words("GRÖßERE WAN") != words("wan")
    assert words("Wan Lume") == words("WAN LUME") == words("wan lume")


def test_capitals_come_back_without_the_library(marking, tmp_path):
    marking.save_pretrained(tmp_path)
    tokenizer, _ = read_tokenizers(tmp_path)
    for text in ("Wan LUME, Öl!", "I", "", "ÖL"):
        ids = tokenizer(text)["input_ids"]
        assert ids == marking(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_the_special_ids_are_those_of_the_config(tokenizer):
    config = VanillaTransformerConfig()
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS.values())) == [0, 1, 2, 3]
    assert tokenizer.pad_token_id == config.pad_token_id
    assert tokenizer.bos_token_id == config.bos_token_id == config.decoder_start_token_id
    assert tokenizer.eos_token_id == config.eos_token_id


def test_a_vocabulary_has_the_size_asked_for():
    for algorithm in ALGORITHMS:
        assert len(train_tokenizer(sentences(), vocab_size=540, algorithm=algorithm, show_progress=False)) == 540


def test_pieces_are_longer_than_bytes_and_a_word_is_the_same_anywhere(tokenizer):
    text = sentences()[0]
    assert len(tokenizer.tokenize(text)) < len(text) / 2
    start, inside = tokenizer.tokenize("wan"), tokenizer.tokenize("ba wan")
    assert inside[-len(start) :] == start


def test_source_and_target_give_what_the_model_trains_on(tokenizer, make_model):
    sources, targets = ["wan lume.", "größer"], ["a", "kilu bado zorsi me."]
    encoded = tokenizer(sources, text_target=targets)
    assert encoded.keys() == {"input_ids", "attention_mask", "labels"}
    assert all(ids[-1] == tokenizer.eos_token_id for ids in encoded["input_ids"] + encoded["labels"])
    assert tokenizer.batch_decode(encoded["labels"], skip_special_tokens=True) == targets

    model = make_model(vocab_size=len(tokenizer))
    examples = [{key: encoded[key][row] for key in ("input_ids", "labels")} for row in range(2)]
    batch = DataCollatorForSeq2Seq(tokenizer, model=model)(examples)
    assert batch["attention_mask"].sum(1).tolist() == [len(ids) for ids in encoded["input_ids"]]
    assert (batch["labels"] == -100).sum() > 0
    assert batch["decoder_input_ids"][:, 0].tolist() == [model.config.decoder_start_token_id] * 2
    assert model(**batch).loss.isfinite()


def test_loading_needs_no_package_of_ours(tmp_path):
    tokenizer = train_tokenizer(sentences(), vocab_size=400, show_progress=False)
    tokenizer.save_pretrained(tmp_path)
    code = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
assert not [name for name in sys.modules if name.startswith("vanilla_transformer")]
print(json.dumps(tokenizer(json.loads(sys.argv[2]))["input_ids"]))
"""
    texts = [text for text in HARD if "\x00" not in text]
    command = [sys.executable, "-c", code, str(tmp_path), json.dumps(texts)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ)
    assert json.loads(output.stdout) == tokenizer(texts)["input_ids"]


def test_training_twice_gives_the_same_vocabulary():
    for algorithm in ALGORITHMS:
        first, second = (
            train_tokenizer(iter(sentences()), vocab_size=540, algorithm=algorithm, show_progress=False).get_vocab()
            for _ in range(2)
        )
        assert first == second


def test_two_tokenizers_are_saved_and_loaded_together(tmp_path):
    source, target = (train_tokenizer(sentences(), vocab_size=size, show_progress=False) for size in (300, 320))
    for target_tokenizer in (None, source):  # one tokenizer for both sides
        save_tokenizers(tmp_path / "one", source, target_tokenizer)
        assert not (tmp_path / "one" / TARGET).exists()
        loaded, loaded_target = load_tokenizers(tmp_path / "one")
        assert (loaded.get_vocab(), loaded_target) == (source.get_vocab(), None)
    save_tokenizers(tmp_path / "two", source, target)
    assert (tmp_path / "two" / TARGET / "tokenizer.json").is_file()
    loaded, loaded_target = load_tokenizers(tmp_path / "two")
    assert (loaded.get_vocab(), loaded_target.get_vocab()) == (source.get_vocab(), target.get_vocab())
    with pytest.raises(ValueError, match=r"missing can't be loaded \(.+\): give a folder with a model"):
        load_tokenizers(tmp_path / "missing")


def test_mistakes_get_a_sentence():
    with pytest.raises(ValueError, match=r"algorithm='bpee' is unknown: choose one of bpe, wordpiece, unigram"):
        train_tokenizer([], algorithm="bpee")
    with pytest.raises(ValueError, match=r"normalization='nfd' is unknown"):
        train_tokenizer([], normalization="nfd")
    with pytest.raises(ValueError, match=r"vocab_size=100 can't hold.*use 260 or more"):
        train_tokenizer([], vocab_size=100)


def test_a_mask_is_one_more_token_at_the_end_and_never_comes_from_text(tmp_path):
    tokenizer = train_tokenizer(["a b"], vocab_size=262, min_frequency=1, show_progress=False)
    masking = with_mask_token(tokenizer)
    assert (tokenizer.mask_token, masking.mask_token) == (None, "<mask>")
    assert masking.mask_token_id == len(tokenizer) == len(masking) - 1
    text = "a <mask> b"
    assert masking(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert masking.decode(masking(text)["input_ids"], skip_special_tokens=True) == text
    masking.save_pretrained(tmp_path)
    loaded, _ = load_tokenizers(tmp_path)
    assert (loaded.mask_token_id, loaded(text)["input_ids"]) == (masking.mask_token_id, masking(text)["input_ids"])
    assert with_mask_token(loaded) is loaded
