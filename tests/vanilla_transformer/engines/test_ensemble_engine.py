"""Ensembles: the search over mean probabilities against its definition in plain Python, and what is refused."""

import math

import pytest
import torch
from transformers import MarianMTModel

from tests.small_models import small_marian
from tests.vanilla_transformer.models.test_beam_search import lively, random_sources
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.engines.ensemble_engine import EnsembleBackend
from vanilla_transformer.models.configuration_rnn_search import RnnSearchConfig
from vanilla_transformer.models.decoder_steps import RowPerBeam, RowPerSentence
from vanilla_transformer.models.modeling_rnn_search import RnnSearchForConditionalGeneration
from vanilla_transformer.models.search_options import PENALTIES, BeamSearchOptions
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer


EOS = 2
TEXTS = ["The cat sleeps.", "A dog runs in the garden.", "", "The cat runs."]


def marian() -> MarianMTModel:
    model = small_marian(vocab_size=9, d_model=8, forced_eos_token_id=None)
    model.generation_config.bad_words_ids = None
    return model


def mean_log_probabilities(members, source: list[int], prefix: list[int]) -> list[float]:
    """The logarithm of the mean probability of each token, without a cache or a batch."""
    inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([prefix])}
    probabilities = [member(**inputs).logits[0, -1].double().softmax(-1).tolist() for member in members]
    return [math.log(sum(column) / len(members)) for column in zip(*probabilities, strict=True)]


def by_definition(members, source, beams, alpha, extra) -> list[tuple[float, list[int]]]:
    beam, finished, limit = [(0.0, [1])], [], len(source) + extra
    for length in range(1, limit + 1):
        ranking = sorted(
            (
                (total + value, [*tokens, token])
                for total, tokens in beam
                for token, value in enumerate(mean_log_probabilities(members, source, tokens))
            ),
            key=lambda candidate: -candidate[0],
        )
        beam = []
        for rank, (total, tokens) in enumerate(ranking):
            if tokens[-1] != EOS and length != limit:
                beam.append((total, tokens))
            elif rank < beams:
                finished.append((total / PENALTIES["gnmt"](length) ** alpha, tokens))
        beam = beam[:beams]
    return sorted(finished, key=lambda candidate: -candidate[0])[:beams]


def recurrent() -> RnnSearchForConditionalGeneration:
    sizes = {"embedding_size": 8, "hidden_size": 8, "attention_size": 8}
    return RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=9, **sizes)).eval()


@pytest.mark.parametrize("others", [[], [marian, recurrent]])
def test_it_finds_what_the_definition_finds(make_model, others):
    members = [lively(make_model(vocab_size=9, dropout=0.0)), lively(make_model(vocab_size=9, d_model=8))]
    members += [lively(make(), 8.0) for make in others]
    ensemble = EnsembleBackend(members, list("abcd")[: len(members)])
    sources = random_sources(6, 9, longest=5)
    search = BeamSearchOptions(num_beams=3, length_penalty=0.6, max_extra_tokens=3)
    output = ensemble.generate(sources, [[1]] * 6, search=search, num_return_sequences=3, max_length=20)
    for number, source in enumerate(sources):
        expected = by_definition(members, source, 3, 0.6, 3)
        rows = slice(3 * number, 3 * number + 3)
        assert output.scores[rows] == pytest.approx([score for score, _ in expected], abs=1e-4)
        found = output.sequences[rows]
        assert [row[: len(ids)] for row, (_, ids) in zip(found, expected, strict=True)] == [ids for _, ids in expected]


def test_members_run_in_their_fastest_way(make_model, monkeypatch):
    made = []
    for stepper in (RowPerBeam, RowPerSentence):
        start = stepper.start
        monkeypatch.setattr(
            stepper, "start", lambda self, prefix, start=start: made.append(type(self).__name__) or start(self, prefix)
        )
    ensemble = EnsembleBackend([make_model(vocab_size=9), marian()], ["a", "b"])
    ensemble.generate([[3, 4]], [[1]], search=BeamSearchOptions(num_beams=2), max_length=9)
    assert made == ["PackedSteps", "RowPerBeam"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three models of one vocabulary, and one of another."""
    root = tmp_path_factory.mktemp("members")
    tokenizer = train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)
    other = train_tokenizer(["völlig anders"], vocab_size=len(tokenizer), min_frequency=1, show_progress=False)
    for seed, name in enumerate(["a", "b", "c", "other"]):
        torch.manual_seed(seed)
        config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=16)
        lively(VanillaTransformerForConditionalGeneration(config)).save_pretrained(root / name)
        (other if name == "other" else tokenizer).save_pretrained(root / name)
    return root


def hypotheses(models, **options) -> list[tuple[str, float]]:
    translator = Translator.from_pretrained(models, backend="torch", device="cpu")
    options = {"max_extra_tokens": 5, "num_beams": 3, "n_best": 3, **options}
    return [(each.text, each.score) for best in translator.translate(TEXTS, **options) for each in best]


def test_one_model_or_the_same_thrice_is_the_model(folders):
    alone = hypotheses(folders / "a")
    assert hypotheses([folders / "a"]) == alone
    thrice = hypotheses([folders / "a"] * 3)
    assert [text for text, _ in thrice] == [text for text, _ in alone]
    assert [score for _, score in thrice] == pytest.approx([score for _, score in alone], abs=1e-4)
    assert [text for text, _ in hypotheses([folders / "a", folders / "b"])] != [text for text, _ in alone]


def test_scores_are_those_of_the_search(folders):
    translator = Translator.from_pretrained([folders / "a", folders / "b", folders / "c"], device="cpu")
    text = "The cat sleeps."
    best = next(translator.translate([text], length_penalty=0.0, num_beams=4))[0]
    assert next(iter(translator.score([(text, best.text)]))).log_probability <= best.score + 1e-3
    members = [Translator.from_pretrained(folders / name, backend="torch") for name in "abc"]
    for target in ("The cat.", "A dog"):
        ids = translator.tokenizer(text_target=target)["input_ids"]
        source = translator.tokenizer(text)["input_ids"]
        start = translator.model.config.decoder_start_token_id
        expected = sum(
            mean_log_probabilities([member.model for member in members], source, [start, *ids[:place]])[token]
            for place, token in enumerate(ids)
        )
        assert next(iter(translator.score([(text, target)]))).log_probability == pytest.approx(expected, abs=1e-3)


def test_what_an_ensemble_lacks_is_refused_by_name(folders, make_model):
    with pytest.raises(ValueError, match=r"other has another vocabulary than .*a: an ensemble needs"):
        Translator.from_pretrained([folders / "a", folders / "other"])
    with pytest.raises(ValueError, match="CTranslate2 can't decode an ensemble: give one model"):
        Translator.from_pretrained([folders / "a", folders / "b"], backend="ctranslate2")
    with pytest.raises(ValueError, match="no model to load"):
        Translator.from_pretrained([])
    with pytest.raises(ValueError, match="b has vocab_size=11, but a has 9: the models of an ensemble need the same"):
        EnsembleBackend([make_model(vocab_size=9), make_model(vocab_size=11)], ["a", "b"])
    both = Translator.from_pretrained([folders / "a", folders / "b"], device="cpu")
    with pytest.raises(ValueError, match="An ensemble does not sample"):
        both.translate(["x"], sample=True)
    with pytest.raises(ValueError, match="does not support attention=True: give one model"):
        both.translate(["x"], attention=True)
