"""Stock `generate()` in all its ways, and every way to keep keys and values."""

import pytest
import torch
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache


VARIANTS = [
    {},
    {"norm_placement": "pre"},
    {"position_encoding": "learned"},
    {"d_k": 3, "d_v": 5},
    {"target_vocab_size": 31},
    {"tie_word_embeddings": False},
]


def caches(config):
    yield EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    yield EncoderDecoderCache(StaticCache(config=config, max_cache_len=6), StaticCache(config=config, max_cache_len=7))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_token_by_token_with_any_cache_equals_all_at_once(make_model, batch, fields, attention):
    model = make_model(**fields, attn_implementation=attention)
    source = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    target = torch.randint(3, 23, (3, 6))
    expected = model(**source, decoder_input_ids=target).logits
    for cache in caches(model.config):
        encoded = model.model.encoder(**source)
        steps = []
        for chunk in target.split([2, 1, 2, 1], dim=1):
            output = model(
                encoder_outputs=encoded,
                attention_mask=source["attention_mask"],
                decoder_input_ids=chunk,
                past_key_values=cache,
                use_cache=True,
            )
            steps.append(output.logits)
        assert_close(torch.cat(steps, dim=1), expected, rtol=1e-4, atol=1e-5)


def greedy_by_definition(model, batch, length: int) -> torch.Tensor:
    """Runs the whole prefix again for each token, with no cache."""
    prefix = torch.full((3, 1), model.config.decoder_start_token_id)
    for _ in range(length):
        logits = model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], decoder_input_ids=prefix
        ).logits
        prefix = torch.cat([prefix, logits[:, -1:].argmax(-1)], dim=1)
    return prefix


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_generate_is_greedy_search_with_and_without_caches(make_model, batch, fields):
    model = make_model(**fields)
    model.generation_config.eos_token_id = None  # random models stop where they like: compare full lengths
    expected = greedy_by_definition(model, batch, 9)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "max_new_tokens": 9}
    assert_close(model.generate(**inputs), expected)
    assert_close(model.generate(**inputs, use_cache=False), expected)
    assert_close(model.generate(**inputs, cache_implementation="static", disable_compile=True), expected)
    prefixed = model.generate(**inputs | {"max_new_tokens": 6}, decoder_input_ids=expected[:, :4])
    assert_close(prefixed, expected)


@torch.no_grad()
def test_a_sentence_generates_the_same_alone_and_in_a_batch(make_model, batch):
    model = make_model()
    options = {"max_new_tokens": 9, "num_beams": 3}
    together = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **options)
    for row in range(3):
        source = batch["input_ids"][row : row + 1, batch["attention_mask"][row] == 1]
        alone = model.generate(source, **options)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4},
        {"num_beams": 4, "cache_implementation": "static", "disable_compile": True},
        {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.6},
        {"do_sample": True, "top_p": 0.9},
        {"do_sample": True, "num_beams": 2},
        {"prompt_lookup_num_tokens": 2},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"forced_eos_token_id": 2},
        {"num_beams": 2, "output_scores": True, "return_dict_in_generate": True},
    ],
    ids=lambda options: "-".join(options),
)
@torch.no_grad()
def test_every_mode_of_generate_runs(make_model, batch, options):
    model = make_model()
    rows = 1 if "prompt_lookup_num_tokens" in options else 3
    output = model.generate(
        batch["input_ids"][:rows], attention_mask=batch["attention_mask"][:rows], max_new_tokens=8, **options
    )
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    assert len(sequences) == rows * options.get("num_return_sequences", 1)
    assert (sequences[:, 0] == model.config.decoder_start_token_id).all()
    if "prompt_lookup_num_tokens" in options:
        assert_close(sequences, model.generate(batch["input_ids"][:1], max_new_tokens=8))


@torch.no_grad()
def test_beam_search_finds_what_an_exhaustive_search_finds(make_model):
    """A beam as wide as all continuations is exhaustive: the best of all 6^3 sequences must come out."""
    model = make_model(vocab_size=6)
    model.generation_config.eos_token_id = None
    source = torch.tensor([[3, 4, 5]])
    candidates = torch.cartesian_prod(*[torch.arange(6)] * 3)
    log_probabilities = model(
        input_ids=source.expand(len(candidates), -1),
        decoder_input_ids=torch.nn.functional.pad(candidates[:, :-1], (1, 0), value=1),
    ).logits.log_softmax(-1)
    scores = log_probabilities.gather(-1, candidates[..., None]).sum((1, 2))
    best = model.generate(source, num_beams=36, max_new_tokens=3)
    assert best[0, 1:].tolist() == candidates[scores.argmax()].tolist()


@torch.no_grad()
def test_sinusoids_reach_past_max_position_embeddings(make_model):
    model = make_model(max_position_embeddings=8)
    model.generation_config.eos_token_id = None
    assert model.generate(torch.randint(3, 23, (1, 50)), max_new_tokens=40).shape == (1, 41)
