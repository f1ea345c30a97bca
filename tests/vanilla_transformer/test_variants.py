"""Every position encoding, score and pattern in the whole model: the package's own, and some registered from outside.

Those from outside need no change in any file of the package. A few variants get all tests; the slow test gives every
allowed combination those that take milliseconds.
"""

import itertools
import json
import subprocess
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.testing import assert_close

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.attention_scores import AttentionScore
from vanilla_transformer.models.decoder_steps import RowPerSentence
from vanilla_transformer.models.positions import WITH_POSITION_BIAS, AddedPositions, PositionEncoding
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.models.variants import POSITIONS, SCORES


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


class Distance(AttentionScore):
    """Minus the squared distance of query and key."""

    def forward(self, query, key):
        return -torch.cdist(query, key).square()


ENCODINGS = {"triangle": TriangleWave, "turning": Turning, "nearby": Nearby}
REVERSIBLE = {"norm_placement": "reversible"}
# Windows and buckets smaller than the sentences of the test.
PATTERN_FIELDS = {
    "window": {"attention_pattern": "window", "attention_window": 4},
    "longformer": {"attention_pattern": "longformer", "attention_window": 2},
    "lsh": {"attention_pattern": "lsh", "lsh_bucket_length": 2, "num_hashes": 2},
}
FROM_OUTSIDE = [*({"position_encoding": name} for name in ENCODINGS), {"score_function": "distance"}]
VARIANTS = [
    *FROM_OUTSIDE,
    *({"position_encoding": name} for name in ("learned", "concatenated", "relative", "rotary", "integer", "none")),
    *({"score_function": name} for name in ("dot", "additive", "gaussian")),
    {"key_projection": "shared"},
    {"score_function": "additive", "position_encoding": "relative", "norm_placement": "pre"},
    {"score_function": "gaussian", "position_encoding": "rotary", "key_projection": "shared"},
    *PATTERN_FIELDS.values(),
    {**PATTERN_FIELDS["window"], "position_encoding": "nearby"},
    {**PATTERN_FIELDS["window"], **REVERSIBLE, "position_encoding": "relative", "score_function": "additive"},
    {
        **PATTERN_FIELDS["longformer"],
        "position_encoding": "rotary",
        "score_function": "gaussian",
        "key_projection": "shared",
    },
    {**PATTERN_FIELDS["lsh"], **REVERSIBLE, "position_encoding": "rotary"},
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    for name, encoding in ENCODINGS.items():
        monkeypatch.setitem(POSITIONS, name, encoding)
    monkeypatch.setitem(SCORES, "distance", Distance)


def allowed_combinations() -> list[dict]:
    """Every combination of a score, positions, a pattern, shared projections and reversible layers that a config
    accepts."""
    positions = ("sinusoidal", "learned", "concatenated", "relative", "rotary", "integer", "none")
    combinations = []
    for score, position, pattern, keys, residuals in itertools.product(
        ("scaled_dot", "dot", "additive", "gaussian"),
        positions,
        ({}, *PATTERN_FIELDS.values()),
        (False, True),
        ({}, REVERSIBLE),
    ):
        fields = {
            "score_function": score,
            "position_encoding": position,
            "key_projection": keys,
            **pattern,
            **residuals,
        }
        try:
            VanillaTransformerConfig(**fields)
        except StrictDataclassError:
            continue
        combinations.append(fields)
    return combinations


def name_of(fields: dict) -> str:
    return "-".join(map(str, fields.values()))


@pytest.fixture
def make_variant(make_model):
    def make(fields: dict):
        torch.manual_seed(3)
        model = make_model(**fields)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)  # so that hypotheses differ
        return model

    return make


@pytest.fixture(params=VARIANTS, ids=name_of)
def model(request, make_variant):
    return make_variant(request.param)


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
    for _ in range(25):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []


def check_causality(model, batch, tmp_path):
    """What comes later changes nothing."""
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    prefix = torch.randint(3, 23, (3, 6))
    changed = torch.cat([prefix[:, :3], torch.randint(3, 23, (3, 3))], dim=1)
    logits = [model(**source, decoder_input_ids=ids).logits[:, :3] for ids in (prefix, changed)]
    assert_close(*logits, rtol=0, atol=1e-6)


def check_padding(model, batch, tmp_path):
    """A sentence in a batch gives what it gives alone."""
    prefix = torch.randint(3, 23, (3, 6))
    together = model(batch["input_ids"], batch["attention_mask"], decoder_input_ids=prefix).logits
    for row, length in enumerate(batch["attention_mask"].sum(1)):
        alone = model(batch["input_ids"][row : row + 1, :length], decoder_input_ids=prefix[row : row + 1]).logits
        assert_close(alone[0], together[row], rtol=1e-4, atol=1e-4)


def check_cached_decoding(model, batch, tmp_path):
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    prefix = torch.randint(3, 23, (3, 8))
    whole = model(**source, decoder_input_ids=prefix).logits
    parts, cache = [], None
    for start, end in ((0, 4), (4, 7), (7, 8)):
        output = model(**source, decoder_input_ids=prefix[:, start:end], past_key_values=cache, use_cache=True)
        parts, cache = [*parts, output.logits], output.past_key_values
    assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-4)


def check_saving(model, batch, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    assert_close(loaded.eval()(**batch).logits, model(**batch).logits, rtol=0, atol=1e-6)


def check_gradient_checkpointing(model, batch, tmp_path):
    def gradients():
        torch.manual_seed(7)  # dropout must fall alike in both runs
        model.zero_grad()
        model(**batch).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    model.train()
    expected = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for gradient, expected_gradient in zip(gradients(), expected, strict=True):
        assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
    model.gradient_checkpointing_disable()
    model.eval()


def check_searches(model, batch, tmp_path):
    """The library's search and ours find the same translations."""
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"num_beams": 3, "max_new_tokens": 5, "length_penalty": 1.0, "early_stopping": "never"}
    expected = model.generate(**source, **options)
    found = model.generate(**source, **options, custom_generate=beam_search.search, penalty="length")
    assert without_filling(found) == without_filling(expected)


def without_filling(sequences: torch.Tensor) -> list[list[int]]:
    """The tokens up to </s>: the two searches fill the rest of a row with different tokens."""
    return [ids[: ids.index(2) + 1] if 2 in ids else ids for ids in sequences.tolist()]


CHECKS = [check_causality, check_padding, check_cached_decoding, check_saving, check_gradient_checkpointing,
          check_searches]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_variant_passes_every_check(model, batch, tmp_path, check):
    check(model, batch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fields", allowed_combinations(), ids=name_of)
def test_every_allowed_combination_passes_every_check(make_variant, batch, tmp_path, fields):
    model = make_variant(fields)
    for check in CHECKS:
        check(model, batch, tmp_path)


def test_a_static_cache_decodes_the_same(model, batch):
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 5, "do_sample": False, "disable_compile": True}
    expected = model.generate(**source, **options)
    assert model.generate(**source, **options, cache_implementation="static").tolist() == expected.tolist()


def test_beams_that_share_a_row_find_what_beams_in_rows_of_their_own_find(model, batch, monkeypatch):
    options = {"custom_generate": beam_search.search, "num_beams": 3, "num_return_sequences": 3, "max_extra_tokens": 4}
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    if not model.model.decoder.self_attention.takes_any_mask:
        assert model.config.attention_pattern == "window"  # which takes no mask of another kind
        return
    shared = model.generate(**source, **options, return_dict_in_generate=True, output_scores=True)
    monkeypatch.setattr(RowPerSentence, "fits", lambda *_: False)
    separate = model.generate(**source, **options, return_dict_in_generate=True, output_scores=True)
    assert shared.sequences.tolist() == separate.sequences.tolist()
    assert_close(shared.sequences_scores, separate.sequences_scores, rtol=1e-4, atol=0)


WITHOUT_THIS_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None
import torch
from transformers import AutoModelForSeq2SeqLM
for folder in json.load(sys.stdin):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    ids = torch.arange(3, 12)[None]
    print(json.dumps(model.generate(ids, max_new_tokens=8).tolist()))
"""


def test_exported_patterns_run_without_this_package(make_variant, tmp_path):
    """Several models in one process, because it takes seconds to start."""
    tokenizer = train_tokenizer(["ab"], vocab_size=300, min_frequency=1, show_progress=False)
    expected, folders = [], []
    for number, fields in enumerate([*PATTERN_FIELDS.values(), VARIANTS[-3]]):
        model = make_variant(fields)
        folders.append(str(tmp_path / str(number)))
        export(model, folders[-1], tokenizer, card="# model\n")
        options = {"custom_generate": beam_search.search, "num_beams": 4, "length_penalty": 0.6}
        expected.append(model.generate(torch.arange(3, 12)[None], max_new_tokens=8, **options).tolist())
    program = [sys.executable, "-c", WITHOUT_THIS_PACKAGE]
    printed = subprocess.run(program, input=json.dumps(folders), capture_output=True, text=True, check=True).stdout
    assert [json.loads(line) for line in printed.splitlines()] == expected


def test_a_setting_of_another_pattern_is_refused(make_config):
    with pytest.raises(StrictDataclassError, match=r"attention_window=4 has no effect .*'full'.*'window'"):
        make_config(attention_window=4)
    with pytest.raises(StrictDataclassError, match=r"num_hashes=2 has no effect .*'window'.*'lsh'"):
        make_config(**PATTERN_FIELDS["window"], num_hashes=2)


def test_kernels_that_would_compute_something_else_are_refused(make_model):
    with pytest.raises(
        ValueError, match=r"attn_implementation='sdpa' can't compute score_function='distance'.*'eager'"
    ):
        make_model(score_function="distance", attn_implementation="sdpa")
    assert make_model(score_function="distance").config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="can't compute position_encoding='nearby'"):
        make_model(position_encoding="nearby").set_attn_implementation("flash_attention_2")
