"""A model that decodes in CTranslate2, a C++ engine, for a `Translator` in place of the torch model.

    translator = Translator.from_pretrained("runs/demo/model", backend="ctranslate2", quantization="int8")

The model is converted once; the result stays beside its files, in the hidden folder `.ctranslate2`, and is made anew
when they change. From then on no torch model is loaded at all.

The engine's beam search ends with the first `num_beams` finished translations, as `early_stopping=True` does. It is
asked for all of them, and the best by the same length penalty wins here too: so scores are the torch model's, and
translations too but for a few that a longer search would have bettered.
"""

import json
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerateBeamEncoderDecoderOutput
from transformers.utils import cached_file, logging

from ..atomic_writes import replacing
from ..beam_search import PENALTIES
from ..converters.ctranslate2 import export, require_ctranslate2, require_quantization
from ..converters.marian import from_marian, load


logger = logging.get_logger(__name__)

KEPT_IN, MADE_FROM = ".ctranslate2", "made_from.json"
FORMAT = 1  # of what is kept; another number has everything converted anew
# What the engine takes under another name. Its means against repetition are not the library's: they change logits, not
# log-probabilities, and so the scores of everything else.
NAMES = {
    "min_new_tokens": "min_decoding_length",
    "temperature": "sampling_temperature",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
}
OTHERS = ("num_beams", "length_penalty", "penalty", "max_extra_tokens", "max_new_tokens", "early_stopping")
# What `Translator` passes to any model.
FROM_TRANSLATOR = (
    *("return_dict_in_generate", "use_cache", "custom_generate", "num_return_sequences", "do_sample", "alpha"),
)
# Settings that a model may bring along and that would change its translations.
OF_MODELS = (
    *("repetition_penalty", "no_repeat_ngram_size", "encoder_repetition_penalty", "encoder_no_repeat_ngram_size"),
    *("sequence_bias", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "min_length"),
    *("exponential_decay_length_penalty", "min_new_tokens", "temperature", "top_k", "top_p"),
)


class CTranslate2Model:
    """What `Translator` asks of a model, answered by the engine.

    Args:
        folder: Where the converted model is.
        config: The model's configuration.
        generation_config: Its settings for decoding.
        device: Where to run: `cpu` with as many threads as torch has, or a GPU.
    """

    def __init__(
        self,
        folder: str | Path,
        config: PreTrainedConfig,
        generation_config: GenerationConfig,
        device: torch.device | str = "cpu",
    ):
        engine, place = require_ctranslate2(), torch.device(device)
        _warn_of_settings(generation_config)
        self.config, self.generation_config = config, generation_config
        self.device = torch.device("cpu")  # where ids come from and go to
        self.positions = config.max_position_embeddings
        self.translator = engine.Translator(
            str(folder), device=place.type, device_index=place.index or 0, intra_threads=torch.get_num_threads()
        )
        pieces = {path.name.split("_")[0]: json.loads(path.read_text("utf-8")) for path in Path(folder).glob("*_voc*")}
        self.source_pieces = pieces.get("source") or pieces["shared"]
        self.target_pieces = pieces.get("target") or pieces["shared"]
        self.target_ids = {piece: token_id for token_id, piece in enumerate(self.target_pieces)}

    @classmethod
    def convert(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        quantization: str = "float32",
        device: torch.device | str | None = None,
    ) -> "CTranslate2Model":
        """A model from memory, which is converted for this once and runs where it is, unless told otherwise."""
        with tempfile.TemporaryDirectory() as folder:
            export(_expressed(model), tokenizer, folder, target_tokenizer=target_tokenizer, quantization=quantization)
            return cls(folder, model.config, model.generation_config, device or model.device)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        quantization: str = "float32",
        device: torch.device | str = "cpu",
        **options,
    ) -> "CTranslate2Model":
        """A model from a folder or the Hub: the conversion that is kept beside it, or a new one.

        Args:
            name_or_path: Folder, or name on the Hub: this model or MarianMT.
            tokenizer: Its tokenizer, or the source's.
            target_tokenizer: The target's, for separate vocabularies.
            quantization: Type of the weights.
            device: Where to run.
            options: Those of `from_pretrained` that say where a model of the Hub is.
        """
        require_ctranslate2()
        require_quantization(quantization)
        config = AutoConfig.from_pretrained(name_or_path, **options)
        _require_kind(config)
        try:
            generation_config = GenerationConfig.from_pretrained(name_or_path, **options)
        except OSError:  # older models have none
            generation_config = GenerationConfig.from_model_config(config)
        home = Path(cached_file(name_or_path, "config.json", **options)).parent
        kept = home / KEPT_IN / quantization
        if not _is_made_from(kept, home):
            before = _files_of(home)
            model = load(name_or_path, config.model_type, **options)
            try:
                with replacing(kept) as folder:
                    export(
                        _expressed(model),
                        tokenizer,
                        folder,
                        target_tokenizer=target_tokenizer,
                        quantization=quantization,
                    )
                    after = _files_of(home)
                    if before.items() <= after.items():  # else files changed meanwhile; new ones came from the Hub
                        (folder / MADE_FROM).write_text(json.dumps(after, indent=2), encoding="utf-8")
            except OSError as error:
                if not _is_made_from(kept, home):  # nor has another process written it
                    logger.warning(f"{kept} can't be written ({error}): the model is converted at each start.")
                    return cls.convert(model, tokenizer, target_tokenizer, quantization=quantization, device=device)
        return cls(kept, config, generation_config, device)

    def eval(self) -> "CTranslate2Model":
        return self

    def generate(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.LongTensor,
        decoder_input_ids: torch.LongTensor,
        *,
        num_return_sequences: int = 1,
        num_beams: int = 1,
        do_sample: bool = False,
        length_penalty: float = 1.0,
        alpha: float | None = None,
        penalty: str = "gnmt",
        max_extra_tokens: int = 50,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        **options,
    ) -> GenerateBeamEncoderDecoderOutput:
        """What the torch model's `generate` returns for the same arguments, as far as `Translator` reads it.

        No seed reaches the source that samples come from.
        """
        if penalty not in PENALTIES:
            raise ValueError(f"penalty={penalty!r} is unknown: choose one of {', '.join(PENALTIES)}.")
        given = decoder_input_ids.shape[1] - 1  # beyond the decoder's first token
        most = max(max_length - given - 1, 1) if max_new_tokens is None else max_new_tokens
        if given + most > self.positions:
            raise ValueError(
                f"CTranslate2 has {self.positions} positions for this model, too few for {given} tokens of a prefix "
                f"and {most} new ones: shorten them, or leave out backend."
            )
        rows = zip(input_ids.tolist(), attention_mask.tolist(), strict=True)
        sources = [[self.source_pieces[token] for token, real in zip(*row, strict=True) if real] for row in rows]
        prefixes = [[self.target_pieces[token] for token in row[1:]] for row in decoder_input_ids.tolist()]
        limits = [most if do_sample else min(most, len(source) + max_extra_tokens) for source in sources]
        options = {
            "beam_size": num_beams,
            "num_hypotheses": max(num_beams, num_return_sequences),
            **_renamed({"top_k": 50, **options} if do_sample else options),  # the library's default
        }
        if "min_decoding_length" in options:
            options["min_decoding_length"] += given
        found = [None] * len(sources)
        # The engine has one limit for a batch: those that went beyond their own are translated once more.
        self._search(found, range(len(sources)), sources, prefixes, given + max(limits), options)
        for limit in sorted(set(limits)):
            longer = [
                row for row, result in enumerate(found) if limits[row] == limit and _longest(result) > given + limit
            ]
            self._search(found, longer, sources, prefixes, given + limit, options)

        sequences, scores = [], []
        for start, result in zip(decoder_input_ids[:, :1].tolist(), found, strict=True):
            ranked = []
            for pieces, total in zip(result.hypotheses, result.scores, strict=True):
                length = max(len(pieces) - given, 1)
                score = total / PENALTIES[penalty](length) ** (length_penalty if alpha is None else alpha)
                ranked.append((score, [*start, *(self.target_ids[piece] for piece in pieces)]))
            ranked.sort(key=lambda each: -each[0])
            ranked += [(-torch.inf, start)] * num_return_sequences  # where there are fewer
            scores += [score for score, _ in ranked[:num_return_sequences]]
            sequences += [ids for _, ids in ranked[:num_return_sequences]]
        longest = max(map(len, sequences))
        padded = [[*ids, *[self.config.pad_token_id] * (longest - len(ids))] for ids in sequences]
        return GenerateBeamEncoderDecoderOutput(
            sequences=torch.tensor(padded), sequences_scores=None if do_sample else torch.tensor(scores)
        )

    def _search(self, found: list, rows, sources: list, prefixes: list, length: int, options: dict) -> None:
        """Puts what the engine finds for some of the sources in its place."""
        if not rows:
            return
        results = self.translator.translate_batch(
            [sources[row] for row in rows],
            [prefixes[row] for row in rows] if any(prefixes) else None,
            length_penalty=0,  # log-probabilities themselves: the penalty comes later
            max_decoding_length=length,
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            **{"min_decoding_length": 0, **options},
        )
        for row, result in zip(rows, results, strict=True):
            found[row] = result


def _longest(result) -> int:
    return max(map(len, result.hypotheses))


def require_known(options: dict) -> None:
    """Refuses options of `generate` that the engine has no equal of."""
    if options.get("early_stopping", True) is not True:
        raise ValueError(
            f"early_stopping={options['early_stopping']!r}: CTranslate2 always ends with the first num_beams finished "
            "translations. Leave it out, or leave out backend."
        )
    for name in options:
        if name not in (*NAMES, *OTHERS, *FROM_TRANSLATOR):
            raise ValueError(
                f"CTranslate2 lacks the option {name}: leave it out, or leave out backend. It has "
                f"{', '.join((*OTHERS, *NAMES))}."
            )


def _renamed(options: dict) -> dict:
    """The engine's names of options of `generate`."""
    require_known(options)
    return {NAMES[name]: value for name, value in options.items() if name in NAMES}


def _warn_of_settings(config: GenerationConfig) -> None:
    """Says which of a model's own settings for decoding have no effect here."""
    settings = config.to_diff_dict()
    lacking = [name for name in OF_MODELS if settings.get(name) is not None]
    if any(len(ids) > 1 for ids in settings.get("bad_words_ids") or []):
        lacking.append("bad_words_ids of several tokens")
    if lacking:
        logger.warning(
            f"CTranslate2 decodes without what the model's generation_config sets: {', '.join(lacking)}. Leave out "
            "backend to decode with it."
        )


def _require_kind(config: PreTrainedConfig) -> None:
    if config.model_type not in ("vanilla_transformer", "marian"):
        raise ValueError(
            f"backend='ctranslate2' takes this package's models and MarianMT, not a model of type "
            f"{config.model_type!r}: leave out backend."
        )


def _expressed(model: PreTrainedModel) -> PreTrainedModel:
    """The model as this package's own, which is what can be converted."""
    _require_kind(model.config)
    return from_marian(model) if model.config.model_type == "marian" else model


# --- what is kept beside a model ---


def _files_of(home: Path) -> dict:
    """What a conversion depends on: the model's files, by size and time, and the converters."""
    files = sorted(path for pattern in ("*.json", "*.safetensors", "*.bin", "*.spm") for path in home.glob(pattern))
    files += sorted((home / "target").glob("*.json"))
    stats = [(path.relative_to(home).as_posix(), path.stat()) for path in files]
    converters = {"format": FORMAT, "ctranslate2": require_ctranslate2().__version__}
    return {**converters, **{name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats}}


def _is_made_from(kept: Path, home: Path) -> bool:
    try:
        return json.loads((kept / MADE_FROM).read_text(encoding="utf-8")) == _files_of(home)
    except (OSError, ValueError):  # there is none, or none that can be read
        return False
