"""The configuration of the Transformer; its defaults are the base model of "Attention Is All You Need"."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .shared_configuration import SharedConfiguration
from .spelling import suggestion
from .variants import FIELDS_OF_CHOICES, VARIANTS, Choice, load


if TYPE_CHECKING:  # `save_pretrained` reads this line to find the model's code, and Python does not run it
    from .text_encoder import VanillaTransformerEncoderModel  # noqa: F401


# Fields that must be greater than 0.
SIZES = (
    *("vocab_size", "target_vocab_size", "d_model", "encoder_layers", "decoder_layers"),
    *("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("d_k", "d_v", "max_position_embeddings", "layer_norm_eps"),
)


# Booleans of earlier configs, and the choices that took their place.
REPLACED = {"reversible": "norm_placement='reversible'", "share_qk": "key_projection='shared'"}


@strict
class VanillaTransformerConfig(SharedConfiguration, PreTrainedConfig):
    r"""
    Describes a [`VanillaTransformerModel`]. With no arguments it is the base model of the paper
    ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), Table 3).
    [`~VanillaTransformerConfig.from_preset`] builds the paper's other models by name.

    Args:
        vocab_size (`int`, defaults to 37000):
            Tokens in the source vocabulary, and in the target vocabulary unless `target_vocab_size` is set.
        target_vocab_size (`int`, *optional*):
            Tokens in a separate target vocabulary. `None`: source and target share one vocabulary.
        d_model (`int`, defaults to 512):
            Width of the embeddings and of every sub-layer's output.
        encoder_layers, decoder_layers (`int`, defaults to 6):
            Depth of the stacks, N in the paper.
        encoder_attention_heads, decoder_attention_heads (`int`, defaults to 8):
            Parallel attention heads, h in the paper.
        encoder_ffn_dim, decoder_ffn_dim (`int`, defaults to 2048):
            Inner width of the feed-forward networks, d_ff in the paper.
        d_k, d_v (`int`, *optional*):
            Width of one head's keys and values. `None`: `d_model` divided by the number of heads.
        activation_function (`str`, defaults to `"relu"`):
            Activation of the feed-forward networks.
        dropout (`float`, defaults to 0.1):
            Dropout on each sub-layer's output and on the sums of embeddings and positions, P_drop in the paper.
        attention_dropout, activation_dropout (`float`, defaults to 0.0):
            Dropout on the attention weights and inside the feed-forward networks. The paper has neither.
        label_smoothing (`float`, defaults to 0.1):
            Probability that training takes from the gold token, epsilon_ls in the paper. The training loop reads it.
            The loss that `forward` returns by default is plain cross-entropy, so that it is the log-perplexity.
        norm_placement (`str`, defaults to `"post"`):
            Where the norm of a residual connection is, a key of `variants.RESIDUALS`. `"post"`: after each sum (the
            paper). `"pre"`: before each sub-layer, with one more norm at the end of each stack. `"reversible"`:
            as `"pre"`, and the encoder's residuals are reversible (Kitaev et al. 2020, Reformer): training keeps no
            activations of the encoder's layers.
        position_encoding (`str`, defaults to `"sinusoidal"`):
            How tokens know their position, a key of `variants.POSITIONS`. `"sinusoidal"`: the paper's, with sines and
            cosines interleaved. `"sinusoidal_halves"`: the same waves, all sines before all cosines (MarianMT in
            transformers). `"sinusoidal_tensor2tensor"`: halves with the wavelengths of tensor2tensor, fairseq and
            Marian. `"sinusoidal_fairseq"`: the same, counted from `pad_token_id` + 1. `"learned"`: Table 3, row E.
            `"concatenated"`: sinusoids concatenated and projected. `"relative"`: a learned bias on the scores for each
            head and distance (T5). `"rotary"`: rotated queries and keys. `"integer"`: the bare number. `"none"`: no
            positions.
        relative_attention_num_buckets, relative_attention_max_distance (`int`, defaults to 32 and 128):
            Buckets of distances for `"relative"`, and the distance from which all are in the last one.
        score_function (`str`, defaults to `"scaled_dot"`):
            How well a query fits a key, a key of `variants.SCORES`. `"scaled_dot"`: the paper's q k^T / sqrt(d_k).
            `"dot"`: without the scale. `"additive"`: w tanh(q + k) (Bahdanau et al. 2015). `"gaussian"`:
            -|(q - k) w|^2 / 2 with a learned width w.
        key_projection (`"separate"` or `"shared"`, defaults to `"separate"`):
            Whether keys have a projection of their own (the paper) or that of the queries.
        attention_pattern (`str`, defaults to `"full"`):
            Which tokens self-attention may look at, a key of `variants.PATTERNS`. `"full"`: all of them. `"window"`:
            those near by. `"longformer"`: those near by, and a few global ones (encoder only). `"lsh"`: those with
            similar vectors, found by hashing (encoder only).
        attention_window (`int`, defaults to 256):
            For `"window"` and `"longformer"`: a token sees half of this number of tokens on each side.
        num_hashes, lsh_bucket_length (`int`, defaults to 4 and 64):
            For `"lsh"`: rounds of hashing, and the tokens in a chunk of similar ones.
        hash_seed (`int`, defaults to 0):
            For `"lsh"`: seed of the random rotations of its hashes.
        max_position_embeddings (`int`, defaults to 1024):
            The longest sequence that learned positions can number. Sinusoids have no limit.
        scale_embedding (`bool`, defaults to `True`):
            Whether embeddings are multiplied by the square root of `d_model` (section 3.4).
        layer_norm_eps (`float`, defaults to 1e-05):
            Added to the variance in layer normalisation. The paper does not state it.
        initializer (`"authors"` or `"glorot"`, defaults to `"authors"`):
            How the initial matrices are drawn, which the paper does not state. `"glorot"`: each by its own width and
            height (Glorot and Bengio 2010). `"authors"`: the same, but the projections of queries, keys and values
            have the limit of one joined matrix, as in the authors' code (and in effect in fairseq and
            `torch.nn.MultiheadAttention`); in attention to the source, those of keys and values.
        initializer_gain (`float`, defaults to 1.0):
            Multiplies the initial matrices of all layers. 1.0 is the value in the authors' code.
        share_encoder_decoder_embeddings (`bool`, *optional*):
            Whether source and target tokens share one embedding matrix. `None`: yes if it is possible, that is with
            one vocabulary and `tie_word_embeddings`.
        tie_word_embeddings (`bool`, defaults to `True`):
            Whether the output projection is the transposed target embedding. With a shared embedding this ties all
            three matrices (section 3.4). `False` unties everything, source and target embeddings included.
        output_bias (`bool`, defaults to `False`):
            Whether the output projection has a bias. The paper has none; Marian's models do.
        alignment_layer (`int`, *optional*):
            The decoder layer whose first head learned word links (the objective `guided_alignment`), for alignments.
            `None`: the mean of the heads of the last layer but one.
        use_cache (`bool`, defaults to `True`):
            Whether decoding caches keys and values.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id (`int`, defaults to 0, 1, 2, 1):
            The special tokens. The decoder starts with `<s>` and not with padding, so that a mask computed from
            padding never hides its first token.
        source_lang, target_lang (`str`, *optional*):
            The languages that the model translates from and into, such as `"en"`. They do not change what it computes.
        placeholders (`int`, defaults to 0):
            How many placeholders (`⟨1⟩`, `⟨2⟩` ... `⟨9⟩`) the model has learned to copy. `Translator` writes them in
            place of addresses, telephone numbers, codes, prices and the like.

    ```python
    >>> from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

    >>> config = VanillaTransformerConfig.from_preset("base", vocab_size=37000)
    >>> model = VanillaTransformerForConditionalGeneration(config)
    >>> f"{model.num_parameters():,}"
    '63,082,496'
    ```"""

    model_type = "vanilla_transformer"
    decoder_is_causal = True  # not a field: a model whose decoder sees all positions is another model_type
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "decoder_vocab_size": "target_vocab_size",
    }
    base_model_tp_plan = {
        "encoder.embed_tokens": "embedding_rowwise",
        "decoder.embed_tokens": "embedding_rowwise",
        **{
            f"{stack}.layers.*.{attention}.{projection}": "rowwise" if projection == "out_proj" else "colwise"
            for stack, attention in [("encoder", "self_attn"), ("decoder", "self_attn"), ("decoder", "encoder_attn")]
            for projection in ["q_proj", "k_proj", "v_proj", "out_proj"]
        },
        **{
            f"{stack}.layers.*.feed_forward.{layer}": style
            for stack in ["encoder", "decoder"]
            for layer, style in [("fc1", "colwise"), ("fc2", "rowwise")]
        },
    }
    base_model_fsdp_plan = {
        "encoder.embed_tokens": "free_full_weight",
        "encoder.layers.*": "free_full_weight",
        "decoder.layers.*": "free_full_weight",
    }

    vocab_size: int = 37000
    target_vocab_size: int | None = None
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    d_k: int | None = None
    d_v: int | None = None
    activation_function: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    label_smoothing: float | int = 0.1
    norm_placement: str = "post"
    position_encoding: str = "sinusoidal"
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    score_function: str = "scaled_dot"
    key_projection: Literal["separate", "shared"] = "separate"
    attention_pattern: str = "full"
    attention_window: int = 256
    num_hashes: int = 4
    lsh_bucket_length: int = 64
    hash_seed: int = 0
    max_position_embeddings: int = 1024
    scale_embedding: bool = True
    initializer: Literal["authors", "glorot"] = "authors"
    initializer_gain: float | int = 1.0
    layer_norm_eps: float = 1e-5
    share_encoder_decoder_embeddings: bool | None = None
    tie_word_embeddings: bool = True
    output_bias: bool = False
    alignment_layer: int | None = None
    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    source_lang: str | None = None
    target_lang: str | None = None
    placeholders: int = 0

    def __post_init__(self, **kwargs: Any) -> None:
        self.refuse_misspelt(kwargs)
        for name, choice in REPLACED.items():
            if kwargs.pop(name, False):
                raise ValueError(f"{name}=True is a choice of another field: write {choice}.")
        super().__post_init__(**kwargs)

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> "VanillaTransformerConfig":
        """
        Builds a model of the paper by name: `"base"`, `"big"`, a row of Table 3 such as `"C-N4"`, or `"tiny"`.

        Args:
            name (`str`):
                A key of [`PRESETS`], which come with the package and not with a saved model.
            overrides:
                Fields to set on top, for example `vocab_size=len(tokenizer)`.
        """
        presets = load("presets.PRESETS")  # not in saved models
        if name not in presets:
            raise ValueError(
                f"There is no preset {name!r}{suggestion(name, presets)}. The presets are {', '.join(presets)}."
            )
        known = {field.name for field in fields(cls)} | cls.attribute_map.keys()
        for key in overrides:
            if key not in known:
                raise ValueError(f"{key!r} is not a field of {cls.__name__}{suggestion(key, known)}.")
        return cls(**{**presets[name], **overrides})

    def variant(self, field: str) -> Any:
        """The class that a field such as `"attention_pattern"` names."""
        return load(VARIANTS[field][getattr(self, field)])

    def decoder_variant(self, field: str) -> Any:
        """The decoder's class for a field: some choices are for the encoder only, and name another in `in_decoder`."""
        chosen = self.variant(field)
        name = getattr(chosen, "in_decoder", None)
        return load(VARIANTS[field][name]) if name else chosen

    def variant_places(self) -> list[Choice]:
        return [choices[getattr(self, field)] for field, choices in VARIANTS.items()]

    def validate_architecture(self) -> None:
        """Checks each field and how they fit together. Runs whenever a config is made."""
        self.require_positive(*SIZES)
        self.require_probabilities("dropout", "attention_dropout", "activation_dropout", "label_smoothing")
        self._require_divisible_heads()
        self.require_possible_sharing()
        self.require_ids_in_vocabulary()
        self._require_known_variants()
        self._require_fields_of_variants()
        if self.activation_function not in ACT2FN:
            hint = suggestion(self.activation_function, ACT2FN)
            raise ValueError(f"activation_function={self.activation_function!r} is unknown to transformers{hint}.")
        if self.alignment_layer is not None and not 0 <= self.alignment_layer < self.decoder_layers:
            raise ValueError(
                f"alignment_layer={self.alignment_layer} is none of the {self.decoder_layers} decoder layers: give "
                f"one from 0 to {self.decoder_layers - 1}, or None."
            )
        if not 0 <= self.placeholders <= 9:
            raise ValueError(f"placeholders={self.placeholders} must be from 0 to 9: a placeholder has one digit.")
        if self.initializer_gain <= 0:
            raise ValueError(f"initializer_gain={self.initializer_gain} must be greater than 0; the default is 1.0.")

    def _require_known_variants(self) -> None:
        for field, choices in VARIANTS.items():
            value = getattr(self, field)
            if value not in choices:
                hint = suggestion(value, choices)
                raise ValueError(f"{field}={value!r} is unknown{hint}: choose one of {', '.join(choices)}.")
            # Choices in the modeling file fit any config, and importing it takes time.
            if not str(choices[value]).startswith("modeling") and hasattr(chosen := self.variant(field), "check"):
                chosen.check(self)

    def _require_fields_of_variants(self) -> None:
        """Refuses a setting of one choice that another choice would silently ignore."""
        for field, (axis, choices) in FIELDS_OF_CHOICES.items():
            value, chosen = getattr(self, field), getattr(self, axis)
            if chosen not in choices and value != getattr(type(self), field):
                remedy = f"leave it out, or set {axis}={choices[0]!r}"
                raise ValueError(f"{field}={value} has no effect with {axis}={chosen!r}: {remedy}.")

    def _require_divisible_heads(self) -> None:
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            heads = getattr(self, name)
            if (self.d_k is None or self.d_v is None) and self.d_model % heads:
                raise ValueError(
                    f"d_model={self.d_model} can't be divided evenly among {name}={heads}: choose a divisor, or set "
                    "both d_k and d_v to the width of one head."
                )


__all__ = ["VanillaTransformerConfig"]
