"""CTranslate2 writes the same tokens as this model, whatever the variant, and knows what it can't express."""

import copy

import pytest
import torch
from tokenizers import Tokenizer, models
from torch.testing import assert_close
from transformers import MarianMTModel, PreTrainedTokenizerFast

from tests.small_models import draw_weights, opus_marian
from vanilla_transformer.converters.from_and_to_marian import from_marian
from vanilla_transformer.converters.to_ctranslate2 import export, translate, vocabulary
from vanilla_transformer.models import beam_search


ctranslate2 = pytest.importorskip("ctranslate2")

VOCAB_SIZE, TARGET_VOCAB_SIZE, LONGEST = 40, 50, 20
VARIANTS = {
    "paper": {},
    "pre-norm": {"norm_placement": "pre"},
    "halves": {"position_encoding": "sinusoidal_halves"},
    "tensor2tensor": {"position_encoding": "sinusoidal_tensor2tensor"},
    "learned": {"position_encoding": "learned"},
    "swish": {"activation_function": "swish"},
    "gelu": {"activation_function": "gelu"},
    "gelu_new": {"activation_function": "gelu_new"},
    "quick_gelu": {"activation_function": "quick_gelu"},
    "tanh": {"activation_function": "tanh"},
    "untied": {"tie_word_embeddings": False},
    "two vocabularies": {"target_vocab_size": TARGET_VOCAB_SIZE},
    "uneven": {"encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_ffn_dim": 20},
    "wide heads": {"d_k": 8, "d_v": 8, "decoder_attention_heads": 2},
    "unscaled": {"scale_embedding": False},
    "epsilon": {"layer_norm_eps": 1e-2},
    "bias": {"output_bias": True},
}


def tokenizer_of(size: int) -> PreTrainedTokenizerFast:
    """The token with id 7 is "t7"."""
    pieces = {f"t{token_id}": token_id for token_id in range(size)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(pieces, "t3")), unk_token="t3")


def exported(model, folder, **options) -> "ctranslate2.Translator":
    target_tokenizer = None if model.config.target_vocab_size is None else tokenizer_of(TARGET_VOCAB_SIZE)
    export(model, tokenizer_of(model.config.vocab_size), folder, target_tokenizer=target_tokenizer, **options)
    return ctranslate2.Translator(str(folder), intra_threads=1)


def drawn_sources(eos: int = 2) -> list[list[int]]:
    lengths = [1, 3, 5, 5, 8, 9, 9, 12]
    return [[*torch.randint(4, VOCAB_SIZE - 1, (length,)).tolist(), eos] for length in lengths]


def ours(model, sources: list[list[int]], **options) -> list[list[int]]:
    """What this model writes, up to and with the end of sentence."""
    longest, pad, end = max(map(len, sources)), model.config.pad_token_id, model.config.eos_token_id
    mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources])
    ids = torch.tensor([source + [pad] * (longest - len(source)) for source in sources])
    options |= {"custom_generate": beam_search.search, "penalty": "length", "max_extra_tokens": 100}
    rows = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=LONGEST, **options)[:, 1:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def theirs(translator, sources: list[list[int]], **options) -> list[list[int]]:
    pieces = [[f"t{token_id}" for token_id in source] for source in sources]
    return [
        [int(piece[1:]) for piece in row] for row in translate(translator, pieces, max_new_tokens=LONGEST, **options)
    ]


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
def test_greedy_tokens_are_the_same(make_model, tmp_path, fields):
    model = draw_weights(make_model(vocab_size=VOCAB_SIZE, **fields))
    model.generation_config.bad_words_ids = [[0], [1]]
    options = {"num_beams": 1, "no_repeat_ngram_size": 1}  # random weights love repetition
    sources = drawn_sources()
    expected = ours(model, sources, **options)
    assert len(set(map(tuple, expected))) > 3
    assert theirs(exported(model, tmp_path), sources, **options) == expected


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_beams_find_the_same_tokens(make_model, tmp_path, fields, alpha):
    model, sources = draw_weights(make_model(vocab_size=VOCAB_SIZE, **fields)), drawn_sources()
    options = {"num_beams": 4, "length_penalty": alpha}
    found = theirs(exported(model, tmp_path), sources, **options)
    assert found == ours(model, sources, **options, early_stopping=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_exported_as_what_they_are(make_model, tmp_path, dtype):
    model, sources = draw_weights(make_model(vocab_size=VOCAB_SIZE)).to(dtype), drawn_sources()
    found = theirs(exported(model, tmp_path), sources, num_beams=1)
    assert found == ours(model.float(), sources, num_beams=1)


@pytest.fixture
def pairs(batch):
    """Sentence pairs as the engine scores them: all targets are of one length and end."""
    batch["labels"] = batch["labels"].clamp(min=3)
    batch["labels"][:, -1] = 2
    return batch


@torch.no_grad()
def assert_same_probabilities(model, translator, pairs, tolerance: float):
    """Of every token of given translations."""
    sources = [[f"t{token_id}" for token_id in row if token_id] for row in pairs["input_ids"].tolist()]
    targets = [[f"t{token_id}" for token_id in row[:-1]] for row in pairs["labels"].tolist()]
    found = torch.tensor([score.log_probs for score in translator.score_batch(sources, targets)])
    log_probabilities = model(**pairs).logits.log_softmax(-1)
    expected = log_probabilities.gather(-1, pairs["labels"][..., None]).squeeze(-1)
    assert_close(found, expected, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
def test_probabilities_are_the_same(make_model, pairs, tmp_path, fields):
    model = draw_weights(make_model(vocab_size=VOCAB_SIZE, **fields))
    assert_same_probabilities(model, exported(model, tmp_path), pairs, 5e-5)


@pytest.mark.parametrize(
    ("quantization", "bytes_a_weight", "tolerance"),
    [
        *(("float32", 4, 1e-5), ("float16", 2, 0.01), ("bfloat16", 2, 0.1), ("int16", 2, 0.1)),
        *(("int8", 1, 0.2), ("int8_float32", 1, 0.2), ("int8_float16", 1, 0.2), ("int8_bfloat16", 1, 0.2)),
    ],
)
def test_every_type_of_weights_gives_nearly_the_same_probabilities_and_leaves_the_model_alone(
    make_model, pairs, tmp_path, quantization, bytes_a_weight, tolerance
):
    model = make_model(d_model=64, encoder_ffn_dim=256, decoder_ffn_dim=256, max_position_embeddings=16)
    before = copy.deepcopy(model.state_dict())
    translator = exported(model, tmp_path, quantization=quantization)
    assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)
    assert_same_probabilities(model, translator, pairs, tolerance)
    size, parameters = (tmp_path / "model.bin").stat().st_size, model.num_parameters()
    assert 0.9 * bytes_a_weight * parameters < size < (bytes_a_weight + 0.5) * parameters


# --- models that came from MarianMT: the decoder starts from padding, which is zero and forbidden ---


@pytest.fixture
def marian() -> MarianMTModel:
    last = VOCAB_SIZE - 1
    model = opus_marian(vocab_size=VOCAB_SIZE, pad_token_id=last, decoder_start_token_id=last)
    model.model.shared.weight.data[-1] = 0.0
    model.final_logits_bias[0, -1] = 0.0
    model.generation_config.update(bad_words_ids=[[VOCAB_SIZE - 1]], forced_eos_token_id=None)
    return model


def test_a_converted_marian_writes_what_it_did(marian, tmp_path):
    sources = drawn_sources(eos=0)
    options = {"num_beams": 1, "no_repeat_ngram_size": 1}
    expected = ours(marian, sources, **options)
    assert not any(VOCAB_SIZE - 1 in row for row in expected)
    assert theirs(exported(from_marian(marian), tmp_path), sources, **options) == expected


def test_the_engines_own_converter_for_marian_gives_the_same(marian, tmp_path):
    class Converter(ctranslate2.converters.TransformersConverter):
        def load_tokenizer(self, *args, **kwargs):
            pieces = {f"t{token_id}": token_id for token_id in range(VOCAB_SIZE - 1)} | {"<pad>": VOCAB_SIZE - 1}
            backend = Tokenizer(models.WordLevel(pieces, "t3"))
            return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="t3", eos_token="t0")

    marian.save_pretrained(tmp_path / "marian")
    Converter(str(tmp_path / "marian")).convert(str(tmp_path / "theirs"))
    (tmp_path / "ours").mkdir()
    translator = exported(from_marian(marian), tmp_path / "ours")
    for options in ({"num_beams": 1}, {"num_beams": 4}, {"num_beams": 4, "no_repeat_ngram_size": 1}):
        sources = drawn_sources(eos=0)
        expected = theirs(ctranslate2.Translator(str(tmp_path / "theirs"), intra_threads=1), sources, **options)
        assert theirs(translator, sources, **options) == expected


# --- refusals ---


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"d_k": 8}, r"d_k=8 and d_v=4 differ"),
        ({"d_v": 2}, r"d_k=4 and d_v=2 differ"),
        ({"activation_function": "mish"}, r"activation_function='mish' is unknown to CTranslate2"),
        ({"decoder_start_token_id": None}, r"decoder_start_token_id=None"),
        ({"eos_token_id": [2, 3]}, r"eos_token_id=\[2, 3\]: CTranslate2 needs one end"),
        ({"eos_token_id": None}, r"eos_token_id=None"),
    ],
)
def test_what_the_engine_can_not_express_is_refused_by_name(make_model, tmp_path, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        exported(make_model(**fields), tmp_path)


def test_an_unknown_type_is_refused(make_model, tmp_path):
    with pytest.raises(ValueError, match="quantization='int4' is unknown: choose one of float32, "):
        exported(make_model(), tmp_path, quantization="int4")


def test_a_tokenizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match="an id 39, the model only 23 tokens"):
        vocabulary(tokenizer_of(40), 23)


def test_ids_beyond_the_tokenizer_get_names():
    assert vocabulary(tokenizer_of(4), 6) == ["t0", "t1", "t2", "t3", "<unused 4>", "<unused 5>"]


def test_positions_end_where_asked(make_model, tmp_path):
    model = draw_weights(make_model(vocab_size=VOCAB_SIZE))
    translator = exported(model, tmp_path, max_positions=10)
    sources = drawn_sources()
    translate(translator, [["t5", "t2"]], max_new_tokens=5)
    with pytest.raises(RuntimeError, match="position"):
        theirs(translator, sources, num_beams=1)
