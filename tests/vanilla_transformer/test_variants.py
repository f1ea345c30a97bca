"""Every position encoding and score in the whole model: the package's own, and some registered from outside.

Those from outside need no change in any file of the package.
"""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vanilla_transformer import VanillaTransformerForConditionalGeneration, beam_search
from vanilla_transformer.positions import POSITIONS, WITH_POSITION_BIAS, AddedPositions, PositionEncoding
from vanilla_transformer.scores import SCORES, Score


class TriangleWave(AddedPositions):
    """Adds the distance to the next multiple of 7."""

    def __init__(self, config, num_heads, is_causal):
        super().__init__()
        self.direction = nn.Parameter(torch.linspace(-1, 1, config.d_model))

    def forward(self, positions):
        return (7 - positions % 7)[:, None] * self.direction


class Turning(PositionEncoding):
    """Rotates queries and keys by an angle that grows with the position."""

    acts_on = "queries_and_keys"

    def __init__(self, config, num_heads, is_causal):
        super().__init__()
        self.width = config.d_model // num_heads

    def for_attention(self, query_positions, key_positions):
        angles = query_positions[:, None] * torch.linspace(0.1, 1.0, self.width // 2).repeat(2)
        return {"rotation": (angles.cos(), angles.sin())}


class Nearby(PositionEncoding):
    """Adds a bias to the scores that falls with the distance, faster for each head."""

    acts_on = "scores"
    attn_implementations = WITH_POSITION_BIAS

    def __init__(self, config, num_heads, is_causal):
        super().__init__()
        self.slopes = nn.Parameter(torch.linspace(0.1, 1.0, num_heads))

    def for_attention(self, query_positions, key_positions):
        distance = (query_positions[:, None] - key_positions).abs()
        return {"position_bias": -self.slopes[None, :, None, None] * distance}


class Distance(Score):
    """Minus the squared distance of query and key."""

    def forward(self, query, key):
        return -torch.cdist(query, key).square()


ENCODINGS = {"triangle": TriangleWave, "turning": Turning, "nearby": Nearby}
FROM_OUTSIDE = [*({"position_encoding": name} for name in ENCODINGS), {"score_function": "distance"}]
VARIANTS = [
    *FROM_OUTSIDE,
    *({"position_encoding": name} for name in ("learned", "concatenated", "relative", "rotary", "integer", "none")),
    *({"score_function": name} for name in ("dot", "additive", "gaussian")),
    {"share_qk": True},
    {"score_function": "additive", "position_encoding": "relative", "norm_placement": "pre"},
    {"score_function": "gaussian", "position_encoding": "rotary", "share_qk": True},
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    for name, encoding in ENCODINGS.items():
        monkeypatch.setitem(POSITIONS, name, encoding)
    monkeypatch.setitem(SCORES, "distance", Distance)


@pytest.fixture(params=VARIANTS, ids=lambda fields: "-".join(map(str, fields.values())))
def model(request, make_model):
    torch.manual_seed(3)
    model = make_model(**request.param)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # so that hypotheses differ
    return model


def test_it_changes_what_the_model_computes(model, make_model, batch):
    plain = make_model()
    plain.load_state_dict(model.state_dict(), strict=False)
    assert (plain(**batch).logits - model(**batch).logits).abs().max() > 1e-3


def test_every_attention_implementation_gives_the_same(model, batch):
    expected = model(**batch).logits
    model.set_attn_implementation("eager")
    assert_close(model(**batch).logits, expected, rtol=1e-4, atol=1e-4)


def test_it_learns(model, batch):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []


def test_cached_decoding_equals_uncached(model, batch):
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    prefix = torch.randint(3, 23, (3, 6))
    whole = model(**source, decoder_input_ids=prefix).logits
    first = model(**source, decoder_input_ids=prefix[:, :4], use_cache=True)
    rest = model(**source, decoder_input_ids=prefix[:, 4:], past_key_values=first.past_key_values)
    assert_close(torch.cat([first.logits, rest.logits], dim=1), whole, rtol=1e-4, atol=1e-4)


def test_a_static_cache_decodes_the_same(model, batch):
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 5, "do_sample": False, "disable_compile": True}
    expected = model.generate(**source, **options)
    assert model.generate(**source, **options, cache_implementation="static").tolist() == expected.tolist()


def test_beams_that_share_a_row_find_what_beams_in_rows_of_their_own_find(model, batch, monkeypatch):
    options = {"custom_generate": beam_search.search, "num_beams": 3, "num_return_sequences": 3, "max_extra_tokens": 4}
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    assert model.beams_can_share_a_row
    shared = model.generate(**source, **options, return_dict_in_generate=True, output_scores=True)
    monkeypatch.setattr(type(model), "beams_can_share_a_row", False)
    separate = model.generate(**source, **options, return_dict_in_generate=True, output_scores=True)
    assert shared.sequences.tolist() == separate.sequences.tolist()
    assert_close(shared.sequences_scores, separate.sequences_scores, rtol=1e-4, atol=0)


def test_it_is_saved_and_loaded(model, batch, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    assert_close(loaded.eval()(**batch).logits, model(**batch).logits, rtol=0, atol=1e-6)


def test_kernels_that_would_compute_something_else_are_refused(make_model):
    with pytest.raises(
        ValueError, match=r"attn_implementation='sdpa' can't compute score_function='distance'.*'eager'"
    ):
        make_model(score_function="distance", attn_implementation="sdpa")
    assert make_model(score_function="distance").config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="can't compute position_encoding='nearby'"):
        make_model(position_encoding="nearby").set_attn_implementation("flash_attention_2")
