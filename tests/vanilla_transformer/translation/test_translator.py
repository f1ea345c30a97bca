"""Texts in any number, order and form give the same translations, and everything a user can hand in is answered."""

import json
import logging
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch.testing import assert_close
from transformers import (
    GenerationConfig,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)

from tests.small_models import lively, small_marian
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.engines import BACKENDS, Generated
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.tokenization_vanilla_transformer import save_tokenizers, train_tokenizer


TEXTS = [
    "A dog runs.",
    "Two men in blue shirts are standing on a ladder cleaning the window.",
    "A cat",
    "the cat and the dog and the cat and the dog and the cat sleep under the green tree in the garden",
    "Five girls jump",
    "A man rides a bike down a long road on a sunny day.",
] * 4
SIZES = {
    "d_model": 16,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "vocab_size": 300,
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)


def vanilla(**fields):
    torch.manual_seed(1)
    config = VanillaTransformerConfig.from_preset(
        "tiny",
        **{
            "vocab_size": 300,
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "initializer_gain": 1.0,
            **fields,
        },
    )
    return lively(VanillaTransformerForConditionalGeneration(config))


def marian():
    torch.manual_seed(1)
    return lively(small_marian(vocab_size=300, max_position_embeddings=40))


def t5():
    torch.manual_seed(1)
    return lively(T5ForConditionalGeneration(T5Config(**SIZES, d_kv=4, d_ff=32, num_layers=2, num_heads=4)))


SHORT = {"max_extra_tokens": 5}


@pytest.mark.parametrize("make", [vanilla, marian])
def test_a_model_s_own_settings_take_the_place_of_the_paper_s(make, tokenizer):
    model, texts = make(), TEXTS[:6]
    translator = Translator(model, tokenizer)
    paper, own = translator(texts, **SHORT), {"num_beams": 2, "length_penalty": 3.0}
    assert paper == translator(texts, num_beams=4, length_penalty=0.6, **SHORT)
    expected = translator(texts, **own, **SHORT)
    assert expected != paper
    model.generation_config.update(**own)
    assert translator(texts, **SHORT) == expected
    assert translator(texts, num_beams=None, length_penalty=None, **SHORT) == expected
    assert translator(texts, num_beams=4, length_penalty=0.6, **SHORT) == paper


# --- the same whatever the batch ---


@pytest.mark.parametrize("make", [vanilla, marian, t5])
def test_each_text_has_one_translation_whatever_its_company(tokenizer, make):
    model = make()
    expected = [Translator(model, tokenizer)(text, **SHORT) for text in TEXTS[:6]] * 4
    assert len(set(expected)) > 3
    assert Translator(model, tokenizer)(TEXTS, **SHORT) == expected
    assert Translator(model, tokenizer, max_tokens=30, window=5)(TEXTS, **SHORT) == expected
    assert Translator(model, tokenizer)(TEXTS[::-1], **SHORT)[::-1] == expected


def test_it_is_the_papers_search(tokenizer):
    model = vanilla()
    batch = tokenizer(TEXTS[1], return_tensors="pt")
    ids = model.generate(**batch, custom_generate=beam_search.search, num_beams=4, length_penalty=0.6)[0]
    assert Translator(model, tokenizer)(TEXTS[1]) == tokenizer.decode(ids, skip_special_tokens=True)


def test_lists_columns_and_iterators_go_in(tokenizer):
    translator = Translator(vanilla(), tokenizer, window=3)
    expected = translator(TEXTS[:6], **SHORT)
    assert translator(Dataset.from_dict({"en": TEXTS[:6]})["en"], **SHORT) == expected
    assert translator((text for text in TEXTS[:6]), **SHORT) == expected
    assert translator([]) == []


def test_an_endless_iterator_is_read_a_window_at_a_time(tokenizer):
    read = []

    def endless():
        while True:
            read.append(1)
            yield "A dog runs."

    results = Translator(vanilla(), tokenizer, window=4).translate(endless(), **SHORT)
    assert next(results)[0].text == next(results)[0].text
    assert len(read) == 4


# --- hypotheses ---


def test_n_best_are_different_and_ranked(tokenizer):
    translator = Translator(vanilla(), tokenizer)
    for hypotheses in translator.translate(TEXTS[:3], n_best=4, **SHORT):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert len(hypotheses) == 4
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.text for hypothesis in hypotheses}) > 1
    assert [found[0].text for found in translator.translate(TEXTS[:3], n_best=4, **SHORT)] == translator(
        TEXTS[:3], **SHORT
    )


def test_a_prefix_begins_the_translation(tokenizer):
    translator = Translator(vanilla(), tokenizer)
    assert all(text.startswith("Two men") for text in translator(TEXTS[:6], prefix="Two men", **SHORT))
    prefixes = ["A", None, "Five girls", "the cat", None, "A man"]
    found = translator(TEXTS[:6], prefix=prefixes, **SHORT)
    plain = translator(TEXTS[:6], **SHORT)
    for text, prefix, without in zip(found, prefixes, plain, strict=True):
        assert text.startswith(prefix) if prefix else text == without
    assert found == translator(iter(TEXTS[:6]), prefix=iter(prefixes), **SHORT)


def test_samples_differ_and_the_seed_decides(tokenizer):
    translator = Translator(vanilla(), tokenizer)
    torch.manual_seed(7)
    first = [h.text for h in next(translator.translate(TEXTS[:1], sample=True, n_best=5, temperature=2.0))]
    torch.manual_seed(7)
    again = [h.text for h in next(translator.translate(TEXTS[:1], sample=True, n_best=5, temperature=2.0))]
    assert first == again
    assert len(set(first)) > 1


@pytest.mark.parametrize("make", [vanilla, marian])
def test_attention_is_that_of_the_finished_translation(tokenizer, make):
    model = make()
    translator = Translator(model, tokenizer)
    plain = translator(TEXTS[:4], **SHORT)
    for text, translation, (hypothesis,) in zip(
        TEXTS[:4], plain, translator.translate(TEXTS[:4], attention=True, **SHORT), strict=True
    ):
        assert hypothesis.text == translation
        layers, _, targets, sources = hypothesis.attention.shape
        assert layers == model.config.decoder_layers
        assert (targets, sources) == (len(hypothesis.tokens), len(hypothesis.source_tokens))
        assert sources == len(tokenizer(text)["input_ids"])
        assert_close(hypothesis.attention.sum(-1), torch.ones(hypothesis.attention.shape[:-1]))
        assert [row for _, row in hypothesis.alignment] == list(range(targets))
        assert all(0 <= place < sources for place, _ in hypothesis.alignment)
    assert model.config._attn_implementation == "sdpa"


def test_alignment_is_where_the_layer_before_the_last_looks(tokenizer):
    (hypothesis,) = next(Translator(vanilla(), tokenizer).translate(["A dog runs."], attention=True, **SHORT))
    expected = hypothesis.attention[1].mean(0).argmax(-1).tolist()
    assert [place for place, _ in hypothesis.alignment] == expected


@pytest.mark.parametrize("make", [vanilla, marian, t5])
def test_a_given_translation_has_the_attention_that_the_model_gives(tokenizer, make):
    model = make()
    hypothesis = Translator(model, tokenizer).attend(TEXTS[1], TEXTS[0])
    assert (hypothesis.text, hypothesis.score) == (TEXTS[0], None)
    model.set_attn_implementation("eager")
    expected = model(**tokenizer([TEXTS[1]], text_target=[TEXTS[0]], return_tensors="pt"), output_attentions=True)
    assert_close(hypothesis.attention, torch.cat(expected.cross_attentions))
    assert_close(hypothesis.decoder_attention, torch.cat(expected.decoder_attentions))
    assert_close(hypothesis.encoder_attention, torch.cat(expected.encoder_attentions))


@pytest.mark.parametrize("make", [vanilla, marian, t5])
def test_self_attention_is_free_of_padding_and_of_what_comes_later(tokenizer, make):
    model = make()
    start = tokenizer.convert_ids_to_tokens(model.config.decoder_start_token_id)
    for (hypothesis,) in Translator(model, tokenizer).translate(TEXTS[:4], attention=True, **SHORT):
        assert hypothesis.read_tokens == (start, *hypothesis.tokens[:-1])
        assert not hypothesis.decoder_attention.triu(1).any()
        for attention, tokens in [
            (hypothesis.decoder_attention, hypothesis.read_tokens),
            (hypothesis.encoder_attention, hypothesis.source_tokens),
        ]:
            assert attention.shape[2:] == (len(tokens), len(tokens))
            assert_close(attention.sum(-1), torch.ones(attention.shape[:-1]))


def test_a_given_translation_beyond_the_positions_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"Translation 1 has \d+ tokens; the model writes 40: shorten or drop it"):
        Translator(marian(), tokenizer).attend("A cat", "dog " * 100)


# --- scoring ---


def test_scores_are_log_probabilities_of_the_target(tokenizer):
    model = vanilla()
    sources, targets = TEXTS[:6], [*TEXTS[1:6], ""]
    scores = list(Translator(model, tokenizer, max_tokens=40).score(zip(sources, targets, strict=True)))
    for source, target, score in zip(sources, targets, scores, strict=True):
        batch = tokenizer([source], text_target=[target], return_tensors="pt")
        loss = model(**batch).loss.item()
        assert score.tokens == batch["labels"].shape[1]
        assert score.log_probability == pytest.approx(-loss * score.tokens, rel=1e-4)
        assert score.perplexity == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-4)


@pytest.mark.parametrize("pair", ["ab", None, ("a",), ("a", "b", "c"), {"a": 1, "b": 2}])
def test_only_pairs_are_scored(tokenizer, pair):
    with pytest.raises(ValueError, match=r"Pair 2 is .*: score\(\) takes pairs of a text and its translation"):
        list(Translator(vanilla(), tokenizer).score([("a", "b"), pair]))
    with pytest.raises(ValueError, match="Text 1 is 3, a int: only strings"):
        list(Translator(vanilla(), tokenizer).score([("a", 3)]))


def test_the_search_scores_a_translation_as_force_decoding_does(tokenizer):
    translator = Translator(vanilla(), tokenizer)
    for text, (hypothesis,) in zip(TEXTS[:6], translator.translate(TEXTS[:6], length_penalty=0.0), strict=True):
        ids = tokenizer(text_target=hypothesis.text)["input_ids"]
        if tokenizer.decode(ids, skip_special_tokens=True) == hypothesis.text and len(ids) < 40:
            score = next(translator.score([(text, hypothesis.text)]))
            # The text may be cut into other pieces than the search wrote it in: then it is another sequence.
            assert score.log_probability <= hypothesis.score + 1e-3


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_greedy_score_has_the_penalty_that_was_asked_for(tokenizer, alpha):
    translator = Translator(vanilla(), tokenizer)
    plain, asked = (
        next(translator.translate(TEXTS[:1], num_beams=1, length_penalty=each, attention=True))[0]
        for each in (0.0, alpha)
    )
    assert asked.text == plain.text
    assert asked.score == pytest.approx(plain.score / ((5 + len(asked.tokens)) / 6) ** alpha, rel=1e-5)


def test_none_switches_off_a_setting_of_the_model(tokenizer):
    model = vanilla()
    translator = Translator(model, tokenizer)
    free = translator(TEXTS[3], **SHORT)
    model.generation_config.no_repeat_ngram_size = 1
    assert translator(TEXTS[3], **SHORT) != free
    assert translator(TEXTS[3], no_repeat_ngram_size=None, **SHORT) == free


def test_a_model_that_would_sample_is_searched_all_the_same(tokenizer):
    model = vanilla()
    expected = Translator(model, tokenizer)(TEXTS[:3], **SHORT)
    model.generation_config.update(do_sample=True, length_penalty=0.6)
    assert Translator(model, tokenizer)(TEXTS[:3], **SHORT) == expected
    assert Translator(model, tokenizer)(TEXTS[0], sample=True, num_beams=None, **SHORT) is not None


# --- odd texts ---


@pytest.mark.parametrize("text", ["", "   ", "\t", "\u3000"])
def test_nothing_is_translated_into_nothing(tokenizer, text):
    translator = Translator(vanilla(), tokenizer)
    assert translator(text) == ""
    assert translator(["A dog runs.", text, "A cat"], **SHORT)[1] == ""
    assert translator([text] * 3) == [""] * 3


@pytest.mark.parametrize("text", ["🙂🙃", "مرحبا بالعالم", "a\x00b", "x" * 300, "one\ntwo"])
def test_any_text_is_answered(tokenizer, text):
    assert isinstance(Translator(vanilla(), tokenizer)(text, **SHORT), str)


@pytest.fixture
def warnings(monkeypatch):
    found = []
    monkeypatch.setattr(
        logging.getLogger("transformers.vanilla_transformer.translation"), "warning", found.append, raising=False
    )
    monkeypatch.setattr("vanilla_transformer.translation.translator.logger.warning", found.append)
    return found


def test_a_text_beyond_the_positions_is_cut_with_a_warning(tokenizer, warnings):
    for model in (marian(), vanilla(position_encoding="learned", max_position_embeddings=40)):
        warnings.clear()
        assert isinstance(Translator(model, tokenizer)(["A cat", "dog " * 100])[1], str)
        assert len(warnings) == 1
        assert "Text 2 has" in warnings[0]
        assert "reads 40" in warnings[0]


def test_sinusoids_read_texts_of_any_length(tokenizer, warnings):
    Translator(vanilla(max_position_embeddings=40), tokenizer)("dog " * 100, max_new_tokens=3)
    assert not warnings


def test_one_limit_for_every_backend(tokenizer, warnings):
    texts = ["A cat", "dog " * 2000]
    for backend in ("torch", "ctranslate2"):
        warnings.clear()
        Translator(vanilla(max_position_embeddings=1024), tokenizer, backend=backend)(texts, max_new_tokens=2)
        assert len(warnings) == 1
        assert "Text 2 has" in warnings[0]
        assert "max_source_tokens is 1024: the rest is cut off" in warnings[0]
    translator = Translator(vanilla(), tokenizer, max_source_tokens=20)
    with pytest.raises(ValueError, match=r"Translation 1 has \d+ tokens; max_source_tokens is 20: shorten or drop it"):
        list(translator.score([("a", "dog " * 50)]))
    with pytest.raises(ValueError, match="max_source_tokens=0 must be at least 1"):
        Translator(vanilla(), tokenizer, max_source_tokens=0)


def test_long_texts_in_chunks(tokenizer, warnings):
    options = {"max_new_tokens": 3}
    plain = Translator(vanilla(), tokenizer)
    chunked = Translator(vanilla(), tokenizer, max_source_tokens=12, long_texts="chunk", window=3)
    texts = ["A dog.", "A dog runs. The cat sleeps.\nA dog.", "", "A dog runs and runs and runs and runs"]
    found = [best for (best,) in chunked.translate(texts, prefix=["A", None, None, "A"], **options)]
    assert not warnings
    assert found[0] == next(plain.translate(["A dog."], prefix="A", **options))[0]
    parts = [best for (best,) in plain.translate(["A dog runs.", "The cat sleeps.", "A dog."], **options)]
    assert found[1].text == f"{parts[0].text} {parts[1].text}\n{parts[2].text}"
    assert found[1].score == pytest.approx(sum(part.score for part in parts), abs=1e-3)
    assert found[2].text == ""
    assert found[3].text.startswith("A")
    with pytest.raises(ValueError, match=r"long_texts='chunk' joins the best translations: leave out attention"):
        chunked.translate(texts, n_best=2)
    with pytest.raises(ValueError, match="Text 2 is 3, a int"):
        chunked(["A", 3])
    with pytest.raises(ValueError, match="long_texts='drop' is unknown: choose one of cut, chunk"):
        Translator(vanilla(), tokenizer, long_texts="drop")


# --- loading ---


def test_from_pretrained_and_the_pipeline_read_a_folder(tokenizer, tmp_path):
    model = vanilla()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    expected = Translator(model, tokenizer)(TEXTS[:6], **SHORT)
    assert Translator.from_pretrained(tmp_path, device="cpu", max_tokens=60)(TEXTS[:6], **SHORT) == expected

    pipe = pipeline("vanilla-translation", model=str(tmp_path), device="cpu")
    assert pipe(TEXTS[0], **SHORT)["translation_text"] == expected[0]
    assert [found["translation_text"] for found in pipe(TEXTS[:6], **SHORT)] == expected
    assert [found["translation_text"] for found in pipe(iter(TEXTS[:6]), **SHORT)] == expected
    assert [found["translation_text"] for found in pipe(TEXTS[:6], batch_size=2, **SHORT)] == expected
    assert len(pipe(TEXTS[0], n_best=3, **SHORT)) == 3
    with pytest.raises(ValueError, match="assistant_model is no option of Translator"):
        pipeline("vanilla-translation", model=str(tmp_path), device="cpu", assistant_model=model)(TEXTS[0])


def test_two_vocabularies_are_loaded_together(tokenizer, tmp_path):
    target = train_tokenizer(TEXTS[:1], vocab_size=270, min_frequency=1, show_progress=False)
    model = vanilla(target_vocab_size=len(target))
    model.save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer, target)
    expected = Translator(model, tokenizer, target)(TEXTS[:6], **SHORT)
    assert Translator.from_pretrained(tmp_path, device="cpu")(TEXTS[:6], **SHORT) == expected
    pipe = pipeline("vanilla-translation", model=str(tmp_path), device="cpu")
    assert [found["translation_text"] for found in pipe(TEXTS[:6], **SHORT)] == expected
    pipe = pipeline("vanilla-translation", model=model, tokenizer=tokenizer, target_tokenizer=target, device="cpu")
    assert [found["translation_text"] for found in pipe(TEXTS[:6], **SHORT)] == expected
    with pytest.raises(ValueError, match="separate target vocabulary: give its target_tokenizer too"):
        pipeline("vanilla-translation", model=model, tokenizer=tokenizer, device="cpu")


def test_any_backend_that_follows_the_protocol_translates(tokenizer, monkeypatch, tmp_path):
    """A backend from outside the package: it turns the source around."""

    class Reversing:
        name, title, quantizations = "reversing", "Reversing", ("float32",)
        longest_input = 30

        def __init__(self, config):
            self.config, self.model = config, self
            self.generation_config = GenerationConfig(decoder_start_token_id=1)

        @classmethod
        def from_model(cls, model, tokenizer, target_tokenizer=None, *, quantization="float32"):
            return cls(model.config)

        @classmethod
        def from_pretrained(cls, name_or_path, *, device=None, quantization="float32", **options):
            return cls(VanillaTransformerConfig.from_pretrained(name_or_path))

        def require_options(self, options, *, sample=False, glossary=False):
            if "top_k" in options:
                raise ValueError("Reversing lacks the option top_k.")

        def require_support(self, call):
            raise ValueError(f"Reversing does not support {call}.")

        def generate(self, sources, prefixes, *, max_length, num_return_sequences, **options):
            assert max_length == min(len(prefixes[0]) + max(map(len, sources)) + 50, 30)
            rows = [
                [*prefix, *source[-2::-1], source[-1], 0] for source, prefix in zip(sources, prefixes, strict=True)
            ]
            return Generated(
                [row for row in rows for _ in range(num_return_sequences)], [0.0] * len(rows) * num_return_sequences
            )

    monkeypatch.setitem(BACKENDS, "reversing", Reversing)
    vanilla().save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    for translator in (
        Translator(vanilla(), tokenizer, backend="reversing"),
        Translator.from_pretrained(tmp_path, backend="reversing", window=1),
    ):
        prefix, text = (tokenizer(words, add_special_tokens=False)["input_ids"] for words in ("A", "A cat"))
        assert translator(["A cat", ""], prefix="A") == [tokenizer.decode([*prefix, *text[::-1]]), ""]
        assert len(next(translator.translate(["A cat"], n_best=2))) == 2
        with pytest.raises(ValueError, match="Reversing lacks the option top_k"):
            translator.translate(["A cat"], top_k=3, sample=True)
        with pytest.raises(ValueError, match=r"Reversing does not support attention=True"):
            translator.translate(["A cat"], attention=True)
        with pytest.raises(ValueError, match=r"Reversing does not support score\(\)"):
            translator.score([])


# --- mistakes ---


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["a", None], {}, "Text 2 is None, a NoneType: only strings"),
        (["a"], {"n_best": 0}, "n_best=0 must be at least 1"),
        (["a"], {"n_best": 5}, "n_best=5 is more than num_beams=4 can find"),
        (["a"], {"prefix": ["x", "y"]}, "There are 1 texts but 2 prefixes"),
        (["a"], {"num_beams": 0}, "num_beams=0 must be a whole number of 1"),
        (["a"], {"num_beams": 2.5}, "num_beams=2.5 must be a whole number of 1"),
        (["a"], {"num_beams": 0, "sample": True}, "num_beams=0 must be a whole number of 1"),
        (["a"], {"max_extra_tokens": -5}, "max_extra_tokens=-5 must be a whole number of 0 or more"),
        (["a"], {"num_return_sequences": 2}, "num_return_sequences is n_best here"),
        (["a"], {"do_sample": True}, "do_sample is sample here"),
        (["a"], {"length_penalty": float("nan")}, "length_penalty=nan must lie between"),
        (["a \ud800"], {}, "Text 1 is not Unicode text"),
        (["a"], {"num_beams": 1_000_000}, "num_beams=1000000 must be a whole number of 1 or more, at most 1000"),
        (None, {}, "None is a NoneType: give a text, or a list of texts"),
        (Path("a.txt"), {}, r"PosixPath\('a.txt'\) is a PosixPath: give a text"),
        ({"en": "a"}, {}, r"{'en': 'a'} is a dict: give a text"),
        (b"a", {}, "b'a' is a bytes: give a text"),
        (["a"], {"n_best": "2"}, "n_best='2' must be at least 1"),
        (["a"], {"n_best": True}, "n_best=True must be at least 1"),
        (["a"], {"max_new_tokens": -1}, "max_new_tokens=-1 must be at least 1"),
        (["a"], {"max_new_tokens": 2.5, "sample": True}, "max_new_tokens=2.5 must be at least 1"),
        (["a"], {"max_length": 0}, "max_length=0 must be at least 1"),
        *[
            (["a"], {"sample": sample, name: None}, f"{name} is no option of Translator: leave it out, or call gener")
            for name in ("use_cache", "return_dict_in_generate", "search", "synced_gpus", "custom_generate")
            for sample in (False, True)
        ],
        (["a"], {"assistant_model": vanilla}, "assistant_model is no option of Translator: leave it out, or call gen"),
        (["a"], {"prefix": 5}, "5 can't be the prefixes: give one"),
        (["a"], {"prefix": {"a": "b"}}, "{'a': 'b'} can't be the prefixes: give one"),
        (["a"], {"glossary": {"dog": 5}}, r"glossary {'dog': 5} must map source terms to target terms, both text"),
        (["a"], {"glossary": "dog"}, "'dog' can't be the glossaries: give one"),
        (["a"], {"source_lang": 5}, "5 can't be the source languages: give one"),
    ],
)
def test_mistakes_get_a_sentence(tokenizer, texts, options, message):
    with pytest.raises(ValueError, match=message):
        Translator(vanilla(), tokenizer)(texts, **options)


def test_mistakes_are_told_before_anything_is_asked_for(tokenizer):
    with pytest.raises(ValueError, match="n_best=0 must be at least 1"):
        Translator(vanilla(), tokenizer).translate(["a"], n_best=0)
    with pytest.raises(ValueError, match="length_penalty=50 must lie between"):
        Translator(vanilla(), tokenizer).translate(["a"], length_penalty=50)


def test_wrong_types_in_loading_get_a_sentence(tokenizer):
    with pytest.raises(ValueError, match="There is no model to load"):
        Translator.from_pretrained(None)
    with pytest.raises(ValueError, match="window=None must be at least 1"):
        Translator(vanilla(), tokenizer, window=None)


def test_terms_that_do_not_fit_are_left_out_and_reported(tokenizer, caplog):
    translator, term = Translator(vanilla(), tokenizer), "the cat " * 8
    texts, options = ["A dog", "A cat runs in the garden and a cat sleeps"], {"max_extra_tokens": 10}
    short, long = translator(texts, glossary={"dog": term, "cat": term}, **options)  # in one batch
    assert short == translator("A dog", **options)
    assert term.strip() in long
    sentences = [record.message for record in caplog.records]
    assert sentences == [
        "Text 1 is translated without its terms of the glossary: no translation of it can contain all their 16 tokens."
    ]


def test_a_very_long_term_takes_no_more_beams(tokenizer, monkeypatch):
    beams = []
    translator = Translator(vanilla(), tokenizer)
    generate = translator.backend.generate
    monkeypatch.setattr(
        translator.backend,
        "generate",
        lambda *batch, search, **keys: beams.append(search.num_beams) or generate(*batch, search=search, **keys),
    )
    assert translator("A dog", glossary={"dog": "the " * 400}, max_extra_tokens=3) == translator(
        "A dog", max_extra_tokens=3
    )
    assert beams == [4 + 32, 4, 4]


def test_a_model_that_has_no_numbers_left_says_so(tokenizer):
    model = vanilla()
    with torch.no_grad():
        model.lm_head.weight[7] = torch.nan
    for options in ({}, {"attention": True}, {"num_beams": 1}):
        with pytest.raises(ValueError, match=r"No translation of text 1 has a probability that is a number"):
            list(Translator(model, tokenizer).translate(["A dog"], **options))


def another_width(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "encoder_ffn_dim": 64}))


def a_pickle(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Translator}, folder / "pytorch_model.bin")


def an_empty_file(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").touch()


@pytest.mark.parametrize("spoil", [another_width, a_pickle, an_empty_file])
def test_broken_files_get_a_sentence(tokenizer, tmp_path, spoil):
    vanilla().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=r"can't be loaded \(.+\): give a folder with a model and its tokenizer"):
        Translator.from_pretrained(tmp_path, device="cpu")


def test_where_a_model_goes_is_said_once(tokenizer, tmp_path):
    vanilla().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    expected = Translator.from_pretrained(tmp_path, device="cpu")(TEXTS[:3], **SHORT)
    layers = {f"model.encoder.layers.{number}": "disk" for number in range(2)}
    rest = dict.fromkeys(("model.encoder.embed_tokens", "model.encoder.norm", "model.decoder", "lm_head"), "cpu")
    found = Translator.from_pretrained(tmp_path, device_map={**layers, **rest}, offload_folder=tmp_path / "offloaded")
    assert found.model.model.encoder.layers[0].feed_forward.fc1.weight.is_meta
    assert found(TEXTS[:3], **SHORT) == expected
    with pytest.raises(ValueError, match="device_map is for torch and takes the place of device"):
        Translator.from_pretrained(tmp_path, device_map="cpu", device="cpu")
    with pytest.raises(ValueError, match="subfolder='x': give the folder itself"):
        Translator.from_pretrained(tmp_path, subfolder="x")


def test_learned_positions_leave_room_for_what_is_given(tokenizer):
    model = vanilla(position_encoding="learned", max_position_embeddings=20)
    translator = Translator(model, tokenizer)
    assert translator(["dog " * 30, "A cat"], prefix="the cat and the dog")[1].startswith("the cat and the dog")
    assert model.generate(**tokenizer(["A cat"], return_tensors="pt"), min_new_tokens=19).shape[1] == 20
    with pytest.raises(ValueError, match=r"Translation 2 has .* tokens; the model writes 20"):
        list(translator.score([("a", "b"), ("a", "dog " * 30)]))


def test_a_device_that_is_not_there_and_a_folder_that_is_not_whole(tmp_path):
    with pytest.raises(ValueError, match="device='toaster' is unknown to torch"):
        Translator.from_pretrained(tmp_path, device="toaster")
    with pytest.raises(ValueError, match=r"can't be loaded .*: give a folder with a model and its tokenizer"):
        Translator.from_pretrained(tmp_path / "missing", device="cpu")


def test_nothing_has_no_alignment_and_no_score_when_sampled(tokenizer):
    translator = Translator(vanilla(), tokenizer)
    assert next(translator.translate([""], attention=True))[0].alignment == []
    assert next(translator.translate([""], sample=True))[0].score is None
    assert translator("", prefix="Two men") == ""
    assert translator(["A dog"], sample=True, max_extra_tokens=3)[0] is not None


def test_other_mistakes_too(tokenizer):
    with pytest.raises(ValueError, match="put the one in brackets"):
        next(Translator(vanilla(), tokenizer).translate("a text"))
    with pytest.raises(ValueError, match="max_tokens=0 must be at least 1"):
        Translator(vanilla(), tokenizer, max_tokens=0)
    (hypothesis,) = next(Translator(vanilla(), tokenizer).translate(["a"], **SHORT))
    with pytest.raises(ValueError, match="attention=True"):
        _ = hypothesis.alignment


# --- documents ---


@pytest.fixture(scope="module")
def bundled():
    return Translator.from_pretrained("multi30k-en-de-tiny", device="cpu")


CAPTIONS = [
    "A man rides a bike.",
    "Two dogs are playing in the snow.",
    "A woman is reading a book.",
    "The children are eating ice cream.",
    "A boy jumps into the water.",
]


def test_a_paragraph_of_five_captions_becomes_five_sentences(bundled):
    expected = bundled(CAPTIONS)
    assert bundled(" ".join(CAPTIONS), split_sentences=True) == " ".join(expected)
    assert bundled(" ".join(CAPTIONS), split_sentences="en") == " ".join(expected)
    assert bundled(" ".join(CAPTIONS)) != " ".join(expected)
    (hypotheses,) = bundled.translate([" ".join(CAPTIONS)], split_sentences=True)
    scores = [best.score for (best,) in bundled.translate(CAPTIONS)]
    assert hypotheses[0].score == pytest.approx(sum(scores), abs=1e-4)


def test_a_document_keeps_its_blank_lines_and_indentation(bundled):
    first, second, third = bundled(CAPTIONS[:3])
    document = f"  {CAPTIONS[0]}   {CAPTIONS[1]}\n\n\n\t{CAPTIONS[2]}\r\n \n"
    assert bundled(document, split_sentences=True) == f"  {first}   {second}\n\n\n\t{third}\r\n \n"
    texts = [document, "", "  ", CAPTIONS[0]]
    assert bundled(texts, split_sentences=True)[1:] == ["", "  ", first]
    streamed = bundled.translate(iter(texts), split_sentences=True)
    assert [best.text for (best,) in streamed] == bundled(texts, split_sentences=True)


def test_splitting_follows_the_translator_and_refuses_what_is_for_single_sentences(bundled, monkeypatch):
    splitting = Translator.from_backend(bundled.backend, bundled.tokenizer, split_sentences=True)
    text = " ".join(CAPTIONS[:2])
    assert splitting(text) == " ".join(bundled(CAPTIONS[:2]))
    assert splitting(text, split_sentences=False) == bundled(text)
    assert "Motorrad" in splitting(text, glossary={"bike": "Motorrad"})
    for options in ({"n_best": 2}, {"prefix": "Ein"}, {"attention": True}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} is for single sentences"):
            splitting.translate([text], **options)
    monkeypatch.delattr(bundled.backend.config, "source_lang")
    with pytest.raises(ValueError, match="does not record its source language"):
        splitting(text)


def test_a_text_of_several_sentences_gets_a_hint(bundled, monkeypatch):
    hints = []
    monkeypatch.setattr("vanilla_transformer.translation.translator._warn_once", hints.append)
    bundled(CAPTIONS)
    assert not hints
    bundled(" ".join(CAPTIONS))
    assert "A text has several sentences" in hints[0]
    assert "--split_sentences" in hints[0]
