"""The beam search against its definition in plain Python, an exhaustive search, and the library's own."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    StoppingCriteria,
    StoppingCriteriaList,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.small_models import small_marian
from vanilla_transformer.cpu.packed_decoder_steps import PackedSteps
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.beam_search import _top
from vanilla_transformer.models.decoder_steps import RowPerBeam
from vanilla_transformer.models.search_options import PENALTIES


EOS = 2


def lively(model, factor=2.0):
    """Random weights as they come give dull distributions: larger ones disagree about words and lengths."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


def log_probabilities(model, source: list[int], prefix: list[int]) -> list[float]:
    logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([prefix])).logits
    return logits[0, -1].double().log_softmax(-1).tolist()


def by_definition(model, source, beams, alpha, penalty="gnmt", extra=50, start=(1,)) -> list[tuple[float, list[int]]]:
    """The search as its module describes it, a hypothesis at a time, with no batch, no cache and no early end."""
    limit = len(source) + extra
    beam, finished = [(0.0, list(start))], []
    for length in range(1, limit + 1):
        ranking = sorted(
            (
                (total + value, [*tokens, token])
                for total, tokens in beam
                for token, value in enumerate(log_probabilities(model, source, tokens))
            ),
            key=lambda candidate: -candidate[0],
        )
        ended = [tokens[-1] == EOS or length == limit for _, tokens in ranking]
        finished += [
            (total / PENALTIES[penalty](length) ** alpha, tokens)
            for (total, tokens), end in zip(ranking[:beams], ended, strict=False)
            if end
        ]
        beam = [candidate for candidate, end in zip(ranking, ended, strict=True) if not end][:beams]
    return sorted(finished, key=lambda candidate: -candidate[0])[:beams]


def padded(sources: list[list[int]]) -> dict[str, torch.Tensor]:
    longest = max(map(len, sources))
    ids = torch.tensor([source + [0] * (longest - len(source)) for source in sources])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def without_padding(row: torch.Tensor) -> list[int]:
    tokens = row.tolist()
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


def random_sources(number: int, vocabulary: int, longest: int = 8) -> list[list[int]]:
    lengths = torch.randint(1, longest + 1, (number,)).tolist()
    return [torch.randint(3, vocabulary, (length,)).tolist() for length in lengths]


# --- against the definition ---


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_it_finds_what_the_definition_finds(make_model, seed, alpha):
    torch.manual_seed(seed)
    model = lively(make_model(vocab_size=9))
    sources = random_sources(5, 9, longest=6)
    options = {"num_beams": 3, "length_penalty": alpha, "max_extra_tokens": 4, "num_return_sequences": 3}
    output = model.generate(
        **padded(sources),
        **options,
        custom_generate=beam_search.search,
        return_dict_in_generate=True,
        output_scores=True,
    )
    # Without the scores, sentences leave the batch when they are finished.
    sequences = model.generate(**padded(sources), **options, custom_generate=beam_search.search)
    for number, source in enumerate(sources):
        expected = by_definition(model, source, 3, alpha, extra=4)
        rows = slice(3 * number, 3 * number + 3)
        assert output.sequences_scores[rows].tolist() == pytest.approx([score for score, _ in expected], abs=1e-4)
        for found in (output.sequences[rows], sequences[rows]):
            # A hypothesis that hit the limit has no end of sentence to find it by: cut to the expected length.
            assert [row[: len(tokens)].tolist() for row, (_, tokens) in zip(found, expected, strict=True)] == [
                tokens for _, tokens in expected
            ]


def all_sequences(model, source: list[int], longest: int) -> list[tuple[float, list[int]]]:
    """Every sequence over five words that ends, or reaches the longest length, with its log probability."""
    beam, complete = [(0.0, [1])], []
    for length in range(1, longest + 1):
        grown = [
            (total + value, [*tokens, token])
            for total, tokens in beam
            for token, value in enumerate(log_probabilities(model, source, tokens))
        ]
        complete += [(total, tokens) for total, tokens in grown if tokens[-1] == EOS or length == longest]
        beam = [(total, tokens) for total, tokens in grown if tokens[-1] != EOS]
    return complete


def test_a_wide_enough_beam_is_an_exhaustive_search(make_model):
    """Five words, at most four tokens: the best of all sequences that end, or reach the limit."""
    for seed, alpha in itertools.product(range(3), [0.0, 0.6, 1.0]):
        torch.manual_seed(seed)
        model = lively(make_model(vocab_size=5))
        source = [3, 4]
        score, best = max(
            (total / PENALTIES["gnmt"](len(tokens) - 1) ** alpha, tokens)
            for total, tokens in all_sequences(model, source, longest=4)
        )
        output = model.generate(
            **padded([source]), custom_generate=beam_search.search, num_beams=300, length_penalty=alpha,
            max_extra_tokens=2, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        assert output.sequences[0].tolist() == best
        assert output.sequences_scores.item() == pytest.approx(score, abs=1e-4)


def test_ties_are_broken_but_not_miscounted(make_model):
    """A model that finds all words alike: every hypothesis of a length has the same score, which must be right."""
    model = make_model(vocab_size=5)
    torch.nn.init.zeros_(model.lm_head.weight)
    output = model.generate(
        **padded([[3, 4, 3], [4]]), custom_generate=beam_search.search, num_beams=4, length_penalty=1.0,
        max_extra_tokens=3, num_return_sequences=4, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    for row, score in zip(output.sequences, output.sequences_scores.tolist(), strict=True):
        length = len(without_padding(row)) - 1 if EOS in row.tolist() else (row != 0).sum().item()
        possible = {-n * math.log(5) / ((5 + n) / 6) for n in range(1, 7)}
        assert min(abs(score - each) for each in possible) < 1e-5, length
    assert len({tuple(row.tolist()) for row in output.sequences[:4]}) == 4  # all different


def test_a_beam_wider_than_the_vocabulary(make_model):
    model = lively(make_model(vocab_size=5))
    sequences = model.generate(
        **padded([[3, 4]]), custom_generate=beam_search.search, num_beams=12, length_penalty=0.6, max_extra_tokens=2,
        num_return_sequences=12,
    )  # fmt: skip
    for row, (_, tokens) in zip(sequences, by_definition(model, [3, 4], 12, 0.6, extra=2), strict=True):
        assert row[: len(tokens)].tolist() == tokens


def test_nothing_but_one_hypothesis_can_be_found(make_model):
    """At a limit of one token there are as many hypotheses as words: the rest of a wider beam stays empty."""
    model = make_model(vocab_size=5)
    output = model.generate(
        **padded([[3]]), custom_generate=beam_search.search, num_beams=7, num_return_sequences=7, max_extra_tokens=0,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    assert torch.isfinite(output.sequences_scores).tolist() == [True] * 5 + [False] * 2


# --- against the library ---


def library_models(make_model):
    sizes = {"vocab_size": 23, "d_model": 16, "pad_token_id": 0, "eos_token_id": EOS, "decoder_start_token_id": 1}
    yield make_model()
    yield make_model(norm_placement="pre", position_encoding="learned", attn_implementation="eager")
    yield make_model(target_vocab_size=31, d_k=3, d_v=5)
    yield small_marian()
    yield T5ForConditionalGeneration(T5Config(**sizes, d_kv=4, d_ff=32, num_layers=2, num_heads=4)).eval()


@pytest.mark.parametrize("number", range(5))
def test_with_the_librarys_penalty_it_finds_what_generate_finds(make_model, number):
    for seed in range(3):
        torch.manual_seed(seed)
        model = lively(list(library_models(make_model))[number])
        model.generation_config.forced_eos_token_id = None
        batch = padded(random_sources(9, 23))
        options = {"num_beams": 3, "length_penalty": 0.6, "num_return_sequences": 2, "max_new_tokens": 9}
        asked = {"return_dict_in_generate": True, "output_scores": True}
        expected = model.generate(**batch, **options, **asked, early_stopping="never")
        found = model.generate(**batch, **options, **asked, custom_generate=beam_search.search, penalty="length")
        assert_close(found.sequences_scores, expected.sequences_scores, atol=1e-4, rtol=1e-4)
        dropping = model.generate(**batch, **options, custom_generate=beam_search.search, penalty="length")
        uncached = model.generate(
            **batch, **options, custom_generate=beam_search.search, penalty="length", use_cache=False
        )
        for each in (found.sequences, dropping, uncached):
            assert list(map(without_padding, each)) == list(map(without_padding, expected.sequences))
        transitions = [
            model.compute_transition_scores(each.sequences, each.scores, each.beam_indices)
            for each in (found, expected)
        ]
        assert_close(*transitions, atol=1e-4, rtol=1e-4)


def test_a_beam_of_one_is_greedy_search(make_model):
    model = lively(make_model())
    batch = padded(random_sources(20, 23))
    found = model.generate(**batch, custom_generate=beam_search.search, max_new_tokens=9)
    expected = model.generate(**batch, max_new_tokens=9)
    assert list(map(without_padding, found)) == list(map(without_padding, expected))


class EndsWith(StoppingCriteria):
    """Finishes a hypothesis at a given token."""

    def __init__(self, token: int):
        self.token = token

    def __call__(self, input_ids, scores, **kwargs):
        return input_ids[:, -1] == self.token


@pytest.mark.parametrize(
    "options",
    [
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 4},
        {"repetition_penalty": 1.3},
        {"bad_words_ids": [[4], [5, 6]]},
        {"prefix_allowed_tokens_fn": lambda sentence, tokens: [EOS, 5 + sentence, 15]},
        {"stopping_criteria": StoppingCriteriaList([EndsWith(7)])},
        {"eos_token_id": [2, 9]},
        {"cache_implementation": "static", "disable_compile": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_generate_takes_it_takes(make_model, options):
    for seed in range(3):
        torch.manual_seed(seed)
        model = lively(make_model())
        batch = padded(random_sources(6, 23))
        options = {**options, "num_beams": 3, "length_penalty": 1.0, "max_new_tokens": 8}
        expected = model.generate(**batch, **options, early_stopping="never")
        found = model.generate(**batch, **options, custom_generate=beam_search.search, penalty="length")
        ends = {*options.get("eos_token_id", [2]), *([7] if "stopping_criteria" in options else [])}
        for ours, theirs in zip(found.tolist(), expected.tolist(), strict=True):
            end = next((place for place, token in enumerate(ours) if token in ends), len(ours))
            assert ours[: end + 1] == theirs[: end + 1]


def test_a_given_beginning_is_kept_and_not_scored(make_model):
    model = lively(make_model(vocab_size=9))
    sources = [[3, 4, 5], [6], [7, 8, 3, 4]]
    start = torch.tensor([[1, 5, 6]] * 3)
    sequences = model.generate(
        **padded(sources), decoder_input_ids=start, custom_generate=beam_search.search, num_beams=3,
        length_penalty=0.6, max_extra_tokens=3,
    )  # fmt: skip
    for row, source in zip(sequences, sources, strict=True):
        tokens = by_definition(model, source, 3, 0.6, extra=3, start=(1, 5, 6))[0][1]
        assert row[: len(tokens)].tolist() == tokens


# --- batches, lengths, ends ---


@pytest.mark.parametrize("beams", [1, 4])
def test_a_sentence_is_translated_alike_alone_and_in_any_company(make_model, beams):
    for seed in range(2):
        torch.manual_seed(seed)
        model = lively(make_model())
        sources = random_sources(32, 23, longest=12)
        options = {
            "custom_generate": beam_search.search,
            "num_beams": beams,
            "length_penalty": 0.6,
            "max_extra_tokens": 8,
        }
        together = list(map(without_padding, model.generate(**padded(sources), **options)))
        backwards = list(map(without_padding, model.generate(**padded(sources[::-1]), **options)))[::-1]
        alone = [without_padding(model.generate(**padded([source]), **options)[0]) for source in sources]
        # Hypotheses that hit their limit are followed by padding in a batch.
        shorter = [tokens[: len(single)] for tokens, single in zip(together, alone, strict=True)]
        assert shorter == alone
        assert backwards == together


def test_each_sentence_has_its_own_limit(make_model):
    model = make_model()
    model.generation_config.eos_token_id = None
    sequences = model.generate(
        **padded([[3] * 7, [3], [3] * 3]), custom_generate=beam_search.search, max_extra_tokens=2
    )
    assert (sequences[:, 1:] != 0).sum(1).tolist() == [9, 3, 5]
    longest = model.generate(**padded([[3] * 7]), custom_generate=beam_search.search)
    assert longest.shape == (1, 1 + 7 + 50)
    capped = model.generate(
        **padded([[3] * 7, [3]]), custom_generate=beam_search.search, max_extra_tokens=2, max_new_tokens=4
    )
    assert (capped[:, 1:] != 0).sum(1).tolist() == [4, 3]


def test_a_forced_end_comes_at_each_sentences_own_limit(make_model):
    model = lively(make_model())
    options = {
        "custom_generate": beam_search.search,
        "num_beams": 3,
        "max_extra_tokens": 1,
        "forced_eos_token_id": EOS,
    }
    for row, length in zip(
        model.generate(**padded([[3] * 7, [3], [3] * 3]), **options).tolist(), (8, 2, 4), strict=True
    ):
        assert EOS in row[1 : length + 1]
    batch = padded(random_sources(6, 23))
    options = {"num_beams": 3, "max_new_tokens": 6, "forced_eos_token_id": EOS}
    expected = model.generate(**batch, **options, early_stopping="never")
    found = model.generate(**batch, **options, custom_generate=beam_search.search, penalty="length")
    assert list(map(without_padding, found)) == list(map(without_padding, expected))


def test_early_stopping_ends_at_the_first_finished_ones(make_model):
    torch.manual_seed(5)
    model = lively(make_model())
    batch = padded(random_sources(8, 23))
    options = {"num_beams": 3, "length_penalty": 0.6, "max_new_tokens": 9}
    expected = model.generate(**batch, **options, early_stopping=True)
    found = model.generate(
        **batch, **options, early_stopping=True, custom_generate=beam_search.search, penalty="length"
    )
    assert list(map(without_padding, found)) == list(map(without_padding, expected))


def test_finished_sentences_leave_the_batch_and_the_search_ends_with_the_last(make_model, monkeypatch):
    model = lively(make_model())
    sizes = []
    step = PackedSteps.step
    monkeypatch.setattr(PackedSteps, "step", lambda self, hyps: sizes.append(len(hyps)) or step(self, hyps))
    monkeypatch.setattr(RowPerBeam, "__init__", lambda *_: pytest.fail("the shared source should have been used"))
    model.generate(**padded(random_sources(40, 23, longest=20)), custom_generate=beam_search.search, num_beams=2)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 40
    assert sizes[-1] < 10


def test_the_fast_choice_of_the_best_is_exact():
    for size, number in [(64, 3), (1000, 2), (6007, 8), (10_000, 12), (37_001, 8)]:
        values, added = torch.randn(3, 2, size), torch.randn(3, 2)
        best, places = _top(values, added, number)
        expected = (values + added[..., None]).flatten(1).topk(number, dim=-1)
        assert torch.equal(best, expected.values)
        assert torch.equal(places, expected.indices)


# --- stock generate ---


def test_generate_gives_translations_room_when_no_length_is_asked_for(make_model):
    model = make_model()
    model.generation_config.eos_token_id = None
    assert model.generate(torch.randint(3, 23, (2, 9))).shape == (2, 1 + 9 + 50)
    assert model.generate(torch.randint(3, 23, (2, 9)), max_new_tokens=3).shape == (2, 4)
    assert model.generate(torch.randint(3, 23, (2, 9)), max_length=6).shape == (2, 6)


def test_beams_of_generate_leave_the_source_where_it_is(make_model, monkeypatch):
    model = lively(make_model())
    moved = []
    monkeypatch.setattr(
        "transformers.cache_utils.EncoderDecoderCache.reorder_cache", lambda *_: moved.append("everything")
    )
    model.generate(**padded(random_sources(4, 23)), num_beams=3, max_new_tokens=6)
    assert not moved


# --- mistakes ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": "none"}, "penalty='none' must be one of gnmt, length"),
        ({"max_extra_tokens": -1}, "max_extra_tokens=-1 must be a whole number of 0 or more"),
        ({"do_sample": True}, "does not sample"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "pass the finished translation to the model"),
    ],
)
def test_mistakes_get_a_sentence(make_model, options, message):
    with pytest.raises(ValueError, match=message):
        make_model().generate(torch.tensor([[3, 4]]), custom_generate=beam_search.search, num_beams=2, **options)
