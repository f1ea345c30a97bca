"""`auto` gives torch's translations whatever is set, in a call or stored: random settings, ordinary and odd texts."""

import json
import random
import shutil
from pathlib import Path

import pytest
from transformers import GenerationConfig

from vanilla_transformer import Translator
from vanilla_transformer.engines.auto_engine import why_torch
from vanilla_transformer.engines.known_alike import UNSET
from vanilla_transformer.hub.saved_files import CAPTIONS, GENERATION_CONFIG, find_model
from vanilla_transformer.models.search_options import library_names


pytest.importorskip("ctranslate2")

TEXTS = [
    *("A dog runs.", "Two men are standing on a ladder.", "A woman in a red dress plays the violin."),
    *("A man is riding a bike while a child watches from the side of the road.", "People at a market"),
    *(
        "dog",
        "A",
        "!!!",
        "((((((",
        "12345 67890",
        "xqzt",
        "ÄÖÜ ß",
        "😀😀",
        "aaaa aaaa aaaa aaaa",
        "the the the the the",
    ),
    *(
        "a, b, c, d, e, f, g",
        "I am hungry.",
        "http://example.com/?a=b&c=d",
        "A\tman\twith tabs",
        "A man. A man. A man.",
    ),
]
# Values that change a search, or seem to. Those of other names are made up: they are torch's whatever they are.
VALUES = {
    "num_beams": (1, 2, 3, 4, 5, 8, 16),
    "length_penalty": (-1, 0.0, 0.3, 0.6, 1.0, 1.3, 1.6, 2.0, 3.0),
    "penalty": ("gnmt", "length"),
    "max_extra_tokens": (0, 1, 5, 50),
    "early_stopping": (False, True, "never"),
    "max_length": (2, 8, 20, 1024),
    "max_new_tokens": (1, 3, 60),
    "min_new_tokens": (0, 15),
    "eos_token_id": (2, [2], [2, 5]),
    "decoder_start_token_id": (1, 2),
    "pad_token_id": (0, 2),
    "guidance_scale": (1.0, 1.5),
    "repetition_penalty": (1.0, 1.3),
    "no_repeat_ngram_size": (0, 2),
    "bad_words_ids": ([], [[9]], [[17, 20]]),
    "suppress_tokens": ([9, 17],),
    "forced_eos_token_id": (2,),
    "stop_strings": (["Hund"],),
    "max_time": (100.0,),
    "use_cache": (True, False),
    "temperature": (1.0, 0.5),
    "search": ("vanilla_beam_search", None),
}
ONLY_IN_A_CALL = {"n_best": (1, 2, 5), "prefix": ("Ein", "Ein Mann"), "glossary": ({"dog": "Katze"},)}
NEVER_IN_A_CALL = ("search", "eos_token_id", "decoder_start_token_id", "pad_token_id")
COMMON = ("num_beams", "length_penalty", "max_extra_tokens", "max_new_tokens", "n_best", "prefix", "search")


def draw(rng: random.Random, names: list[str]) -> dict:
    """At most three settings, most of them of the kind that people use."""
    common = [name for name in names if name in COMMON]
    chosen = [rng.choice(common if rng.random() < 0.75 else names) for _ in range(rng.randrange(2))]
    values = {**VALUES, **ONLY_IN_A_CALL}
    return {name: rng.choice(values.get(name, (1, True, 0.5, "text", [5]))) for name in chosen}


def save(folder: Path, settings: dict) -> Path:
    """The captions model with other settings in its generation config."""
    model = Path(find_model(CAPTIONS))
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / name, folder)
    (folder / "model.safetensors").symlink_to(model / "model.safetensors")
    stored = json.loads((model / GENERATION_CONFIG).read_text())
    (folder / GENERATION_CONFIG).write_text(json.dumps({**stored, **settings}))
    return folder


def outcome(translator: Translator, options: dict) -> list | str:
    try:
        rows = list(translator.translate(TEXTS, **options))
    except (ValueError, TypeError) as error:
        return str(error)
    return [[(each.text, pytest.approx(each.score, abs=2e-3)) for each in row] for row in rows]


def compare(rng: random.Random, folder: Path) -> str:
    """Draws settings; where CTranslate2 decodes, compares with torch. Returns what decoded."""
    stored = draw(rng, sorted({*library_names(), *VALUES}))
    options = draw(rng, sorted({*library_names(), *VALUES, *ONLY_IN_A_CALL} - {*NEVER_IN_A_CALL}))
    try:
        if why_torch(save(folder, stored), "cpu") is not None:
            return "torch"
    except ValueError:  # a generation config that no engine takes
        with pytest.raises(ValueError, match="generation_config"):
            Translator.from_pretrained(folder, device="cpu", backend="torch")
        return "none"
    translator = Translator.from_pretrained(folder, device="cpu")
    found = outcome(translator, options)
    if translator.backend._in_torch is not None:
        return "torch"
    expected = outcome(Translator.from_pretrained(folder, device="cpu", backend="torch"), options)
    assert found == expected, f"stored: {stored}, options: {options}"
    return "CTranslate2" if isinstance(found, list) else "none"


@pytest.mark.parametrize("seed", range(2))
def test_any_settings_give_torchs_translations(tmp_path, seed):
    rng = random.Random(seed)
    decoded = [compare(rng, tmp_path / str(number)) for number in range(12)]
    assert {"CTranslate2", "torch"} <= set(decoded)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_settings_give_torchs_translations(tmp_path, seed):
    test_any_settings_give_torchs_translations(tmp_path, seed)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 3},
        {"eos_token_id": [2, 5]},
        {"decoder_start_token_id": 2},
        {"guidance_scale": 1.5},
        {"stop_strings": ["Hund"]},
        {"max_time": 1.0},
        {"min_new_tokens": 15},
        {"bad_words_ids": [[9]]},
        {"an_option_of_tomorrow": 1},
    ],
    ids=str,
)
def test_what_is_stored_and_not_known_to_be_alike_is_torchs(tmp_path, settings):
    (name,) = settings
    assert str(why_torch(save(tmp_path / "model", settings), "cpu")).startswith(f"{name}=")


def test_what_the_librarys_trainer_writes_counts_as_unset(tmp_path):
    defaults = GenerationConfig._get_default_generation_params()
    assert {name: defaults[name] for name in UNSET} == UNSET
    written = {name: value for name, value in defaults.items() if name not in ("num_beams", "length_penalty")}
    assert why_torch(save(tmp_path / "model", written), "cpu") is None
