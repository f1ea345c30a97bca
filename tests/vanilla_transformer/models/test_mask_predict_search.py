"""Mask-predict against its definition in plain Python, one sentence and one candidate at a time."""

import math
from dataclasses import asdict
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM, MinLengthLogitsProcessor

from vanilla_transformer.models import beam_search
from vanilla_transformer.models import mask_predict_search as mask_predict
from vanilla_transformer.models.mask_predict_options import MaskPredictOptions
from vanilla_transformer.models.mask_predict_search import candidate_lengths, least_probable, refine
from vanilla_transformer.models.searches import require_own_options, store_options


PAD, START, END, MASK = 0, 1, 2, 22


@pytest.fixture
def sources(batch):
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def alone(sources, row):
    """One sentence without padding."""
    length = int(sources["attention_mask"][row].sum())
    return {name: tensor[row : row + 1, :length] for name, tensor in sources.items()}


@torch.no_grad()
def length_probabilities(model, source):
    """The distribution of the translation's length, `</s>` not counted, by a loop over states and differences."""
    states = model.get_encoder()(**source).last_hidden_state[0]
    mean = [sum(float(state[d]) for state in states) / len(states) for d in range(states.shape[1])]
    layer, largest = model.length_predictor.projection, model.config.max_length_difference
    scores = [
        float(bias) + sum(float(w) * x for w, x in zip(row, mean, strict=True))
        for row, bias in zip(layer.weight, layer.bias, strict=True)
    ]
    total = sum(math.exp(score) for score in scores)
    probabilities = {}
    for difference, score in zip(range(-largest, largest + 1), scores, strict=True):
        probabilities[len(states) + difference - 1] = math.exp(score) / total
    return {length: value for length, value in probabilities.items() if length >= 1}


def predict(model, source, tokens):
    """The best token and its log-probability at every position of one target, `</s>` not included."""
    logits = model(**source, decoder_input_ids=torch.tensor([[*tokens, END]])).logits[0, :-1]
    logits[:, [PAD, START, END, MASK]] = -torch.inf
    best = logits.log_softmax(-1).max(-1)
    return best.indices.tolist(), best.values.tolist()


def mask_predict_by_definition(model, source, length, iterations):
    """The paper's algorithm: returns tokens and log-probabilities."""
    tokens, scores = [MASK] * length, [0.0] * length
    for t in range(iterations):
        number = length if t == 0 else math.floor(length * (iterations - t) / iterations)
        masked = sorted(range(length), key=lambda i: scores[i])[:number]
        predicted, values = predict(model, source, [MASK if i in masked else tokens[i] for i in range(length)])
        for i in masked:
            tokens[i], scores[i] = predicted[i], values[i]
    return tokens, scores


def written(sequence):
    return [int(token) for token in sequence[1:] if int(token) not in (PAD, END)]


def test_one_pass_is_the_argmax_at_each_position(make_mask_model, sources):
    model = make_mask_model()
    output = model.generate(**sources, iterations=1, length_candidates=1)
    for row, sequence in enumerate(output):
        source = alone(sources, row)
        probabilities = length_probabilities(model, source)
        length = max(probabilities, key=probabilities.get)
        expected, _ = predict(model, source, [MASK] * length)
        assert sequence[0] == START
        assert written(sequence) == expected
        assert sequence[1 + length] == END


WINDOW = {"attention_pattern": "window", "attention_window": 2}


@pytest.mark.parametrize(
    ("iterations", "fields"), [(2, {}), (4, {}), (10, {}), (4, {"position_encoding": "relative"}), (4, WINDOW)]
)
def test_the_search_is_the_papers_algorithm(make_mask_model, sources, iterations, fields):
    """Every candidate of every sentence: the same masks, tokens, mean log-probabilities and ranking."""
    model = make_mask_model(**fields)
    options = {"iterations": iterations, "length_candidates": 3, "num_return_sequences": 3}
    output = model.generate(**sources, **options, return_dict_in_generate=True)
    changed = 0
    for row in range(3):
        source = alone(sources, row)
        probabilities = length_probabilities(model, source)
        candidates = sorted(probabilities, key=probabilities.get, reverse=True)[:3]
        expected = []
        for length in candidates:
            tokens, scores = mask_predict_by_definition(model, source, length, iterations)
            expected.append((sum(scores) / length, tokens))
            changed += tokens != predict(model, source, [MASK] * length)[0]
        expected.sort(reverse=True)
        rows = slice(3 * row, 3 * row + 3)
        assert [written(sequence) for sequence in output.sequences[rows]] == [tokens for _, tokens in expected]
        assert_close(output.sequences_scores[rows], torch.tensor([score for score, _ in expected]))
    assert changed, "the iterations change something"


@pytest.mark.parametrize("alpha", [0, 0.5, 2.0])
def test_length_alpha_is_the_exponent_of_the_length_in_the_ranking(make_mask_model, sources, alpha):
    model = make_mask_model()
    options = {"length_candidates": 5, "num_return_sequences": 5, "return_dict_in_generate": True}
    means, output = (model.generate(**sources, **options, length_alpha=value) for value in (1.0, alpha))
    lengths = torch.tensor([len(written(sequence)) for sequence in means.sequences])
    by_definition = (means.sequences_scores * lengths / lengths**alpha).view(3, 5)
    expected, order = by_definition.sort(dim=1, descending=True)
    assert_close(output.sequences_scores.view(3, 5), expected)
    assert (order != torch.arange(5)).any(), "another ranking than by the mean"
    found = output.sequences.view(3, 5, -1)
    for row in range(3):
        ranked = means.sequences.view(3, 5, -1)[row, order[row]]
        assert [written(sequence) for sequence in found[row]] == [written(sequence) for sequence in ranked]


def test_each_iteration_masks_the_least_probable_tokens_by_the_papers_formula(make_mask_model, sources):
    model = make_mask_model()
    states = model.get_encoder()(**sources).last_hidden_state
    lengths = torch.tensor([7, 4, 1])
    steps = list(refine(model, states, sources["attention_mask"], lengths, 4))
    assert [step.masked.sum(1).tolist() for step in steps] == [[7, 4, 1], [5, 3, 0], [3, 2, 0], [1, 1, 0]]
    for before, after in pairwise(steps):
        for row, length in enumerate(lengths.tolist()):
            scores, masked = before.log_probabilities[row, :length], after.masked[row, :length]
            if masked.any():
                assert scores[masked].max() <= scores[~masked].min()
        kept = ~after.masked
        assert torch.equal(after.tokens[kept], before.tokens[kept])
        assert torch.equal(after.log_probabilities[kept], before.log_probabilities[kept])
    for step in steps:
        assert step.tokens[1, 4:].tolist() == [END, PAD, PAD, PAD]


def test_equal_probabilities_are_masked_from_the_left():
    is_token = torch.tensor([[True, True, True, False]])
    assert least_probable(torch.zeros(1, 4), is_token, torch.tensor([2])).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("position_encoding", ["sinusoidal", "relative", "rotary", "learned"])
def test_results_do_not_depend_on_the_batch(make_mask_model, sources, position_encoding):
    model = make_mask_model(position_encoding=position_encoding)
    options = {"iterations": 4, "length_candidates": 4, "return_dict_in_generate": True}
    together = model.generate(**sources, **options)
    for row in range(3):
        single = model.generate(**alone(sources, row), **options)
        assert written(single.sequences[0]) == written(together.sequences[row])
        assert_close(single.sequences_scores[0], together.sequences_scores[row])


# --- lengths ---


def test_the_length_distribution_equals_a_loop(make_mask_model, sources):
    model = make_mask_model()
    output = model(**sources, decoder_input_ids=sources["input_ids"])
    probabilities = output.length_logits.softmax(-1)
    for row in range(3):
        expected = length_probabilities(model, alone(sources, row))
        lengths = range(int(sources["attention_mask"][row].sum()) - 7, int(sources["attention_mask"][row].sum()) + 6)
        found = dict(zip(lengths, probabilities[row].tolist(), strict=True))
        for length, value in expected.items():
            assert math.isclose(found[length], value, rel_tol=1e-4)


@pytest.mark.parametrize("ratio", [0.5, 0.8, 1.0, 1.2, 2.0])
def test_candidates_are_the_most_probable_scaled_lengths(ratio):
    probabilities = torch.rand(4, 13).softmax(-1)
    sources, limits = torch.tensor([3, 9, 5, 20]), torch.tensor([53, 11, 2, 70])
    found = candidate_lengths(probabilities, sources, limits, 4, ratio)
    for row in range(4):
        scaled: dict[int, float] = {}
        for difference in range(-6, 7):
            length = int(sources[row]) + difference - 1
            if length >= 1:
                asked = min(max(math.floor(ratio * length + 0.5), 1), int(limits[row]))
                scaled[asked] = scaled.get(asked, 0.0) + float(probabilities[row, difference + 6])
        expected = sorted(scaled, key=scaled.get, reverse=True)[:4]
        lengths = [length for length in found[row].tolist() if length]
        assert lengths[: len(expected)] == expected
        assert len(set(lengths)) == len(lengths)
        assert max(lengths) <= limits[row]


def test_the_length_follows_the_ratio(make_mask_model):
    model = make_mask_model()
    source = {"input_ids": torch.randint(3, 22, (8, 12))}
    lengths = {}
    for ratio in (0.8, 1.0, 1.2):
        output = model.generate(**source, iterations=2, length_candidates=1, length_ratio=ratio)
        lengths[ratio] = [len(written(sequence)) for sequence in output]
    for ratio in (0.8, 1.2):
        assert lengths[ratio] == [math.floor(ratio * length + 0.5) for length in lengths[1.0]]


def test_a_translation_is_no_longer_than_its_limits(make_mask_model, sources):
    model = make_mask_model()
    for options, limits in (({"max_extra_tokens": 0}, [6, 3, 1]), ({"max_length": 5}, [3, 3, 3])):
        output = model.generate(**sources, length_ratio=3.0, **options)
        assert all(len(written(sequence)) <= limit for sequence, limit in zip(output, limits, strict=True))
    with pytest.raises(ValueError, match="num_return_sequences=4: the length limit leaves 1 lengths to try"):
        model.generate(**sources, max_extra_tokens=0, num_return_sequences=4)


# --- options ---


def test_the_models_own_options_are_the_default_and_are_saved_with_it(make_mask_model, sources, tmp_path):
    model = make_mask_model()
    fewer = model.generate(**sources, iterations=2, length_candidates=1, length_ratio=0.7)
    assert not torch.equal(fewer, model.generate(**sources))
    store_options(model, iterations=2, length_candidates=1, length_ratio=0.7)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert torch.equal(loaded.generate(**sources), fewer)
    assert torch.equal(loaded.generate(**sources, custom_generate=mask_predict.search), fewer)
    given = loaded.generate(**sources, **asdict(MaskPredictOptions()))
    assert not torch.equal(given, fewer), "given options come before the model's"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"num_beams": 4}, "num_beams=4"),
        ({"do_sample": True}, "do_sample=True"),
        ({"do_sample": True, "top_k": 5}, "do_sample=True"),
        ({"length_penalty": 0.6, "num_beams": 2}, "num_beams=2"),
        ({"repetition_penalty": 1.2}, "repetition_penalty=1.2"),
        ({"no_repeat_ngram_size": 2}, "no_repeat_ngram_size=2"),
        ({"min_new_tokens": 3}, "min_new_tokens=3"),
        ({"forced_bos_token_id": 5}, "forced_bos_token_id=5"),
        ({"bad_words_ids": [[5]]}, "bad_words_ids="),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores=True"),
        ({"decoder_input_ids": torch.tensor([[1, 5]] * 3)}, "A prefix of 1 tokens"),
        ({"logits_processor": [MinLengthLogitsProcessor(3, 2)]}, "MinLengthLogitsProcessor"),
        ({"stopping_criteria": [lambda *_, **__: False]}, "function"),
        ({"streamer": object()}, "streamer"),
        ({"synced_gpus": True}, "synced_gpus"),
        ({"search": None}, "search=None"),
        ({"prefix_allowed_tokens_fn": lambda *_: [5]}, "prefix_allowed_tokens_fn"),
    ],
)
def test_options_of_autoregressive_search_are_refused_by_name(make_mask_model, sources, options, name):
    with pytest.raises(ValueError, match="writes all tokens at once: leave it out") as error:
        make_mask_model().generate(**sources, **options)
    assert str(error.value).startswith(name)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"iterations": 0}, "iterations=0 must be a whole number of 1 or more"),
        ({"length_candidates": True}, "length_candidates=True must be a whole number of 1 or more"),
        ({"length_ratio": -1.0}, "length_ratio=-1.0 must lie between 0.1 and 10"),
        ({"length_alpha": -0.5}, "length_alpha=-0.5 must lie between 0 and 10; 1 ranks by the mean"),
        ({"num_return_sequences": 3, "length_candidates": 2}, "3 is more than length_candidates=2 can find"),
        ({"custom_generate": beam_search.search, "num_beams": 2}, "no search from left to right can decode it"),
    ],
)
def test_impossible_values_are_refused(make_mask_model, sources, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_mask_model().generate(**sources, **options)


def test_a_search_refuses_the_options_of_another(make_mask_model, make_model):
    require_own_options(make_mask_model(), ["iterations", "max_extra_tokens", "max_length"])
    require_own_options(make_model(), ["num_beams", "max_extra_tokens", "top_k"])
    with pytest.raises(ValueError, match=r"penalty is not an option of MaskPredict.*, which is decoded by mask_pred"):
        require_own_options(make_mask_model(), ["penalty"])
    with pytest.raises(ValueError, match=r"iterations is not an option of VanillaTransformer.*num_beams"):
        require_own_options(make_model(), ["iterations"])
