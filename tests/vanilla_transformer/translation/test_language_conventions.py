"""Each kind of multilingual model is told the languages in its own way, and a direction that it lacks is refused."""

import json

import pytest
import torch
from transformers import (
    AutoTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)

from tests.small_models import lively, small_marian
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.hub.check_export import check
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.hub.languages import Languages, record_directions
from vanilla_transformer.models.searches import store_options
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_language_tags
from vanilla_transformer.training.build_model import forbid_tags
from vanilla_transformer.translation.language_conventions import convention_of


TEXTS = ["A dog runs.", "Two men are on a ladder.", "the cat and the dog sleep under the green tree", "A cat"]
DIRECTIONS = ["en-de", "de-en", "en-fr"]


@pytest.fixture(scope="module")
def tokenizer():
    learned = train_tokenizer(TEXTS, vocab_size=297, min_frequency=1, show_progress=False)
    return with_language_tags(learned, ["de", "en", "fr"])


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(1)
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, d_model=16, encoder_ffn_dim=16
    )
    record_directions(config, list(map(Languages.parse, DIRECTIONS)))
    many = lively(VanillaTransformerForConditionalGeneration(config))
    store_options(many)
    forbid_tags(many, tokenizer)
    return many


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("many")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize("backend", ["torch", "ctranslate2"])
def test_a_batch_with_mixed_targets_is_each_text_by_itself(folder, model, tokenizer, backend):
    if backend == "ctranslate2":
        pytest.importorskip("ctranslate2")
    translator = Translator.from_pretrained(folder, backend=backend)
    targets = ["de", "fr", "de", "fr"]
    mixed = translator(TEXTS, source_lang="en", target_lang=targets)
    assert mixed == [translator(text, target_lang=target) for text, target in zip(TEXTS, targets, strict=True)]
    assert mixed == translator([f">>{target}<< {text}" for text, target in zip(TEXTS, targets, strict=True)])
    german, french = (
        [best.score for (best,) in translator.translate(TEXTS, target_lang=target)] for target in ("de", "fr")
    )
    assert all(one != other for one, other in zip(german, french, strict=True))
    greedy = {
        "source_lang": "en",
        "target_lang": targets,
        "num_beams": 1,
    }  # tags are forbidden before or after softmax
    assert translator(TEXTS, **greedy) == Translator(model, tokenizer)(TEXTS, **greedy)
    assert not any(">>" in text for text in mixed)


def test_the_library_alone_translates_with_a_prefix(folder, model, tokenizer):
    """As `run_translation.py --source_prefix ">>de<< "` does."""
    theirs = AutoTokenizer.from_pretrained(folder)
    batch = theirs([">>de<< " + text for text in TEXTS], padding=True, return_tensors="pt")
    decoded = theirs.batch_decode(model.generate(**batch), skip_special_tokens=True)
    assert decoded == Translator(model, tokenizer)(TEXTS, target_lang="de")


@pytest.mark.slow
def test_an_exported_folder_translates_without_this_package(model, tokenizer, tmp_path):
    export(model, tmp_path / "exported", tokenizer, card="# card")
    translator = Translator(model, tokenizer)
    texts = [f">>{target}<< {text}" for target in ("de", "fr") for text in TEXTS]
    translations = check(tmp_path / "exported", translator, texts)
    assert translations == translator(TEXTS * 2, target_lang=["de"] * 4 + ["fr"] * 4)


def test_directions_are_chosen_or_refused(folder):
    translator = Translator.from_pretrained(folder)
    assert list(map(str, translator.directions)) == DIRECTIONS
    assert translator.languages == (None, None)
    with pytest.raises(ValueError, match=r"en-de, de-en, en-fr: give target_lang"):
        translator(TEXTS)
    with pytest.raises(ValueError, match=r"not trained for de-fr, only for .*zero_shot"):
        translator(TEXTS, source_lang="de", target_lang="fr")
    assert len(translator(TEXTS, source_lang="de", target_lang="fr", zero_shot=True)) == len(TEXTS)
    with pytest.raises(ValueError, match=r"'es' is not a language of the model: choose one of en, de, fr"):
        translator(TEXTS, target_lang="es", zero_shot=True)
    with pytest.raises(ValueError, match=r"4 texts but 1 target languages"):
        translator(TEXTS, target_lang=["de"])
    assert translator(TEXTS, source_lang="de") == translator(TEXTS, source_lang="de", target_lang="en")


def test_scores_and_attention_know_the_direction(folder):
    translator = Translator.from_pretrained(folder)
    (score,) = translator.score([(TEXTS[0], TEXTS[1])], source_lang="en", target_lang="fr")
    (other,) = translator.score([(TEXTS[0], TEXTS[1])], source_lang="en", target_lang="de")
    (by_hand,) = translator.score([(f">>fr<< {TEXTS[0]}", TEXTS[1])])
    assert score == by_hand != other
    assert translator.attend(*TEXTS[:2], target_lang="fr").source_tokens[0] == ">>fr<<"


def test_the_pipeline_takes_the_librarys_names(folder):
    pipe = pipeline("vanilla-translation", model=str(folder))
    expected = Translator.from_pretrained(folder)(TEXTS[0], target_lang="fr")
    assert pipe(TEXTS[0], src_lang="en", tgt_lang="fr")["translation_text"] == expected
    assert pipe([TEXTS[0]], tgt_lang="fr")[0]["translation_text"] == expected


# --- models of others ---


def sentencepieces(*more: str) -> dict[str, int]:
    letters = [f"▁{letter}" for letter in "abcdefghijklmnop"]
    return {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "▁", *letters, *more])}


SMALL = {
    **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2},
    **{"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "decoder_start_token_id": 2},
    **{"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 64},
}


def nllb():
    tokens = NllbTokenizer(vocab=sentencepieces(), merges=[], src_lang="eng_Latn", tgt_lang="deu_Latn")
    return (
        M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokens), **SMALL)),
        tokens,
        "eng_Latn",
        "fra_Latn",
    )


def mbart():
    pieces = [(token, -float(number)) for token, number in sentencepieces().items()]
    tokens = MBart50Tokenizer(vocab=pieces, src_lang="en_XX", tgt_lang="de_DE")
    return MBartForConditionalGeneration(MBartConfig(vocab_size=len(tokens), **SMALL)), tokens, "en_XX", "fr_XX"


@pytest.mark.parametrize("make", [nllb, mbart])
def test_codes_of_the_tokenizer_are_set_and_force_the_first_token(make):
    torch.manual_seed(0)
    model, tokens, source, target = make()
    model = lively(model)
    translator = Translator(model, tokens)
    tokens.src_lang = source
    batch = tokens(["a b c", "d"], padding=True, return_tensors="pt")
    first = tokens.convert_tokens_to_ids(target)
    generated = model.generate(**batch, forced_bos_token_id=first, num_beams=1, do_sample=False, max_new_tokens=9)
    assert set(generated[:, 1].tolist()) == {first}
    expected = tokens.batch_decode(generated, skip_special_tokens=True)
    tokens.src_lang = "de_DE" if source == "en_XX" else "deu_Latn"  # another thread may have left another
    options = {"num_beams": 1, "max_new_tokens": 8}
    assert translator(["a b c", "d"], source_lang=source, target_lang=target, **options) == expected
    short = {"source_lang": source.split("_")[0], "target_lang": target.split("_")[0]}
    assert translator(["a b c", "d"], **short, **options) == expected
    with pytest.raises(ValueError, match=r"'xy' is not a language of the model: choose one of"):
        translator("a", source_lang=source, target_lang="xy")


def test_m2m100_names_its_tokens_otherwise():
    class Codes:
        """What `M2M100Tokenizer` has; a real one needs a file of SentencePiece."""

        src_lang, tgt_lang, init_kwargs = "en", "de", {}
        lang_code_to_token = {"de": "__de__", "en": "__en__"}

        def get_added_vocab(self):
            return {}

        def convert_tokens_to_ids(self, token):
            return {"__de__": 7, "__en__": 8}[token]

    convention, tokens = convention_of(M2M100Config(), Codes()), Codes()
    assert convention.targets == ("de", "en")
    assert convention.first_tokens(tokens, Languages("en", "de")) == [7]
    convention.set_languages(tokens, Languages("de", "en"))
    assert (tokens.src_lang, tokens.tgt_lang) == ("de", "en")


def test_multi_target_opus_has_tags_in_its_vocabulary():
    class Opus:
        init_kwargs = {"source_lang": "en", "target_lang": "roa"}
        supported_language_codes = [">>fra<<", ">>spa<<"]

        def get_added_vocab(self):
            return {}

    convention = convention_of(small_marian().config, Opus())
    assert convention.tagged("Hello.", convention.resolve(Languages("en", "fra"))) == ">>fra<< Hello."
    assert convention.untagged(">>spa<< Hello.", Languages("en", None)) == ("Hello.", Languages("en", "spa"), None)
    with pytest.raises(ValueError, match=r"'deu' is not a language of the model: choose one of fra, spa"):
        convention.resolve(Languages(None, "deu"))


def test_t5_has_words_in_front(tokenizer):
    tasks = {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: "},
        "translation_en_to_fr": {"prefix": "translate English to French: "},
    }
    config = T5Config(
        **{"vocab_size": 300, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2},
        **{"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1},
    )
    config.task_specific_params = tasks
    plain = train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)
    translator = Translator(lively(T5ForConditionalGeneration(config)), plain)
    assert list(map(str, translator.directions)) == ["en-de", "en-fr"]
    words = "translate English to French: "
    assert translator(TEXTS, target_lang="fr") == translator([words + text for text in TEXTS])
    assert translator(TEXTS, target_lang="fr") != translator(TEXTS, target_lang="de")


def test_a_model_with_one_direction_is_told_nothing(tokenizer, tmp_path):
    config = VanillaTransformerConfig(source_lang="en", target_lang="de")
    convention = convention_of(config, train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False))
    assert convention.resolve(Languages()) == ("en", "de")
    assert convention.resolve(Languages("eng", "de_AT")) == ("eng", "de")
    assert convention.tagged("text", Languages("en", "de")) == "text"
    with pytest.raises(ValueError, match=r"not trained for \?-fr, only for en-de: choose one of these\.$"):
        convention.resolve(Languages(None, "fr"))
    config.save_pretrained(tmp_path)
    assert "directions" not in json.loads((tmp_path / "config.json").read_text())


def test_a_tag_in_the_text_is_taken_or_refused(folder):
    """It says the target language as the option does, whatever the spaces around it; both must agree."""
    translator = Translator.from_pretrained(folder)
    for target in ("de", "fr"):
        expected = [best.score for (best,) in translator.translate(TEXTS, source_lang="en", target_lang=target)]
        for tag in (f">>{target}<< ", f"  >>{target}<<\t", f">>{target}<<"):
            for languages in ({}, {"target_lang": target}, {"source_lang": "en"}):
                tagged = translator.translate([tag + text for text in TEXTS], **languages)
                assert [best.score for (best,) in tagged] == expected
        (scored,) = translator.score([(f">>{target}<< A cat", "Katze")], target_lang=target)
        assert scored == next(translator.score([("A cat", "Katze")], target_lang=target))
        aligned = next(translator.translate([f">>{target}<< A cat"], alignment=True))[0]
        assert (
            aligned.word_alignment
            == next(translator.translate(["A cat"], target_lang=target, alignment=True))[0].word_alignment
        )
        assert translator.attend(f">>{target}<< A cat", "Katze").source == "A cat"
    contradiction = r">>fr<< A cat.* asks for 'fr', and target_lang is 'de': leave out one"
    for call in (
        lambda: translator(">>fr<< A cat", target_lang="de"),
        lambda: translator.attend(">>fr<< A cat", "Katze", target_lang="de"),
        lambda: next(translator.score([(">>fr<< A cat", "Katze")], target_lang="de")),
        lambda: translator(["A cat", ">>fr<< A cat"], target_lang=["fr", "de"]),
    ):
        with pytest.raises(ValueError, match=contradiction):
            call()
    with pytest.raises(ValueError, match="not trained for de-fr"):
        translator(">>fr<< Ein Hund", source_lang="de")
    with pytest.raises(ValueError, match=r"'es' is not a language of the model: choose one of en, de, fr"):
        translator(">>es<< A cat")
    assert translator(">>de<< ") == ""
    assert translator(">>de<< A dog runs.", split_sentences="en") == translator(
        "A dog runs.", target_lang="de", split_sentences="en"
    )
