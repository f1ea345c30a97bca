"""Window attention in blocks against full attention under the same mask, and its cost."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.testing import assert_close

from tests.vanilla_transformer.attention import gradients_of, largest_tensor
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerAttention
from vanilla_transformer.models.position_variants import RelativePositions
from vanilla_transformer.models.window_attention import Blocks, WindowAttention


HEADS = 4


def band(length: int, reach: int, is_causal: bool) -> torch.Tensor:
    """Which keys a query sees, by definition."""
    distances = torch.arange(length) - torch.arange(length)[:, None]
    return (distances >= -reach) & (distances <= (0 if is_causal else reach))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("length", [1, 3, 4, 11, 12])
@pytest.mark.parametrize(
    ("score", "implementation"), [("scaled_dot", "sdpa"), ("scaled_dot", "eager"), ("additive", "eager")]
)
def test_it_is_full_attention_under_the_mask_of_a_window(make_config, is_causal, length, score, implementation):
    """With lengths below, at and above a block, padding and a bias for each distance."""
    fields = {"score_function": score, "attn_implementation": implementation, "position_encoding": "relative"}
    config = make_config(**fields, attention_pattern="window", attention_window=8)
    window = WindowAttention(config, HEADS, 0, is_causal)
    full = VanillaTransformerAttention(make_config(**fields), HEADS, 0, is_causal)
    full.load_state_dict(window.state_dict())
    positions = RelativePositions(config, HEADS, is_causal)
    states = torch.randn(2, length, config.d_model, requires_grad=True)
    is_token = torch.arange(length) < torch.tensor([[length], [max(length - 3, 1)]])

    numbers = torch.arange(length)
    mask = WindowAttention.make_mask(config, states, is_token.long(), is_causal=is_causal)
    output, _ = window(
        states, attention_mask=mask, **WindowAttention.position_arguments(positions, numbers, numbers, mask)
    )
    visible = band(length, 4, is_causal) & is_token[:, None, None, :]
    hidden = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    expected, _ = full(states, attention_mask=hidden, **positions.for_attention(numbers, numbers))
    assert_close(output[is_token], expected[is_token], rtol=0, atol=1e-5)

    found = gradients_of(output[is_token], [states, positions.bias, *window.parameters()])
    wanted = gradients_of(expected[is_token], [states, positions.bias, *full.parameters()])
    for gradient, expected_gradient in zip(found, wanted, strict=True):
        assert_close(gradient, expected_gradient, rtol=0, atol=1e-4)


@pytest.mark.parametrize("pattern", ["window", "longformer"])
@pytest.mark.parametrize("training", [True, False])
def test_no_matrix_of_all_pairs_is_made(make_model, pattern, training):
    """The largest tensor of a forward and a backward pass of the encoder grows with the length, not with its square.

    Eager attention makes its scores one by one, where they can be seen."""

    def largest(length: int, **fields) -> int:
        encoder = make_model(**fields, attn_implementation="eager").model.encoder.train(training)
        ids = torch.randint(3, 23, (1, length))
        with torch.set_grad_enabled(training):
            return largest_tensor(lambda: encoder(ids).last_hidden_state)

    fields = {"attention_pattern": pattern, "attention_window": 16}
    assert largest(1024, **fields) <= 2.1 * largest(512, **fields) < 1024**2 / 4
    assert largest(512) == HEADS * 512**2


def test_a_step_of_cached_decoding_reads_half_a_window(make_model, monkeypatch):
    model = make_model(attention_pattern="window", attention_window=6)
    read = []
    attend = VanillaTransformerAttention.attend

    def spy(self, query, key, *arguments, **kwargs):
        if isinstance(self, WindowAttention):
            read.append((query.shape[2], key.shape[2]))
        return attend(self, query, key, *arguments, **kwargs)

    monkeypatch.setattr(VanillaTransformerAttention, "attend", spy)
    source = torch.randint(3, 23, (1, 5))
    prefix = model(source, decoder_input_ids=torch.randint(3, 23, (1, 20)), use_cache=True)
    read.clear()
    encoded = {"encoder_outputs": (prefix.encoder_last_hidden_state,), "past_key_values": prefix.past_key_values}
    model(**encoded, decoder_input_ids=torch.randint(3, 23, (1, 1)))
    assert read == [(1, 4)] * model.config.decoder_layers


def test_maps_are_bands(make_model, batch):
    model = make_model(attention_pattern="window", attention_window=4, attn_implementation="eager")
    output = model(**batch, output_attentions=True)
    for maps, is_causal in ((output.encoder_attentions, False), (output.decoder_attentions, True)):
        assert len(maps) == 2
        for attention in maps:
            length = attention.shape[-1]
            assert attention[..., ~band(length, 2, is_causal)].abs().max() == 0
            assert_close(attention.sum(-1), torch.ones(attention.shape[:-1]))
    model.config.output_attentions = True
    assert_close(model(**batch).encoder_attentions, output.encoder_attentions)


def test_the_map_of_a_cached_step_is_a_row_of_the_whole_map(make_model):
    model = make_model(attention_pattern="window", attention_window=4, attn_implementation="eager")
    source, target = torch.randint(3, 23, (1, 5)), torch.randint(3, 23, (1, 9))
    whole = model(source, decoder_input_ids=target, output_attentions=True)
    first = model(source, decoder_input_ids=target[:, :8], use_cache=True)
    step = model(
        source, decoder_input_ids=target[:, 8:], past_key_values=first.past_key_values, output_attentions=True
    )
    assert_close(step.decoder_attentions[0], whole.decoder_attentions[0][:, :, 8:], rtol=0, atol=1e-6)


def test_blocks_cover_every_pair_of_the_window_once():
    for length in range(1, 20):
        for window in (2, 6, 8):
            blocks = Blocks.of(length, window, is_causal=False)
            offsets = blocks.key_offsets(torch.device("cpu"))
            is_key = (offsets >= 0) & (offsets < length)
            pairs = blocks.band(blocks.visible(is_key[None, :, None]).flatten(0, 1)[:, None].float())
            assert pairs[0, 0].bool().tolist() == band(length, window // 2, False).tolist()


def test_a_mask_of_pairs_hides_pairs(make_model, batch):
    """As generate makes it for a static cache."""
    encoder = make_model(attention_pattern="window", attention_window=4).model.encoder
    padding = batch["attention_mask"].bool()
    expected = encoder(batch["input_ids"], padding.long()).last_hidden_state
    pairs = padding[:, None, None, :].expand(-1, 1, 7, -1)
    for mask in (pairs, torch.zeros(3, 1, 7, 7).masked_fill(~pairs, torch.finfo(torch.float32).min)):
        found = encoder(batch["input_ids"], mask).last_hidden_state
        assert_close(found[padding], expected[padding], rtol=0, atol=1e-6)


def test_mistakes_get_a_sentence(make_config, make_model, batch):
    for window in (7, 0):
        with pytest.raises(
            StrictDataclassError, match=f"attention_window={window} must be an even number of 2 or more"
        ):
            make_config(attention_pattern="window", attention_window=window)
    model = make_model(attention_pattern="window", attention_window=4)
    with pytest.raises(ValueError, match=r"mask of the shape \[3, 4, 7, 7\] does not fit attention in blocks"):
        model(batch["input_ids"], attention_mask=torch.ones(3, 4, 7, 7), labels=batch["labels"])
    with pytest.raises(ValueError, match=r"'window' has no global tokens.*'longformer'"):
        model(**batch, global_attention_mask=torch.ones(3, 7))
