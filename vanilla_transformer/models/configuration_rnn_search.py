"""The configuration of RNNsearch; its defaults are the model of Bahdanau et al. 2015."""

from typing import TYPE_CHECKING, Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .shared_configuration import SharedConfiguration


if TYPE_CHECKING:  # `save_pretrained` reads this line to find the model's code, and Python does not run it
    from .modeling_rnn_search import RnnSearchForConditionalGeneration  # noqa: F401


@strict
class RnnSearchConfig(SharedConfiguration, PreTrainedConfig):
    r"""
    Describes an [`RnnSearchForConditionalGeneration`], a recurrent encoder-decoder. With no arguments it is RNNsearch
    ([Bahdanau et al. 2015](https://arxiv.org/abs/1409.0473), appendix A.2).

    Args:
        vocab_size (`int`, defaults to 30000):
            Tokens in the source vocabulary, and in the target vocabulary unless `target_vocab_size` is set.
        target_vocab_size (`int`, *optional*):
            Tokens in a separate target vocabulary. `None`: source and target share one vocabulary.
        embedding_size (`int`, defaults to 620):
            Width of the token embeddings, m in the paper.
        hidden_size (`int`, defaults to 1000):
            Width of the decoder's state and of each direction of the encoder, n in the paper.
        attention (`"additive"` or `"none"`, defaults to `"additive"`):
            What the decoder sees of the source. `"additive"`: a weighted mean of all encoder states, new at each step
            (Bahdanau et al. 2015). `"none"`: one fixed vector, the encoder's last states (Cho et al. 2014).
        attention_size (`int`, defaults to 1000):
            Hidden units of the additive attention, n' in the paper.
        readout (`"maxout"` or `"linear"`, defaults to `"maxout"`):
            The layer below the output layer. `"maxout"`: the larger of two units (the paper). `"linear"`: one unit.
        readout_size (`int`, defaults to 500):
            Width of that layer, l in the paper. Tied embeddings need the `embedding_size`.
        dropout (`float`, defaults to 0.0):
            Dropout on the embeddings, on the encoder's states and on the read-out layer. The paper has none.
        label_smoothing (`float`, defaults to 0.0):
            Probability that training takes from the gold token. The training loop reads it. The paper has none.
        share_encoder_decoder_embeddings (`bool`, *optional*):
            Whether source and target tokens share one embedding matrix. `None`: yes if it is possible, that is with
            one vocabulary and `tie_word_embeddings`.
        tie_word_embeddings (`bool`, defaults to `False`):
            Whether the output layer is the transposed target embedding. `False`, as in the paper, unties everything,
            source and target embeddings included.
        output_bias (`bool`, defaults to `False`):
            Whether the output layer has a bias. The paper's equations have none.
        use_cache (`bool`, defaults to `True`):
            Whether decoding keeps the decoder's state.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id (`int`, defaults to 0, 1, 2, 1):
            The special tokens.

    ```python
    >>> from vanilla_transformer import RnnSearchConfig, RnnSearchForConditionalGeneration

    >>> model = RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=100, hidden_size=32, attention_size=32))
    >>> model(**model.dummy_inputs).logits.shape
    torch.Size([2, 4, 100])
    ```"""

    model_type = "rnn_search"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {"decoder_vocab_size": "target_vocab_size"}

    vocab_size: int = 30000
    target_vocab_size: int | None = None
    embedding_size: int = 620
    hidden_size: int = 1000
    attention: Literal["additive", "none"] = "additive"
    attention_size: int = 1000
    readout: Literal["maxout", "linear"] = "maxout"
    readout_size: int = 500
    dropout: float | int = 0.0
    label_smoothing: float | int = 0.0
    share_encoder_decoder_embeddings: bool | None = None
    tie_word_embeddings: bool = False
    output_bias: bool = False
    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        self.refuse_misspelt(kwargs)
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Checks each field and how they fit together. Runs whenever a config is made."""
        self.require_positive("vocab_size", "target_vocab_size", "embedding_size", "hidden_size")
        self.require_positive("attention_size", "readout_size")
        self.require_probabilities("dropout", "label_smoothing")
        self.require_possible_sharing()
        self.require_ids_in_vocabulary()
        if self.tie_word_embeddings and self.readout_size != self.embedding_size:
            raise ValueError(
                f"tie_word_embeddings=True makes the output layer as wide as the embeddings: set readout_size="
                f"{self.readout_size} to embedding_size={self.embedding_size}."
            )


__all__ = ["RnnSearchConfig"]
