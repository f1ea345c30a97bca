"""LSH attention: a token attends to those whose vectors point the same way, found by hashing.

Kitaev et al. 2020, "Reformer: The Efficient Transformer". Queries and keys are the same vectors, so the keys near a
query dominate its softmax. Random rotations put near vectors into the same bucket. Tokens are sorted by bucket, and
each chunk of the sorted tokens attends to itself and to the chunk before it. Several rounds of hashing find what one
round misses. The cost is n * log n.

Shapes: B batch, T tokens, H heads, d width of a head, R rounds of hashing, C chunks of all rounds, c tokens
in a chunk.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import pad

from .modeling_vanilla_transformer import VanillaTransformerAttention
from .window_attention import wants_maps


if TYPE_CHECKING:
    from transformers.cache_utils import Cache

    from .configuration_vanilla_transformer import VanillaTransformerConfig


# Scores of padding and of a token with itself. The second is larger: a token that sees nothing else sees itself.
OF_PADDING, OF_ITSELF = -1e9, -1e5


class LshAttention(VanillaTransformerAttention):
    """Attention within buckets of similar tokens, for the encoder. The decoder has full attention.

    Rows of the batch are hashed in groups of the same number of chunks, each as if it were alone. So the padding of a
    batch changes no row. The rotations come from `hash_seed` and the index of the layer, so the same text always gets
    the same buckets.
    """

    key_projection = "shared"
    in_decoder = "full"

    @classmethod
    def check(cls, config: "VanillaTransformerConfig") -> None:
        """Refuses other scores, and a bias of them."""
        for name in ("num_hashes", "lsh_bucket_length"):
            if getattr(config, name) < 1:
                raise ValueError(f"{name}={getattr(config, name)} must be at least 1.")
        if config.score_function != "scaled_dot":
            raise ValueError(
                f"score_function={config.score_function!r} does not fit attention_pattern='lsh', which finds keys by "
                "their angle to the query: use 'scaled_dot'."
            )
        if config.variant("position_encoding").acts_on == "scores":
            raise ValueError(
                f"position_encoding={config.position_encoding!r} needs a bias for all pairs of tokens, which "
                "attention_pattern='lsh' exists to avoid: choose another position_encoding, for example 'rotary'."
            )

    @classmethod
    def make_mask(
        cls,
        config: "VanillaTransformerConfig",
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        *,
        is_causal: bool,
        past_key_values: "Cache | None" = None,
    ) -> torch.Tensor:
        """Where there are tokens and no padding [B, T]."""
        if padding_mask is None:
            return torch.ones(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)
        return padding_mask.bool()

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        config, length = self.config, query.shape[2]
        chunk, rounds, seed = config.lsh_bucket_length, config.num_hashes, config.hash_seed + self.layer_idx
        room = -length % chunk
        query, value = (pad(states, (0, 0, 0, room)) for states in (query, value))
        is_token = pad(attention_mask, (0, room))
        places = torch.arange(1, length + room + 1, device=is_token.device)
        chunks = ((is_token * places).amax(1).clamp(min=1) + chunk - 1) // chunk  # of each row

        output = torch.zeros_like(value)  # [B, H, T, d_v]
        maps = value.new_zeros(*query.shape[:3], length + room) if wants_maps(self, kwargs) else None
        for number in chunks.unique().tolist():
            rows, width = (chunks == number).nonzero().squeeze(1), number * chunk
            part = SortedChunks(query[rows, :, :width], is_token[rows, :width], chunk, rounds, seed)
            output[rows, :, :width] = part.attend(value[rows, :, :width], config.attention_dropout, self.training)
            if maps is not None:
                maps[rows, :, :width, :width] = part.map()
        maps = None if maps is None else maps[:, :, :length, :length]
        return output[:, :, :length].transpose(1, 2).contiguous(), maps


class SortedChunks:
    """The tokens of some rows, sorted by bucket in each round of hashing and cut into chunks, with their attention.

    Args:
        vectors: Queries, which are also the keys [B, H, T, d]; T is a multiple of `chunk`.
        is_token: Which are tokens and not padding [B, T].
        chunk: Tokens in a chunk, c.
        rounds: Rounds of hashing, R. A single chunk needs none.
        seed: Of the random rotations.
    """

    def __init__(self, vectors: torch.Tensor, is_token: torch.Tensor, chunk: int, rounds: int, seed: int):
        length = vectors.shape[2]
        self.is_single = length == chunk
        if self.is_single:
            order = torch.arange(length, device=vectors.device).expand(*vectors.shape[:2], 1, -1)
        else:
            order = hash_buckets(vectors.detach(), is_token, length // chunk, chunk, rounds, seed).argsort(stable=True)
        self.order = order  # [B, H, R, T]: the tokens of each round by bucket
        self.tokens = order.flatten(2).unflatten(2, (-1, chunk))  # [B, H, C, c]
        self.key_tokens = self._with_previous(self.tokens)  # [B, H, C, 2c]
        self.weights, self.log_sums = self._weigh(vectors, is_token)

    def _weigh(self, vectors: torch.Tensor, is_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention weights [B, H, C, c, 2c] and the logarithm of each softmax's denominator [B, H, C, c]."""
        # Keys have unit length. With queries as long, a token would find little but itself.
        keys = vectors * torch.rsqrt(vectors.square().mean(-1, keepdim=True) + 1e-6) / math.sqrt(vectors.shape[-1])
        keys = self._with_previous(self._take(keys))
        scores = torch.matmul(self._take(vectors), keys.transpose(-2, -1)).float()  # [B, H, C, c, 2c]
        is_key = is_token[:, None, None, :].expand(*self.key_tokens.shape[:3], -1).gather(-1, self.key_tokens)
        scores = scores.masked_fill(~is_key[..., None, :], OF_PADDING)
        scores = scores.masked_fill(self.tokens[..., None] == self.key_tokens[..., None, :], OF_ITSELF)
        log_sums = scores.logsumexp(-1)
        return (scores - log_sums[..., None]).exp().to(vectors.dtype), log_sums

    def attend(self, values: torch.Tensor, dropout: float, training: bool) -> torch.Tensor:
        """The weighted means of the values [B, H, T, d_v] over all rounds."""
        values = self._with_previous(self._take(values))
        means = torch.matmul(nn.functional.dropout(self.weights, dropout, training), values)  # [B, H, C, c, d_v]
        return (self._unsort(means) * self._shares()[..., None].to(means.dtype)).sum(2)

    def map(self) -> torch.Tensor:
        """The weight of each token for each token, over all rounds [B, H, T, T]."""
        length = self.order.shape[-1]
        shares = self._shares().gather(-1, self.order).flatten(2).view_as(self.tokens)  # in the order of the chunks
        weights = self.weights * shares[..., None].to(self.weights.dtype)
        index = self.tokens[..., None] * length + self.key_tokens[..., None, :]
        flat = weights.new_zeros(*weights.shape[:2], length * length)
        return flat.scatter_add(-1, index.flatten(2), weights.flatten(2)).unflatten(-1, (length, length))

    def _shares(self) -> torch.Tensor:
        """The share of each round in the result [B, H, R, T]: that of its denominator in the sum of all."""
        return self._unsort(self.log_sums[..., None]).squeeze(-1).softmax(2)

    def _take(self, states: torch.Tensor) -> torch.Tensor:
        """[B, H, T, d] -> [B, H, C, c, d]."""
        places = self.tokens.flatten(2)[..., None].expand(-1, -1, -1, states.shape[-1])
        return states.gather(2, places).unflatten(2, self.tokens.shape[2:])

    def _with_previous(self, chunks: torch.Tensor) -> torch.Tensor:
        """Each chunk behind the one before it; before the first is the last."""
        return chunks if self.is_single else torch.cat([chunks.roll(1, dims=2), chunks], dim=3)

    def _unsort(self, chunks: torch.Tensor) -> torch.Tensor:
        """[B, H, C, c, d] -> [B, H, R, T, d], in the order of the text."""
        by_round = chunks.flatten(2, 3).unflatten(2, self.order.shape[2:])
        return by_round.gather(3, self.order.argsort()[..., None].expand_as(by_round))


def hash_buckets(
    vectors: torch.Tensor, is_token: torch.Tensor, chunks: int, chunk: int, rounds: int, seed: int
) -> torch.Tensor:
    """The bucket of each vector in each round [B, H, R, T]: which of some random directions is nearest to it.

    There are about two buckets for each chunk. Many buckets are the pairs of two smaller hashes, because the cost of a
    hash grows with its buckets. Padding has a bucket of its own, the last one.
    """
    exponent = (2 * chunks).bit_length() - 1
    factors = [2**exponent]
    if factors[0] > 2 * chunk:
        factors = [2 ** (exponent // 2), 2 ** (exponent - exponent // 2)]
    generator = torch.Generator(vectors.device).manual_seed(seed)
    shape = (vectors.shape[1], vectors.shape[-1], rounds, sum(factors) // 2)
    directions = torch.randn(shape, generator=generator, device=vectors.device).to(vectors.dtype)
    rotated = torch.einsum("bhtd,hdrf->bhrtf", vectors, directions)
    buckets, product = torch.zeros((), dtype=torch.long, device=vectors.device), 1
    for part, factor in zip(rotated.split([factor // 2 for factor in factors], dim=-1), factors, strict=True):
        buckets = buckets + product * torch.cat([part, -part], dim=-1).argmax(-1)
        product *= factor
    return buckets.masked_fill(~is_token[:, None, None, :], product)
