"""Export to CTranslate2, a C++ engine for translation, in float32 or with weights of 16 or 8 bits.

    from vanilla_transformer.converters.to_ctranslate2 import export, translate

    export(model, tokenizer, "models/en-de", quantization="int8")
    translate(ctranslate2.Translator("models/en-de"), [tokenizer("The cat sleeps.").tokens()])

The engine computes what the model does: pre- or post-norm, tied embeddings or not, one vocabulary or two. Positions
are exported as a table, so even sinusoids have a longest sequence. A saved model is converted from its files, without
torch and transformers (`export_saved`). Tokens that the model's generation settings forbid
(OPUS-MT's `bad_words_ids` forbid padding) get a bias that makes them impossible.

Its beam search is not quite the paper's. It divides by length^alpha, not by ((5 + length) / 6)^alpha, and it ends with
the first `num_beams` finished translations. That is `beam_search.search(penalty="length")` with `early_stopping=True`.
"""

import math
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.hub.saved_files import Saved

from .saved_weights import ENCODINGS, LEARNED, POSITIONS, Weights, position_tables, read_weights, target_vocabulary_of
from .supported_models import OURS, PLAIN, aligning_heads, require_quantization, require_understood


if TYPE_CHECKING:  # optional dependencies, and those that a saved model does not need
    import ctranslate2
    from ctranslate2.specs.model_spec import LayerSpec
    from ctranslate2.specs.transformer_spec import TransformerSpec
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

    from vanilla_transformer.hub.saved_tokenizer import SavedTokenizer
    from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig
    from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

    Config: TypeAlias = VanillaTransformerConfig | Saved
    AnyTokenizer: TypeAlias = PreTrainedTokenizerBase | SavedTokenizer


Quantization = Literal[
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
]
# The config fields that this converter handles; `require_expressible` checks some of their values.
UNDERSTOOD = (
    *("vocab_size", "target_vocab_size", "d_model", "encoder_layers", "decoder_layers"),
    *("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "d_k", "d_v"),
    *("activation_function", "norm_placement", "position_encoding", "max_position_embeddings", "scale_embedding"),
    *("layer_norm_eps", "share_encoder_decoder_embeddings", "tie_word_embeddings", "output_bias"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
# Activations: the library's name and the engine's.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "quick_gelu": "GELUSigmoid",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
IMPOSSIBLE = -1e4  # as a bias of a logit; float16 can represent it


def export(
    model: "VanillaTransformerForConditionalGeneration",
    tokenizer: "PreTrainedTokenizerBase",
    folder: str | Path,
    *,
    target_tokenizer: "PreTrainedTokenizerBase | None" = None,
    quantization: str = "float32",
    max_positions: int | None = None,
) -> None:
    """Writes the model into an existing folder.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or the source's. The engine reads and writes tokens, not ids.
        folder: The folder.
        target_tokenizer: The target's, for separate vocabularies.
        quantization: Type of the weights, one of `Quantization`.
        max_positions: The longest source or translation, for position encodings without a limit;
            `max_position_embeddings` by default. A bounded encoding, such as learned positions, is written as it is.
    """
    from vanilla_transformer.hub.loading import require_finite

    require_quantization(quantization, get_args(Quantization))
    require_expressible(model.config)
    require_finite(model)
    weights = {name: tensor.float().cpu().numpy() for name, tensor in model.state_dict().items()}
    tokenizers = tokenizer, target_tokenizer or tokenizer
    forbidden = model.generation_config.bad_words_ids
    _write(model.config, weights, forbidden, tokenizers, folder, quantization, max_positions)


def export_saved(
    name_or_path: str | Path,
    config: Saved,
    generation_config: Saved,
    tokenizer: "AnyTokenizer",
    folder: str | Path,
    *,
    target_tokenizer: "AnyTokenizer | None" = None,
    quantization: str = "float32",
    max_positions: int | None = None,
    **options: Any,
) -> None:
    """Writes a saved model into an existing folder, from its files.

    Args:
        name_or_path: Folder, or name on the Hub.
        config: Its config.
        generation_config: Its decoding settings.
        tokenizer: As in `export`, as are the next arguments up to `max_positions`.
        folder: The folder.
        target_tokenizer: The target's tokenizer.
        quantization: Type of the weights.
        max_positions: The longest sequence.
        options: Options of `from_pretrained` that say where the files are.
    """
    require_quantization(quantization, get_args(Quantization))
    require_expressible(config)
    weights = read_weights(name_or_path, config, **options)
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"{name_or_path} has weights that are not numbers (NaN or infinity) in {name}: its training diverged "
                "or its file is damaged. Use an earlier checkpoint, or download it again."
            )
    tokenizers = tokenizer, target_tokenizer or tokenizer
    try:
        _write(config, weights, generation_config.bad_words_ids, tokenizers, folder, quantization, max_positions)
    except KeyError as error:
        raise ValueError(
            f"{name_or_path} has no weights {error.args[0]}: its files are not those of one whole model. Download or "
            "save the model again."
        ) from error


def can_export_saved(config: Saved) -> bool:
    """Whether a saved config has all fields that `export_saved` reads. An older one lacks some: torch's knows them."""
    read = {*UNDERSTOOD, *PLAIN, "alignment_layer"}
    return config.model_type == OURS and read <= vars(config).keys() and config.position_encoding in ENCODINGS


def _write(
    config: "Config",
    weights: Weights,
    forbidden_words: Iterable[Sequence[int]] | None,
    tokenizers: "tuple[AnyTokenizer, AnyTokenizer]",
    folder: str | Path,
    quantization: str,
    max_positions: int | None,
) -> None:
    weights = {**weights, **position_tables(config, weights, table_length(config, max_positions))}
    spec = specification(config, weights, forbidden_words)
    source = vocabulary(tokenizers[0], config.vocab_size)
    target = vocabulary(tokenizers[1], target_vocabulary_of(config), as_target=True)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    if tokenizers[0].unk_token is not None:
        spec.config.unk_token = tokenizers[0].unk_token
    spec.config.decoder_start_token = spec.config.bos_token = target[_start_token_id(config)]
    spec.config.eos_token = target[_end_token_id(config)]
    if "bfloat16" in quantization and find_spec("torch") is None:
        raise ImportError(f"quantization={quantization!r} is written by torch: install torch, or choose float16.")
    _specs(with_torch="bfloat16" in quantization)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))


def translate(
    translator: "ctranslate2.Translator",
    sources: Sequence[list[str]],
    *,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    max_new_tokens: int = 256,
    **options: Any,
) -> list[list[str]]:
    """Returns the best translation of each source, both as tokens that end with the end of sentence.

    Args:
        translator: The exported model.
        sources: Tokens, as the tokenizer splits text.
        num_beams: Beam size; 1 is greedy.
        length_penalty: Alpha in length^alpha.
        max_new_tokens: The longest translation.
        options: Other options of `translate_batch`.
    """
    results = translator.translate_batch(
        sources,
        beam_size=num_beams,
        length_penalty=length_penalty,
        max_decoding_length=max_new_tokens,
        max_input_length=0,  # else the engine truncates sources silently; a source without positions is an error
        return_end_token=True,
        **{"min_decoding_length": 0, **options},
    )
    return [result.hypotheses[0] for result in results]


def vocabulary(tokenizer: "AnyTokenizer", size: int, *, as_target: bool = False) -> list[str]:
    """Returns the tokens of a tokenizer in the order of their ids, with invented names for ids that it lacks.

    Args:
        tokenizer: The tokenizer.
        size: Vocabulary size of the model.
        as_target: Whether to return the target's tokens, if one tokenizer has two vocabularies (MarianMT's).
    """
    target_ids = getattr(tokenizer, "target_encoder", None) if as_target else None
    tokens = {token_id: token for token, token_id in (target_ids or tokenizer.get_vocab()).items()}
    if (largest := max(tokens)) >= size:
        raise ValueError(
            f"The tokenizer has an id {largest}, the model only {size} tokens: give the tokenizer of this model."
        )
    return [tokens.get(token_id, f"<unused {token_id}>") for token_id in range(size)]


def table_length(config: "PreTrainedConfig | Saved", max_positions: int | None = None) -> int:
    """Returns how many positions an exported model has.

    Args:
        config: The config of this package's model or of MarianMT.
        max_positions: The number for position encodings without a limit; `max_position_embeddings` by default.
    """
    return longest_sequence_of(config) or max_positions or config.max_position_embeddings


def longest_sequence_of(config: "PreTrainedConfig | Saved") -> int | None:
    """Returns how many positions the model itself has; `None` if there is no limit."""
    return config.max_position_embeddings if getattr(config, "position_encoding", None) == LEARNED else None


def specification(
    config: "Config", weights: Weights, forbidden_words: Iterable[Sequence[int]] | None = None
) -> "TransformerSpec":
    """Returns the engine's description of a model, with weights and without vocabularies.

    Args:
        config: Its config.
        weights: Its weights, and its position tables under the names `POSITIONS`.
        forbidden_words: `bad_words_ids` of its generation config; those of one token are written.
    """
    specs = _specs()
    require_expressible(config)
    alignment_layer, alignment_heads = aligning_heads(config, config.decoder_layers, config.decoder_attention_heads)
    common = {
        "pre_norm": config.norm_placement == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation_function]],
        "head_dim": config.d_k or config.d_v,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, config.encoder_attention_heads, **common),
        specs.TransformerDecoderSpec(
            config.decoder_layers,
            config.decoder_attention_heads,
            # The attention that the engine returns: the mean of the first heads of a layer.
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
            **common,
        ),
    )
    filler = _Filler(weights, config)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.encoder.embeddings[0].weight = filler.copy("model.encoder.embed_tokens.weight")
    spec.decoder.embeddings.weight = filler.copy("model.decoder.embed_tokens.weight")
    filler.stack(spec.encoder, "encoder")
    filler.stack(spec.decoder, "decoder")
    filler.linear(spec.decoder.projection, "lm_head")
    if forbidden := [ids[0] for ids in forbidden_words or [] if len(ids) == 1]:
        bias = (
            spec.decoder.projection.bias if config.output_bias else np.zeros(target_vocabulary_of(config), np.float32)
        )
        bias[forbidden] = IMPOSSIBLE
        spec.decoder.projection.bias = bias
    return spec


def require_ctranslate2() -> ModuleType:
    """Imports CTranslate2, or says how to install it."""
    try:
        import ctranslate2
    except ImportError as error:
        raise ImportError("This needs CTranslate2: pip install ctranslate2") from error
    return ctranslate2


@LOADING
def _specs(*, with_torch: bool = False) -> ModuleType:
    """Imports the engine's descriptions of models, which would import torch: it is hidden from them.

    Only bfloat16 needs it, which numpy does not have.
    """
    require_ctranslate2()
    thread = threading.get_ident()

    class Hidden(MetaPathFinder):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
            if fullname == "torch" and threading.get_ident() == thread:  # other threads may import it
                raise ModuleNotFoundError("torch is hidden")

    sys.meta_path.insert(0, finder := Hidden())
    try:
        from ctranslate2 import specs
        from ctranslate2.specs import model_spec
    finally:
        sys.meta_path.remove(finder)
    if with_torch and not model_spec.torch_is_available:
        import torch

        model_spec.torch, model_spec.torch_is_available = torch, True
    return specs


class _Filler:
    """Puts the weights of a model into the engine's description.

    Args:
        weights: The weights by name.
        config: The config.
    """

    def __init__(self, weights: Weights, config: "Config"):
        self.weights, self.config = weights, config

    def stack(self, spec: "LayerSpec", name: str) -> None:
        spec.position_encodings.encodings = self.copy(POSITIONS.format(name))
        spec.scale_embeddings = math.sqrt(self.config.d_model) if self.config.scale_embedding else 1.0
        for index, layer in enumerate(spec.layer):
            prefix = f"model.{name}.layers.{index}."
            self.attention(layer.self_attention, f"{prefix}self_attn")
            if name == "decoder":
                self.attention(layer.attention, f"{prefix}encoder_attn")
            self.norm(layer.ffn.layer_norm, f"{prefix}feed_forward_residual.norm")
            self.linear(layer.ffn.linear_0, f"{prefix}feed_forward.fc1")
            self.linear(layer.ffn.linear_1, f"{prefix}feed_forward.fc2")
        if self.config.norm_placement == "pre":
            self.norm(spec.layer_norm, f"model.{name}.norm")

    def attention(self, spec: "LayerSpec", name: str) -> None:
        """Joins projections of the same states into one matrix, as the engine has them.

        In self-attention these are queries, keys and values, in attention to the source keys and values.
        """
        projections = [f"{name}.{each}_proj" for each in ("q", "k", "v")]
        parts = [projections] if len(spec.linear) == 2 else [projections[:1], projections[1:]]
        for linear, part in zip(spec.linear, [*parts, [f"{name}.out_proj"]], strict=True):
            self.linear(linear, *part)
        self.norm(spec.layer_norm, f"{name}_residual.norm")

    def linear(self, spec: "LayerSpec", *names: str) -> None:
        spec.weight = self.copy(*(f"{name}.weight" for name in names))
        if f"{names[0]}.bias" in self.weights:
            spec.bias = self.copy(*(f"{name}.bias" for name in names))

    def norm(self, spec: "LayerSpec", name: str) -> None:
        spec.gamma, spec.beta = self.copy(f"{name}.weight"), self.copy(f"{name}.bias")

    def copy(self, *names: str) -> np.ndarray:
        """Joins arrays into a new one. CTranslate2 rounds weights in place, so it must not get the model's."""
        return np.concatenate([self.weights[name] for name in names])


def _start_token_id(config: "Config") -> int:
    if config.decoder_start_token_id is None:
        raise ValueError("decoder_start_token_id=None: CTranslate2 needs the decoder's first token; set it.")
    return config.decoder_start_token_id


def _end_token_id(config: "Config") -> int:
    match config.eos_token_id:
        case int(token_id) | [int(token_id)]:
            return token_id
    raise ValueError(f"eos_token_id={config.eos_token_id}: CTranslate2 needs one end of sentence; set it to one.")


def require_expressible(config: "Config") -> None:
    """Refuses a config that the engine can't represent, by the name of the field."""
    require_understood(config, UNDERSTOOD, "a CTranslate2 model")
    if config.position_encoding not in ENCODINGS:
        raise ValueError(
            f"position_encoding={config.position_encoding!r} can't become a CTranslate2 model, which only adds "
            "vectors to embeddings: train a model with such an encoding."
        )
    if config.norm_placement not in ("post", "pre"):
        raise ValueError(
            f"norm_placement={config.norm_placement!r} can't become a CTranslate2 model: train a model with 'post' or "
            "'pre'."
        )
    if config.activation_function not in ACTIVATIONS:
        raise ValueError(
            f"activation_function={config.activation_function!r} is unknown to CTranslate2: train a model with one of "
            f"{', '.join(ACTIVATIONS)}."
        )
    for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
        d_k, d_v = (width or config.d_model // heads for width in (config.d_k, config.d_v))
        if d_k != d_v:
            raise ValueError(
                f"d_k={d_k} and d_v={d_v} differ, but CTranslate2 has one width for keys and values: train a model "
                "whose d_k and d_v are the same."
            )
    _start_token_id(config)
    _end_token_id(config)
