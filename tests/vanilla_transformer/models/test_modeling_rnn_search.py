"""RNNsearch against the paper's equations and `nn.GRU`, and everything that a model of the library has to do."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from vanilla_transformer import RnnSearchConfig, RnnSearchForConditionalGeneration
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.decoder_steps import RowPerBeam
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.models.modeling_rnn_search import RnnSearchCache, gru_step


SMALL = {"vocab_size": 23, "embedding_size": 6, "hidden_size": 5, "attention_size": 7, "readout_size": 6}
ATTENTIONS = ["additive", "none"]
VARIANTS = [
    {},
    {"attention": "none"},
    {"readout": "linear", "tie_word_embeddings": True},
    {"attention": "none", "target_vocab_size": 31, "tie_word_embeddings": True, "output_bias": True},
]


@pytest.fixture
def make_rnn():
    """Builds a small model whose every weight matters, in evaluation mode; keywords override its config's fields."""

    def make(**fields) -> RnnSearchForConditionalGeneration:
        model = RnnSearchForConditionalGeneration(RnnSearchConfig(**{**SMALL, **fields})).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
        return model

    return make


def real_rows(batch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Source and target of each pair without padding, each [1, length]."""
    return [
        (source[mask == 1][None], target[target != -100][None])
        for source, mask, target in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
    ]


# --- the equations ---


def gated_unit(x, h, w_ih, w_hh, b_ih, b_hh):
    """One step of a gated recurrent unit, as torch documents it."""
    (w_r, w_z, w_n), (u_r, u_z, u_n) = w_ih.chunk(3), w_hh.chunk(3)
    (b_r, b_z, b_n), (c_r, c_z, c_n) = b_ih.chunk(3), b_hh.chunk(3)
    r = torch.sigmoid(w_r @ x + b_r + u_r @ h + c_r)
    z = torch.sigmoid(w_z @ x + b_z + u_z @ h + c_z)
    return (1 - z) * torch.tanh(w_n @ x + b_n + r * (u_n @ h + c_n)) + z * h


def weights_of(rnn: nn.GRU, suffix: str = "") -> list[torch.Tensor]:
    return [getattr(rnn, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def by_the_paper(model, source: list[int], target: list[int]) -> torch.Tensor:
    """Logits [T, V] of one sentence from appendix A.2, one vector at a time."""
    encoder, decoder, width = model.encoder, model.decoder, model.config.hidden_size
    words = encoder.embed_tokens.weight[source]
    forward, backward = [torch.zeros(width)], [torch.zeros(width)]
    for word in words:
        forward.append(gated_unit(word, forward[-1], *weights_of(encoder.rnn)))
    for word in words.flip(0):
        backward.append(gated_unit(word, backward[-1], *weights_of(encoder.rnn, "_reverse")))
    h = [torch.cat([left, right]) for left, right in zip(forward[1:], reversed(backward[1:]), strict=True)]
    s = torch.tanh(decoder.initial_state.weight @ backward[-1] + decoder.initial_state.bias)
    logits = []
    for y in decoder.embed_tokens.weight[target]:
        if model.config.attention == "none":
            c = torch.cat([forward[-1], backward[-1]])
        else:
            attention = decoder.context
            energies = [
                attention.weight
                @ torch.tanh(
                    attention.query_proj.weight @ s + attention.key_proj.weight @ h_j + attention.key_proj.bias
                )
                for h_j in h
            ]
            alpha = torch.stack(energies).softmax(0)
            c = sum(weight * h_j for weight, h_j in zip(alpha, h, strict=True))
        s = gated_unit(torch.cat([y, c]), s, *weights_of(decoder.rnn))
        t = decoder.readout.proj.weight @ torch.cat([s, y, c]) + decoder.readout.proj.bias
        if model.config.readout == "maxout":
            half = len(t) // 2
            t = torch.stack([torch.maximum(t[unit], t[unit + half]) for unit in range(half)])
        logits.append(model.lm_head.weight @ t + (0 if model.lm_head.bias is None else model.lm_head.bias))
    return torch.stack(logits)


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_a_padded_batch_has_the_logits_of_the_papers_equations(make_rnn, batch, fields):
    model = make_rnn(**fields)
    logits = model(**batch).logits
    for row, (source, target) in enumerate(real_rows(batch)):
        read = [model.config.decoder_start_token_id, *target[0, :-1].tolist()]
        expected = by_the_paper(model, source[0].tolist(), read)
        assert_close(logits[row, : len(read)], expected, rtol=1e-5, atol=1e-5)


def test_one_step_is_torchs_gated_unit():
    cell, inputs, state = nn.GRUCell(4, 6), torch.randn(3, 4), torch.randn(3, 6)
    of_input = nn.functional.linear(inputs, cell.weight_ih, cell.bias_ih)
    of_state = nn.functional.linear(state, cell.weight_hh, cell.bias_hh)
    assert_close(gru_step(of_input, of_state, state), cell(inputs, state))


def test_attention_to_one_token_is_a_fixed_context_in_nn_gru(make_rnn):
    """With one source token the context can't change. Then the loop must give the states and gradients of `nn.GRU`."""
    attentive, fixed = make_rnn(), make_rnn(attention="none")
    fixed.load_state_dict(attentive.state_dict(), strict=False)
    batch = {"input_ids": torch.randint(3, 23, (4, 1)), "labels": torch.randint(3, 23, (4, 9))}
    found, expected = attentive(**batch), fixed(**batch)
    assert_close(found.logits, expected.logits, rtol=1e-5, atol=1e-5)
    found.loss.backward()
    expected.loss.backward()
    gradients = {name: parameter.grad for name, parameter in attentive.named_parameters()}
    for name, parameter in fixed.named_parameters():
        assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_weights_are_distributions_over_the_real_tokens(make_rnn, batch):
    output = make_rnn()(**batch, output_attentions=True, output_hidden_states=True)
    (weights,) = output.cross_attentions
    assert weights.shape == (3, 1, 6, 7)
    assert_close(weights.sum(-1), torch.ones(3, 1, 6))
    assert not weights[batch["attention_mask"][:, None, None].expand_as(weights) == 0].any()
    assert [states.shape[-1] for states in output.encoder_hidden_states] == [6, 10]
    assert [states.shape[-1] for states in output.decoder_hidden_states] == [6, 5]
    assert make_rnn(attention="none")(**batch, output_attentions=True).cross_attentions is None


def test_the_papers_sizes_and_initialisation():
    config = RnnSearchConfig()
    assert (config.vocab_size, config.embedding_size, config.hidden_size) == (30000, 620, 1000)
    assert (config.attention_size, config.readout_size) == (1000, 500)
    model = RnnSearchForConditionalGeneration(RnnSearchConfig(**SMALL))
    for gate in model.decoder.rnn.weight_hh_l0.chunk(3):
        assert_close(gate @ gate.T, torch.eye(5))
    assert not model.decoder.context.weight.any(), "attention starts uniform"
    for name, parameter in model.named_parameters():
        assert "bias" not in name or not parameter.any(), name


# --- decoding ---


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_token_by_token_equals_all_at_once(make_rnn, batch, fields):
    model = make_rnn(**fields)
    source = {"attention_mask": batch["attention_mask"]}
    target = torch.randint(3, 23, (3, 6))
    expected = model(input_ids=batch["input_ids"], **source, decoder_input_ids=target).logits
    encoded = model.encoder(batch["input_ids"], **source)
    cache = RnnSearchCache()
    for _ in range(2):  # a cache can be used again
        steps = [
            model(encoder_outputs=encoded, **source, decoder_input_ids=chunk, past_key_values=cache).logits
            for chunk in target.split([2, 1, 2, 1], dim=1)
        ]
        assert_close(torch.cat(steps, dim=1), expected, rtol=1e-5, atol=1e-5)
        assert cache.get_seq_length() == 6
        cache.reset()
        assert cache.get_seq_length() == 0


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_generate_is_greedy_search_with_and_without_a_cache(make_rnn, batch, fields):
    model = make_rnn(**fields)
    model.generation_config.eos_token_id = None  # random models stop where they like: compare full lengths
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    expected = torch.ones(3, 1, dtype=torch.long)
    for _ in range(9):
        logits = model(**inputs, decoder_input_ids=expected).logits
        expected = torch.cat([expected, logits[:, -1:].argmax(-1)], dim=1)
    assert_close(model.generate(**inputs, max_new_tokens=9), expected)
    assert_close(model.generate(**inputs, max_new_tokens=9, use_cache=False), expected)
    assert_close(model.generate(**inputs, max_new_tokens=6, decoder_input_ids=expected[:, :4]), expected)
    assert_close(model.generate(**inputs, max_new_tokens=9, num_beams=1, custom_generate=beam_search.search), expected)


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_beams_are_the_same_cached_or_not_alone_or_in_a_batch_and_in_both_searches(make_rnn, batch, attention):
    model = make_rnn(attention=attention)
    options = {"num_beams": 4, "num_return_sequences": 2, "max_new_tokens": 9, "length_penalty": 1.0}
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    expected = model.generate(**inputs, **options)
    assert_close(model.generate(**inputs, **options, use_cache=False), expected)
    for row, (source, _) in enumerate(real_rows(batch)):
        alone = model.generate(source, **options)
        assert_close(expected[2 * row : 2 * row + 2, : alone.shape[1]], alone)
    # The same limit for all sentences and the library's length penalty make both searches one.
    ours = {"custom_generate": beam_search.search, "penalty": "length", "max_extra_tokens": 100}
    for use_cache in (True, False):
        found = model.generate(**inputs, **options, **ours, use_cache=use_cache)
        width = min(found.shape[1], expected.shape[1])
        assert_close(found[:, :width], expected[:, :width])


@torch.no_grad()
def test_finished_sentences_leave_the_batch_of_our_search(make_rnn, batch, monkeypatch):
    model, dropped = make_rnn(), []
    keep = RowPerBeam.keep
    monkeypatch.setattr(RowPerBeam, "keep", lambda self, rows: (dropped.append(rows), keep(self, rows)))
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    options = {"custom_generate": beam_search.search, "num_beams": 3, "max_extra_tokens": 6, "max_new_tokens": 30}
    together = model.generate(**inputs, **options)
    assert dropped
    for row, (source, _) in enumerate(real_rows(batch)):
        alone = model.generate(source, **options)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()


@torch.no_grad()
def test_a_wide_beam_is_an_exhaustive_search(make_rnn):
    model = make_rnn(vocab_size=6)
    model.generation_config.eos_token_id = None
    source = torch.tensor([[3, 4, 5]])
    candidates = torch.cartesian_prod(*[torch.arange(6)] * 3)
    log_probabilities = model(
        input_ids=source.expand(len(candidates), -1),
        decoder_input_ids=nn.functional.pad(candidates[:, :-1], (1, 0), value=1),
    ).logits.log_softmax(-1)
    scores = log_probabilities.gather(-1, candidates[..., None]).sum((1, 2))
    best = model.generate(source, num_beams=36, max_new_tokens=3)
    assert best[0, 1:].tolist() == candidates[scores.argmax()].tolist()


@pytest.mark.parametrize("attention", ATTENTIONS)
@torch.no_grad()
def test_samples_follow_the_models_distribution(make_rnn, attention):
    """Of 4,000 samples of two tokens, the cached second token is as frequent as its probability says."""
    model = make_rnn(attention=attention, vocab_size=5)
    model.generation_config.eos_token_id = None
    source = torch.tensor([[3, 4, 4]])
    samples = model.generate(source, do_sample=True, top_k=0, max_new_tokens=2, num_return_sequences=4000)
    first = model(input_ids=source, decoder_input_ids=torch.tensor([[1]])).logits[0, -1].softmax(-1)
    prefixes = torch.stack([torch.ones(5, dtype=torch.long), torch.arange(5)], dim=1)
    second = model(input_ids=source.expand(5, -1), decoder_input_ids=prefixes).logits[:, -1].softmax(-1)
    counts = torch.zeros(5, 5).index_put_((samples[:, 1], samples[:, 2]), torch.ones(4000), accumulate=True)
    assert_close(counts / 4000, first[:, None] * second, rtol=0, atol=0.04)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "num_beams": 2, "top_p": 0.9},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"num_beams": 2, "output_attentions": True, "output_hidden_states": True, "output_scores": True},
    ],
    ids=lambda options: "-".join(options),
)
@torch.no_grad()
def test_other_modes_of_generate_run(make_rnn, batch, options, attention):
    model = make_rnn(attention=attention)
    model.generation_config.eos_token_id = None
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    output = model.generate(**inputs, **options, max_new_tokens=4, return_dict_in_generate=True)
    assert output.sequences.shape == (3, 5)
    if "output_attentions" in options and attention == "additive":
        assert [weights.shape for (weights,) in output.cross_attentions] == [(6, 1, 1, 7)] * 4


@torch.no_grad()
def test_without_a_length_a_translation_may_be_longer_than_the_librarys_twenty_tokens(make_rnn):
    model = make_rnn()
    model.generation_config.eos_token_id = None
    assert model.generate(torch.randint(3, 23, (1, 4))).shape[1] == 1 + 4 + 50


# --- training ---


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_loss_is_the_same_with_and_without_logits(make_rnn, batch, attention):
    model = make_rnn(attention=attention, tie_word_embeddings=True).train()
    criterion = LabelSmoothedCrossEntropy(0.2)
    skipped, held = model(**batch, criterion=criterion), model(**batch, criterion=criterion, skip_logits=False)
    assert skipped.logits is None
    assert_close(skipped.loss, held.loss)
    assert_close(held.loss, criterion(held, batch["labels"]))
    plain = nn.functional.cross_entropy(held.logits.flatten(0, 1), batch["labels"].flatten())
    assert_close(model(**batch).loss, plain)


def test_dropout_acts_on_embeddings_states_and_readout_in_training_only(make_rnn, batch):
    model = make_rnn(dropout=0.5)
    rates = []
    for part in (model.encoder.dropout, model.decoder.dropout):
        part.register_forward_hook(lambda module, inputs, output: rates.append(module.p))
    assert_close(model(**batch).logits, model(**batch).logits)
    rates.clear()
    model.train()
    first, second = (model(**batch, skip_logits=False).logits for _ in range(2))
    assert rates == [0.5] * 8, "two for the encoder and two for the decoder, in each pass"
    assert not torch.equal(first, second)


def test_bfloat16_arithmetic_is_close(make_rnn, batch):
    for attention in ATTENTIONS:
        model = make_rnn(attention=attention)
        expected = model(**batch)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(**batch)
        assert_close(found.loss, expected.loss, rtol=0.05, atol=0.05)


# --- saving, tying, resizing ---


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_loading_keeps_every_logit(make_rnn, batch, tmp_path, fields):
    model = make_rnn(**fields)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert type(loaded) is RnnSearchForConditionalGeneration
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    for other in (loaded, copy.deepcopy(loaded)):
        assert_close(other(**batch).logits, model(**batch).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "matrices"),
    [
        ({"tie_word_embeddings": True}, 1),
        ({"tie_word_embeddings": True, "share_encoder_decoder_embeddings": False}, 2),
        ({"tie_word_embeddings": True, "target_vocab_size": 31}, 2),
        ({}, 3),
    ],
)
def test_tying_and_resizing(make_rnn, batch, fields, matrices):
    model = make_rnn(**fields)

    def embeddings() -> set[int]:
        layers = (model.encoder.embed_tokens, model.decoder.embed_tokens, model.lm_head)
        return {id(layer.weight) for layer in layers}

    assert len(embeddings()) == matrices
    before = model(**batch).logits
    model.resize_token_embeddings(40)
    if model.config.target_vocab_size is not None:
        model.resize_decoder_token_embeddings(40)
    assert len(embeddings()) == matrices
    assert model.config.vocab_size == 40
    after = model(**batch).logits
    assert after.shape[-1] == 40
    assert_close(after[..., : before.shape[-1]], before)


# --- mistakes ---


def test_every_mistake_gets_a_sentence(make_rnn, batch):
    model = make_rnn()
    source = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    with pytest.raises(ValueError, match=r"hides the first token of row 1: .*padding on the right"):
        model(**{**batch, "attention_mask": batch["attention_mask"].flip(1)})
    with pytest.raises(ValueError, match=r"decoder_attention_mask hides tokens between others"):
        model(**batch, decoder_attention_mask=torch.tensor([[1, 0, 1, 1, 1, 1]] * 3))
    with pytest.raises(ValueError, match=r"Token id 99 is outside the vocabulary of 23"):
        model(input_ids=torch.tensor([[99]]), decoder_input_ids=torch.tensor([[1]]))
    with pytest.raises(ValueError, match=r"Pass either token ids or embeddings to encoder and decoder: got neither"):
        model(**source)
    with pytest.raises(ValueError, match=r"pass encoder_hidden_states"):
        model.decoder(**source)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    with pytest.raises(ValueError, match=r"is a EncoderDecoderCache: .*Pass an RnnSearchCache"):
        model(**source, decoder_input_ids=batch["input_ids"], past_key_values=cache)
    with pytest.raises(ValueError, match=r"cache_implementation='static' is for keys and values"):
        model.generate(**source, cache_implementation="static")
    with pytest.raises(ValueError, match=r"can't go back"):
        model.generate(batch["input_ids"][:1], prompt_lookup_num_tokens=2, max_new_tokens=8)
    assert not RnnSearchCache().is_croppable
