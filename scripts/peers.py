"""What is measured beside this model: the same network in other hands, with the same weights where it has them."""

import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.convert_marian import config_to_marian, to_marian
from vanilla_transformer.loss import IGNORED_LABEL, LabelSmoothedCrossEntropy
from vanilla_transformer.modeling_vanilla_transformer import shift_right
from vanilla_transformer.positions import SinusoidalHalvesPositions


Batch = dict[str, torch.Tensor]
Loss = Callable[[Batch], torch.Tensor]
SMOOTHING = 0.1


def configuration(preset: str, vocab_size: int, **fields) -> VanillaTransformerConfig:
    """A preset that MarianMT can express as well."""
    common = {"position_encoding": "sinusoidal_halves", "label_smoothing": SMOOTHING}
    return VanillaTransformerConfig.from_preset(preset, vocab_size=vocab_size, **{**common, **fields})


# --- training ---


@dataclass
class Learner:
    """A model, its loss and its optimizer: one call is one update.

    Args:
        model: The model.
        loss: The smoothed loss of a batch.
        dtype: Type of the arithmetic; the weights stay in float32.
    """

    model: nn.Module
    loss: Loss
    dtype: torch.dtype = torch.float32

    def __post_init__(self):
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def __call__(self, batch: Batch) -> torch.Tensor:
        # Nothing here waits for a GPU: whoever measures does.
        with torch.autocast(batch["input_ids"].device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def make_learner(
    name: str,
    config: VanillaTransformerConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
    compile: bool = False,
) -> Learner:
    """The learner of that name among `MODELS`."""
    model, loss = MODELS[name](config)
    model.to(device)
    if compile:
        model.compile()
    return Learner(model, loss, getattr(torch, dtype))


def our_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    model = VanillaTransformerForConditionalGeneration(config)
    criterion = LabelSmoothedCrossEntropy(SMOOTHING)
    return model, lambda batch: model(**batch, criterion=criterion).loss


def marian_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """MarianMT of the library with torch's own smoothed loss, and without the cache that only decoding needs."""
    model = to_marian(VanillaTransformerForConditionalGeneration(config))
    return model, lambda batch: _loss_of_logits(model(**_fed(batch, config), use_cache=False).logits, batch["labels"])


def torch_model(config: VanillaTransformerConfig) -> tuple[nn.Module, Loss]:
    """`torch.nn.Transformer` between tied embeddings."""
    model = TorchTransformer(config)
    return model, lambda batch: _loss_of_logits(model(**_fed(batch, config)), batch["labels"])


MODELS = {"vanilla_transformer": our_model, "MarianMT": marian_model, "torch.nn.Transformer": torch_model}


def random_batch(tokens: int, length: int, vocab_size: int, device: torch.device) -> Batch:
    """A batch of at most so many random tokens a side in sentences of one length, without padding."""
    ids = torch.randint(4, vocab_size, (tokens // length, length), device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


class TorchTransformer(nn.Module):
    """torch's layers in the paper's arrangement."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = SinusoidalHalvesPositions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            d_model=config.d_model,
            nhead=config.encoder_attention_heads,
            num_encoder_layers=config.encoder_layers,
            num_decoder_layers=config.decoder_layers,
            dim_feedforward=config.encoder_ffn_dim,
            dropout=config.dropout,
            batch_first=True,
        )
        # Where the paper drops nothing: attention weights, and between the layers of the feed-forward.
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0
        for layer in self.transformer.decoder.layers:
            layer.multihead_attn.dropout = 0.0
        self.scale = config.d_model**0.5

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor):
        hidden = attention_mask == 0
        length = decoder_input_ids.shape[1]
        states = self.transformer(
            self._embed(input_ids),
            self._embed(decoder_input_ids),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.positions(ids.shape[1], 0, ids.device).float()
        return self.dropout(self.embedding(ids) * self.scale + positions)


def _fed(batch: Batch, config: VanillaTransformerConfig) -> Batch:
    shifted = shift_right(batch["labels"], config.decoder_start_token_id, config.pad_token_id)
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "decoder_input_ids": shifted,
    }


def _loss_of_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    flat = logits.flatten(0, 1), labels.flatten()
    return F.cross_entropy(*flat, ignore_index=IGNORED_LABEL, label_smoothing=SMOOTHING)


# --- ONNX Runtime ---


class OnnxModel(PreTrainedModel, GenerationMixin):
    """This model as graphs that ONNX Runtime runs on the CPU; the search and its cache are `generate`'s."""

    main_input_name = "input_ids"
    device, dtype = torch.device("cpu"), torch.float32  # it has no parameter that could tell

    def __init__(self, model: VanillaTransformerForConditionalGeneration):
        super().__init__(config_to_marian(model.config))  # a type for which `beam_search` has no short cut in torch
        self.generation_config = model.generation_config
        batch, source, target = (torch.export.Dim(name) for name in ("batch", "source", "target"))
        of_texts, of_past, of_source = {0: batch, 1: source}, {0: batch, 2: target}, {0: batch, 2: source}
        # Examples of all inputs, each a tensor of its own: one that came twice would be one input.
        ids, mask, token = (torch.ones(3, length, dtype=torch.long) for length in (7, 7, 1))
        states, past, keys = torch.zeros(3, 7, model.config.d_model), self.no_keys(3, 5), self.no_keys(3, 7)
        self.encoder = OnnxEncoder(_session(model, _encode, (ids, mask), (of_texts, of_texts)))
        self.source_keys = _session(model, _source_keys, (states,), (of_texts,))
        shapes = ({0: batch}, of_texts, [of_past] * len(past), [of_source] * len(keys))
        self.step = _session(model, _decode, (token, mask, past, keys), shapes)

    def no_keys(self, rows: int, length: int = 0) -> list[torch.Tensor]:
        """Zeros in place of keys and values [B, H, T, d] of each layer; by default of no token at all."""
        heads, layers = self.config.decoder_attention_heads, self.config.decoder_layers
        return [torch.zeros(rows, heads, length, self.config.d_model // heads) for _ in range(2 * layers)]

    def get_encoder(self, *args, **kwargs) -> nn.Module:
        return self.encoder

    def forward(
        self,
        encoder_outputs: BaseModelOutput,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        past_key_values: EncoderDecoderCache,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        own, source = past_key_values.self_attention_cache, past_key_values.cross_attention_cache
        if not source.get_seq_length():
            _fill(source, _run(self.source_keys, encoder_outputs.last_hidden_state))
        past = _tensors(own) or self.no_keys(len(decoder_input_ids))
        logits, *new = _run(self.step, decoder_input_ids, attention_mask, *past, *_tensors(source))
        _fill(own, new)
        return Seq2SeqLMOutput(logits=logits, past_key_values=past_key_values)


class OnnxEncoder(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, session):
        super().__init__()
        self.session = session

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=_run(self.session, input_ids, attention_mask)[0])


def _encode(model, input_ids, attention_mask):
    return model.model.encoder(input_ids, attention_mask).last_hidden_state


def _source_keys(model, states):
    """Keys and values of the source in each layer of the decoder, which are the same at each step."""
    cache = DynamicCache()
    for place, layer in enumerate(model.model.decoder.layers):
        cache.update(*layer.encoder_attn._keys_and_values(states, states, None), place)
    return tuple(_tensors(cache))


def _decode(model, token, attention_mask, before, source):
    """Logits of one token more, and its keys and values in each layer."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    _fill(cache.self_attention_cache, before)
    _fill(cache.cross_attention_cache, source)
    cache.is_updated = dict.fromkeys(range(len(model.model.decoder.layers)), True)
    states = attention_mask[..., None].expand(-1, -1, model.config.d_model).to(model.dtype)  # only its shape is read
    output = model.model.decoder(
        token, encoder_hidden_states=states, encoder_attention_mask=attention_mask, past_key_values=cache
    )
    return model.lm_head(output.last_hidden_state), *(each[:, :, -1:] for each in _tensors(cache.self_attention_cache))


class _Graph(nn.Module):
    """A function of a model, in the form that can be exported."""

    def __init__(self, model: nn.Module, function: Callable):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs):
        return self.function(self.model, *inputs)


def _session(model: nn.Module, function: Callable, inputs: tuple, shapes: tuple):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of what is none of ours, as below
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = f"{folder}/graph.onnx"
        graph = _Graph(model, function).eval()
        torch.onnx.export(graph, inputs, file, dynamo=True, dynamic_shapes=(shapes,), verbose=False)
        return onnxruntime.InferenceSession(file, options)


def _run(session, *tensors: torch.Tensor) -> list[torch.Tensor]:
    names = (each.name for each in session.get_inputs())
    fed = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return [torch.from_numpy(array) for array in session.run(None, fed)]


def _tensors(cache: DynamicCache) -> list[torch.Tensor]:
    """Keys and values by turns, layer by layer."""
    return [tensor for layer in cache.layers if layer.is_initialized for tensor in (layer.keys, layer.values)]


def _fill(cache: DynamicCache, tensors: list[torch.Tensor]) -> None:
    for place, pair in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        cache.update(*pair, place)


# --- how fast the machine is ---


def products_of(config: VanillaTransformerConfig, batch: Batch) -> float:
    """Floating-point operations that an update on the real tokens of a batch can't do without: those of its matrix
    products, forward and, twice as many, backward."""
    mask, real = batch["attention_mask"], batch["labels"] != IGNORED_LABEL
    source_lengths, target_lengths = mask.sum(1).double(), real.sum(1).double()
    source, target = source_lengths.sum().item(), target_lengths.sum().item()
    d, ff = config.d_model, config.encoder_ffn_dim
    encoder = source * (4 * d * d + 2 * d * ff) + 2 * d * (source_lengths**2).sum().item()
    decoder = target * (6 * d * d + 2 * d * ff) + source * 2 * d * d
    decoder += 2 * d * ((target_lengths**2).sum() + (source_lengths * target_lengths).sum()).item()
    output = target * d * config.vocab_size
    return 3 * 2 * (config.encoder_layers * encoder + config.decoder_layers * decoder + output)


class LargeProducts:
    """Matrix products large enough to show the peak of a machine, a fraction of a second of them a call."""

    def __init__(self, device: torch.device, dtype: torch.dtype):
        width, self.number = (8192, 20) if device.type == "cuda" else (1024, 10)
        self.left, self.right = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
        self.operations = self.number * 2 * width**3

    def __call__(self) -> None:
        for _ in range(self.number):
            self.left @ self.right
