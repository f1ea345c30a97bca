"""Constrained search: every term is there, the result is what exhaustive search finds, and nothing else changes."""

from itertools import pairwise, product

import pytest
import torch

from vanilla_transformer import Translator
from vanilla_transformer.models import beam_search
from vanilla_transformer.translation.required_terms import LexicalConstraints


VOCABULARY, END = 8, 2


@pytest.fixture
def model(make_model):
    return make_model(vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1)


def translate(model, sources, terms, *, beams, continues_word=None, **options):
    return model.generate(
        input_ids=sources, custom_generate=beam_search.search, num_beams=beams, length_penalty=0.6,
        selection=LexicalConstraints(terms, continues_word), return_dict_in_generate=True, **options,
    )  # fmt: skip


def contains(ids: list[int], term: list[int]) -> bool:
    return any(ids[start : start + len(term)] == term for start in range(len(ids)))


def test_without_terms_it_is_plain_beam_search(model):
    sources = torch.randint(3, VOCABULARY, (4, 5))
    options = {"max_new_tokens": 8, "num_return_sequences": 3}
    plain = model.generate(
        input_ids=sources, custom_generate=beam_search.search, num_beams=3, length_penalty=0.6,
        return_dict_in_generate=True, **options,
    )  # fmt: skip
    constrained = translate(model, sources, [[], [], [], []], beams=3, **options)
    assert torch.equal(constrained.sequences, plain.sequences)
    assert torch.equal(constrained.sequences_scores, plain.sequences_scores)


def test_a_wide_beam_finds_the_best_of_all_translations_with_the_terms(model):
    sources, length = torch.tensor([[3, 4, 5]]), 4
    terms = [[5, 6], [4]]
    tokens = [token for token in range(VOCABULARY) if token != END]
    best, best_score = None, -torch.inf
    for size in range(1, length + 1):
        for middle in product(tokens, repeat=size - 1):
            for last in [END] if size < length else range(VOCABULARY):
                ids = [*middle, last]
                if all(contains(ids, term) for term in terms):
                    labels = torch.tensor([ids])
                    logits = model(input_ids=sources, decoder_input_ids=torch.tensor([[1, *ids[:-1]]])).logits
                    total = logits.log_softmax(-1).gather(-1, labels[..., None]).sum().item()
                    score = total / ((5 + size) / 6) ** 0.6
                    if score > best_score:
                        best, best_score = ids, score
    found = translate(model, sources, [terms], beams=400, max_new_tokens=length)
    assert [token for token in found.sequences[0, 1:].tolist() if token != 0 or 0 in best] == best
    assert found.sequences_scores[0].item() == pytest.approx(best_score, abs=1e-4)


@pytest.mark.parametrize("beams", [1, 2, 5])
def test_terms_are_there_whatever_the_beam_and_the_batch(model, beams):
    generator = torch.Generator().manual_seed(beams)
    sources = torch.randint(3, VOCABULARY, (6, 5), generator=generator)
    terms = [[[7, 7, 6]], [[4, 3], [3, 4]], [[5], [6], [7]], [[3, 3, 3]], [[6, 5], [7]], [[4, 5, 6]]]
    found = translate(model, sources, terms, beams=beams, max_new_tokens=12)
    for row, (ids, required) in enumerate(zip(found.sequences.tolist(), terms, strict=True)):
        assert all(contains(ids, term) for term in required)
        alone = translate(model, sources[row : row + 1], terms[row : row + 1], beams=beams, max_new_tokens=12)
        width = alone.sequences.shape[1]
        assert alone.sequences[0].tolist() == ids[:width]
        assert alone.sequences_scores[0].item() == pytest.approx(found.sequences_scores[row].item(), abs=1e-5)


def test_a_term_does_not_count_if_its_last_word_goes_on(model):
    continues = torch.zeros(VOCABULARY, dtype=torch.bool)
    continues[[5, 6]] = True
    found = translate(
        model, torch.tensor([[3, 4, 5]]), [[[4]]], beams=6, continues_word=continues, max_new_tokens=9,
        num_return_sequences=6,
    )  # fmt: skip
    for ids in found.sequences.tolist():
        followed_by = [following for token, following in pairwise([*ids, END]) if token == 4]
        assert set(followed_by) - {5, 6}


def test_a_prefix_may_have_a_term_already(model):
    sources = torch.tensor([[3, 4, 5]])
    prefix = torch.tensor([[1, 6, 7]])
    plain = model.generate(
        input_ids=sources, decoder_input_ids=prefix, custom_generate=beam_search.search, num_beams=4, max_new_tokens=6
    )
    found = translate(model, sources, [[[6, 7]]], beams=4, decoder_input_ids=prefix, max_new_tokens=6)
    assert contains(found.sequences[0].tolist(), [6, 7])
    assert found.sequences.shape[1] >= 3
    assert plain[0, :3].tolist() == found.sequences[0, :3].tolist() == [1, 6, 7]


# --- with text ---


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained("multi30k-en-de-tiny", device="cpu")


def test_a_glossary_is_followed_in_a_batch_as_alone(translator):
    texts = ["A man rides a bike.", "Two dogs play in the snow.", "", "A cat sleeps.", "A dog and a cat sleep."]
    glossary = {"bike": "Motorrad", "dogs": "Welpen", "cat": "Kater", "dog": "Dackel"}
    together = translator(texts, glossary=glossary)
    assert together == [translator(text, glossary=glossary) for text in texts]
    for text, words in zip(together, (["Motorrad"], ["Welpen"], [], ["Kater"], ["Dackel", "Kater"]), strict=True):
        assert all(word in text.replace(".", " ").split() for word in words), text
    each = translator(texts[:2], glossary=[{"bike": "Rad"}, None])
    assert "Rad" in each[0].replace(".", " ").split()
    assert each[1] == translator(texts[1])
    assert translator(texts[3], glossary={"bike": "Motorrad"}) == translator(texts[3])


def test_what_a_glossary_does_not_go_with_is_refused(translator):
    with pytest.raises(ValueError, match=r"A glossary needs a search"):
        translator("A cat.", glossary={"cat": "Kater"}, sample=True)
    with pytest.raises(ValueError, match=r"2 texts but 1 glossaries"):
        translator(["A cat.", "A dog."], glossary=[{"cat": "Kater"}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"force_words_ids": [[5]]}, r"force_words_ids=\[\[5\]\] is not supported: give glossary="),
        ({"constraints": [1]}, r"constraints=\[1\] is not supported: give glossary="),
        ({"num_beam_groups": 2}, r"num_beam_groups=2 is not supported: for different translations set n_best"),
        ({"diversity_penalty": 0.5}, r"diversity_penalty=0.5 is not supported"),
        ({"penalty_alpha": 0.6}, r"penalty_alpha=0.6 is not supported"),
        (
            {"temperature": 0.7},
            r"temperature=0.7 is for sampling and does nothing in a search: leave it out",
        ),
    ],
)
def test_options_that_would_do_nothing_are_refused(translator, options, message):
    with pytest.raises(ValueError, match=message):
        translator("A cat sleeps.", **options)
