"""What the model does beyond the equations: tying, initialisation, dropout, loss, outputs, resizing, errors."""

import inspect

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoModelForTextEncoding, BartConfig, BartModel
from transformers.cache_utils import EncoderDecoderCache

from tests.conftest import SMALL
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerEncoderModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.models import modeling_vanilla_transformer
from vanilla_transformer.models.devices import Dropout
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.models.modeling_vanilla_transformer import shift_right


def embeddings(model) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    return model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight, model.lm_head.weight


# --- tying (section 3.4) and initialisation ---


def test_one_matrix_is_source_embedding_target_embedding_and_output(make_model):
    source, target, output = embeddings(make_model())
    assert source is target is output


@pytest.mark.parametrize("fields", [{"share_encoder_decoder_embeddings": False}, {"target_vocab_size": 31}])
def test_a_separate_source_leaves_target_and_output_tied(make_model, fields):
    source, target, output = embeddings(make_model(**fields))
    assert source is not target
    assert target is output
    assert len(output) == fields.get("target_vocab_size", 23)


def test_untied_means_three_matrices(make_model):
    assert len({id(weight) for weight in embeddings(make_model(tie_word_embeddings=False))}) == 3


# What the authors' code has in one matrix, times d_model.
JOINED = {"self_attn.q_proj": 3, "self_attn.k_proj": 3, "self_attn.v_proj": 3}
JOINED |= {"encoder_attn.k_proj": 2, "encoder_attn.v_proj": 2}


@pytest.mark.parametrize("initializer", ["authors", "glorot"])
def test_initial_weights(make_config, initializer):
    config = make_config(vocab_size=2000, d_model=64, tie_word_embeddings=False, initializer=initializer)
    model = VanillaTransformerForConditionalGeneration(config)
    for weight in embeddings(model):
        assert weight[3:].std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert not embeddings(model)[0][0].any(), "the padding embedding is zero"
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            joined = JOINED.get(".".join(name.split(".")[-2:]), 1) if initializer == "authors" else 1
            bound = (6 / (module.in_features + joined * module.out_features)) ** 0.5
            assert module.weight.abs().max() <= bound, name
            assert module.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), name
            assert not module.bias.any(), name
        elif isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all(), name
            assert not module.bias.any(), name


def test_limits_of_the_base_model_are_the_authors():
    config = VanillaTransformerConfig(vocab_size=20, encoder_layers=1, decoder_layers=1)
    layer = VanillaTransformerModel(config).decoder.layers[0]
    limits = {"q": layer.self_attn.q_proj, "k": layer.self_attn.k_proj, "v": layer.self_attn.v_proj}
    found = {name: round(part.weight.abs().max().item(), 4) for name, part in limits.items()}
    assert found == dict.fromkeys("qkv", 0.0541)
    assert VanillaTransformerConfig.from_preset("tiny").initializer == "glorot", "published figures stay reproducible"


def test_embedded_tokens_have_unit_variance(make_config):
    config = make_config(vocab_size=2000, d_model=64)
    embedded = VanillaTransformerModel(config).get_input_embeddings()(torch.arange(3, 2000))
    assert embedded.var().item() == pytest.approx(1, rel=0.05)


# --- dropout (section 5.4) ---


def test_dropout_is_where_the_paper_puts_it_and_nowhere_else(make_config, batch, monkeypatch):
    """On embedding + position of both stacks and on each sub-layer's output, before it is added and normalised."""
    rates = []
    of_layers, of_weights = Dropout.forward, nn.functional.dropout

    def record_layer(self, states):
        rates.extend([self.p] if self.p > 0 and self.training else [])
        return of_layers(self, states)

    def record_weights(states, p=0.5, training=True, inplace=False):
        rates.extend([p] if p > 0 and training else [])
        return of_weights(states, p, training, inplace)

    monkeypatch.setattr(Dropout, "forward", record_layer)
    monkeypatch.setattr(nn.functional, "dropout", record_weights)
    config = make_config(dropout=0.25, encoder_layers=3, decoder_layers=2, attn_implementation="eager")
    model = VanillaTransformerForConditionalGeneration(config).train()
    model(**batch)
    assert rates == [0.25] * (2 + 3 * 2 + 2 * 3)
    rates.clear()
    model.eval()(**batch)
    assert not rates


def test_the_other_dropouts_act_when_asked_for(make_config, batch):
    for field in ("attention_dropout", "activation_dropout"):
        model = VanillaTransformerForConditionalGeneration(make_config(dropout=0.0, **{field: 0.5})).train()
        first, second = (model(**batch, skip_logits=False).logits for _ in range(2))
        assert not torch.equal(first, second), field


# --- loss ---


def test_the_loss_is_the_mean_cross_entropy_of_real_tokens(make_model, batch):
    output = make_model()(**batch)
    log_probabilities = output.logits.log_softmax(-1)
    real = (batch["labels"] != -100).nonzero().tolist()
    terms = [-log_probabilities[row, place, batch["labels"][row, place]] for row, place in real]
    assert_close(output.loss, torch.stack(terms).mean())


@pytest.mark.parametrize("training", [True, False])
def test_label_smoothing_is_left_to_the_training_loop(make_model, batch, training):
    model = make_model(label_smoothing=0.2, dropout=0.0).train(training)
    output = model(**batch, skip_logits=False)
    plain = nn.functional.cross_entropy(output.logits.flatten(0, 1), batch["labels"].flatten())
    assert_close(output.loss, plain)
    assert_close(model(**batch).loss, plain)


def test_what_hangs_on_the_output_layer_has_its_part_in_training(make_model, batch):
    """An adapter (PEFT) or a hook on lm_head: its matrix alone is not the whole layer then."""
    model, calls = make_model().train(), []
    model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    assert model(**batch).logits is not None
    assert calls

    class Adapted(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.more = base, torch.nn.Linear(base.in_features, base.out_features)

        weight, bias = property(lambda self: self.base.weight), property(lambda self: self.base.bias)

        def forward(self, states):
            return self.base(states) + self.more(states)

    model = make_model().train()
    model.lm_head = Adapted(model.lm_head)
    model(**batch).loss.backward()
    assert model.lm_head.more.weight.grad.abs().sum() > 0


def test_training_with_labels_skips_the_logits_unless_they_are_asked_for(make_model, batch):
    model = make_model(dropout=0.0).train()
    skipped, held = model(**batch), model(**batch, skip_logits=False)
    assert skipped.logits is None
    assert held.logits is not None
    assert_close(skipped.loss, held.loss)
    names, parameters = zip(*model.named_parameters(), strict=True)
    for name, found, expected in zip(
        names, torch.autograd.grad(skipped.loss, parameters), torch.autograd.grad(held.loss, parameters), strict=True
    ):
        assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")
    assert model.eval()(**batch).logits is not None
    del batch["labels"]
    assert model.train()(**batch, decoder_input_ids=batch["input_ids"]).logits is not None


def test_the_criterion_is_the_loss(make_model, batch):
    criterion = LabelSmoothedCrossEntropy(0.3, "all")
    for training in (True, False):
        model = make_model(dropout=0.0).train(training)
        expected = criterion(model(**batch, skip_logits=False), batch["labels"])
        assert_close(model(**batch, criterion=criterion).loss, expected)


def test_one_batch_equals_itself_in_four_accumulated_pieces(make_model):
    model = make_model()
    batch = {"input_ids": torch.randint(3, 23, (8, 5)), "labels": torch.randint(3, 23, (8, 6))}
    for row in range(8):
        batch["labels"][row, row // 2 + 1 :] = -100  # pieces of unequal weight
    whole = model(**batch).loss
    whole.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    items = (batch["labels"] != -100).sum()
    total = 0.0
    for piece in range(4):
        rows = slice(2 * piece, 2 * piece + 2)
        loss = model(**{key: value[rows] for key, value in batch.items()}, num_items_in_batch=items).loss
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(whole.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_labels_become_the_decoders_input(make_model, batch):
    model = make_model()
    shifted = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    assert shifted[0].tolist() == [1, *batch["labels"][0, :3].tolist(), 0, 0]
    explicit = model(**batch, decoder_input_ids=shifted)
    assert_close(explicit.logits, model(**batch).logits, rtol=0, atol=0)


@pytest.mark.parametrize("keep", [2, torch.tensor([0, 3]), torch.tensor([[0, 1], [2, 3], [4, 5]]), "mask"])
def test_logits_to_keep_keeps_labels_in_step(make_model, batch, keep):
    model = make_model()
    keep = batch["labels"] != -100 if isinstance(keep, str) else keep
    full = model(**batch).logits
    output = model(**batch, logits_to_keep=keep)
    if isinstance(keep, int):
        expected, labels = full[:, -keep:], batch["labels"][:, -keep:]
    elif keep.ndim == 1:
        expected, labels = full[:, keep], batch["labels"][:, keep]
    elif keep.dtype == torch.bool:
        expected, labels = full[keep], batch["labels"][keep]
    else:
        rows = torch.arange(3)[:, None]
        expected, labels = full[rows, keep], batch["labels"][rows, keep]
    assert_close(output.logits, expected)
    assert_close(output.loss, nn.functional.cross_entropy(expected.flatten(0, -2), labels.flatten()))


# --- inputs and outputs ---


def test_the_auto_classes_know_the_model(make_config):
    assert type(AutoModel.from_config(make_config())) is VanillaTransformerModel
    assert type(AutoModelForSeq2SeqLM.from_config(make_config())) is VanillaTransformerForConditionalGeneration


def test_embeddings_in_place_of_ids_give_the_same(make_model, batch):
    model = make_model()
    embed = model.get_input_embeddings()
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    by_ids = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], decoder_input_ids=decoder_input_ids
    )
    by_embeddings = model(
        inputs_embeds=embed(batch["input_ids"]),
        attention_mask=batch["attention_mask"],
        decoder_inputs_embeds=embed(decoder_input_ids),
    )
    assert_close(by_embeddings.logits, by_ids.logits, rtol=0, atol=0)


def test_attentions_and_hidden_states_are_recorded(make_model, batch):
    model = make_model(attn_implementation="eager", d_k=3, d_v=5)
    output = model(**batch, output_attentions=True, output_hidden_states=True)
    assert [weights.shape for weights in output.encoder_attentions] == [(3, 4, 7, 7)] * 2
    assert [weights.shape for weights in output.decoder_attentions] == [(3, 4, 6, 6)] * 2
    assert [weights.shape for weights in output.cross_attentions] == [(3, 4, 6, 7)] * 2
    assert [states.shape for states in output.encoder_hidden_states] == [(3, 7, 16)] * 3
    assert [states.shape for states in output.decoder_hidden_states] == [(3, 6, 16)] * 3
    for weights in (*output.encoder_attentions, *output.cross_attentions):
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        padding = batch["attention_mask"][:, None, None] == 0
        assert not weights.masked_select(padding).any()
    for weights in output.decoder_attentions:
        assert not weights.triu(1).any()
    assert isinstance(model(**{**model.dummy_inputs}, use_cache=True).past_key_values, EncoderDecoderCache)


def test_a_tuple_of_encoder_outputs_is_accepted(make_model, batch):
    model = make_model()
    states = model.model.encoder(batch["input_ids"], batch["attention_mask"])
    for given in (states, states.to_tuple()):
        output = model(encoder_outputs=given, attention_mask=batch["attention_mask"], labels=batch["labels"])
        assert_close(output.logits, model(**batch).logits, rtol=0, atol=0)


def test_the_file_reads_as_figure_1_from_top_to_bottom():
    source = inspect.getsource(modeling_vanilla_transformer)
    order = [
        *("Embedding(", "Attention(", "FeedForward(", "PostNorm(", "EncoderLayer("),
        *("DecoderLayer(", "Encoder(", "Decoder(", "VanillaTransformerModel(", "ForConditionalGeneration("),
    ]
    places = [source.index(f"class {name}") for name in map(_class_name, order)]
    assert places == sorted(places)


def _class_name(name: str) -> str:
    return name if name.startswith("Vanilla") else f"VanillaTransformer{name}"


# --- resizing ---


def test_resizing_one_vocabulary_resizes_every_matrix(make_model, batch):
    for fields in ({}, {"share_encoder_decoder_embeddings": False}, {"tie_word_embeddings": False}):
        model = make_model(**fields)
        before = model(**batch).logits
        tied = len({id(weight) for weight in embeddings(model)})
        model.resize_token_embeddings(40)
        assert [len(weight) for weight in embeddings(model)] == [40] * 3
        assert len({id(weight) for weight in embeddings(model)}) == tied
        assert model.config.vocab_size == model.config.output_vocab_size == 40
        assert_close(model(**batch).logits[..., :23], before)
        model.resize_token_embeddings(23)
        assert_close(model(**batch).logits, before)


def test_resizing_one_of_two_vocabularies_leaves_the_other(make_model):
    model = make_model(target_vocab_size=31)
    model.resize_token_embeddings(40)
    assert [len(weight) for weight in embeddings(model)] == [40, 31, 31]
    model.resize_decoder_token_embeddings(50)
    source, target, output = embeddings(model)
    assert [len(source), len(target), len(output)] == [40, 50, 50]
    assert target is output
    assert (model.config.vocab_size, model.config.output_vocab_size) == (40, 50)
    assert model(**model.dummy_inputs).logits.shape[-1] == 50


# --- without a target: the source shifted right, and the encoder alone ---


@torch.no_grad()
def test_without_decoder_input_the_decoder_reads_the_source_shifted_right_as_barts_does(make_model, batch):
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    bart = BartModel(BartConfig(**SMALL, pad_token_id=0, decoder_start_token_id=1)).eval()
    for model in (make_model().model, make_model(share_encoder_decoder_embeddings=False).model, bart):
        shifted = shift_right(batch["input_ids"], 1, 0)
        assert_close(model(**source).last_hidden_state, model(**source, decoder_input_ids=shifted).last_hidden_state)


ENCODERS = [
    {},
    {"target_vocab_size": 31},
    {"share_encoder_decoder_embeddings": False, "norm_placement": "pre"},
    {"tie_word_embeddings": False, "position_encoding": "relative"},
]


@pytest.mark.parametrize("fields", ENCODERS)
@pytest.mark.parametrize("part", ["whole", "model"])
@torch.no_grad()
def test_a_translation_models_folder_gives_its_encoder(make_model, batch, tmp_path, fields, part):
    model = make_model(**fields)
    (model if part == "whole" else model.model).save_pretrained(tmp_path / "model")
    encoder, report = AutoModelForTextEncoding.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert type(encoder) is VanillaTransformerEncoderModel
    assert not any(report.values()), report
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    states = encoder(**source).last_hidden_state
    assert_close(states, model(**batch).encoder_last_hidden_state, rtol=0, atol=0)
    for row, length in enumerate(source["attention_mask"].sum(1).tolist()):  # alone and in the batch
        alone = encoder(input_ids=source["input_ids"][row : row + 1, :length]).last_hidden_state
        assert_close(states[row, :length], alone[0])
    assert len(encoder(**source, output_hidden_states=True).hidden_states) == 3
    encoder.save_pretrained(tmp_path / "encoder")
    again = AutoModelForTextEncoding.from_pretrained(tmp_path / "encoder")
    assert_close(again(**source).last_hidden_state, states, rtol=0, atol=0)


# --- errors ---


def test_every_mistake_gets_a_sentence(make_model, batch):
    source = {"input_ids": batch["input_ids"]}
    with pytest.raises(ValueError, match=r"Token id 23 is outside the vocabulary of 23.*0 to 22.*belong together"):
        make_model()(input_ids=torch.tensor([[5, 23]]), labels=batch["labels"][:1])
    with pytest.raises(ValueError, match=r"Token id -100 is outside the vocabulary.*padding in labels only"):
        make_model()(input_ids=torch.tensor([[5, -100]]), labels=batch["labels"][:1])
    with pytest.raises(ValueError, match=r"Token id 99 is outside the vocabulary"):
        make_model()(input_ids=batch["input_ids"][:1], labels=torch.tensor([[5, 99]]))
    with pytest.raises(ValueError, match=r"pad_token_id=None.*set both"):
        make_model(pad_token_id=None)(**source, labels=batch["labels"])
    with pytest.raises(ValueError, match=r"sequence of 7 tokens.*5 positions of the model"):
        make_model(position_encoding="learned", max_position_embeddings=5)(**batch)
    with pytest.raises(ValueError, match=r"either token ids or embeddings.*got neither"):
        make_model()(decoder_input_ids=batch["input_ids"])
    with pytest.raises(ValueError, match=r"Pass decoder_input_ids: there are no input_ids.*AutoModelForTextEncoding"):
        make_model()(inputs_embeds=torch.zeros(3, 7, 16))
    with pytest.raises(ValueError, match=r"Pass decoder_input_ids: target_vocab_size=31.*AutoModelForTextEncoding"):
        make_model(target_vocab_size=31).model(**source)
    with pytest.raises(ValueError, match=r"either token ids or embeddings.*got both"):
        make_model()(**source, decoder_input_ids=batch["input_ids"], decoder_inputs_embeds=torch.zeros(3, 7, 16))
    with pytest.raises(ValueError, match=r"one vocabulary: call resize_token_embeddings"):
        make_model().resize_decoder_token_embeddings(30)
    with pytest.raises(ValueError, match=r"pass encoder_hidden_states"):
        make_model().model.decoder(**source)
