"""A model that decodes in CTranslate2, a C++ engine, for a `Translator` in place of the torch model.

    translator = Translator.from_pretrained("runs/demo/model", backend="ctranslate2", quantization="int8")

The model is converted once; the result stays beside its files, in the hidden folder `.ctranslate2`, and is made anew
when they change. From then on no torch model is loaded at all.

The engine's beam search ends with the first `num_beams` finished translations, as `early_stopping=True` does. It is
asked for all of them, and the best by the same length penalty wins here too: so scores are the torch model's, and
translations too but for a few that a longer search would have bettered.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import GenerateBeamEncoderDecoderOutput
from transformers.utils import cached_file, logging

from .beam_search import PENALTIES
from .convert_marian import from_marian, load
from .export_ctranslate2 import export, require_ctranslate2, require_quantization


logger = logging.get_logger(__name__)

KEPT_IN, MADE_FROM = ".ctranslate2", "made_from.json"
# What the engine takes under another name. Its means against repetition are not the library's: they change logits, not
# log-probabilities, and so the scores of everything else.
NAMES = {
    "min_new_tokens": "min_decoding_length",
    "temperature": "sampling_temperature",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
}


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
        try:
            generation_config = GenerationConfig.from_pretrained(name_or_path, **options)
        except OSError:  # older models have none
            generation_config = GenerationConfig.from_model_config(config)
        home = Path(cached_file(name_or_path, "config.json", **options)).parent
        kept = home / KEPT_IN / quantization
        if _is_made_from(kept, home):
            return cls(kept, config, generation_config, device)
        model = _expressed(load(name_or_path, config.model_type, **options))
        try:
            with _replacing(kept) as folder:
                export(model, tokenizer, folder, target_tokenizer=target_tokenizer, quantization=quantization)
                (folder / MADE_FROM).write_text(json.dumps(_files_of(home), indent=2), encoding="utf-8")
        except OSError as error:
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
        penalty: str = "gnmt",
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        **options,
    ) -> GenerateBeamEncoderDecoderOutput:
        """What the torch model's `generate` returns for the same arguments, as far as `Translator` reads it.

        The longest translation is the same for the whole batch, and no seed reaches the source that samples come from.
        """
        given = decoder_input_ids.shape[1]
        if max_new_tokens is None:
            max_new_tokens = max(max_length - given, 1)
        if penalty not in PENALTIES:
            raise ValueError(f"penalty={penalty!r} is unknown: choose one of {', '.join(PENALTIES)}.")
        prefixes = [[self.target_pieces[token] for token in row[1:]] for row in decoder_input_ids.tolist()]
        if do_sample:
            options = {"top_k": 50, **options}  # the library's default
        results = self.translator.translate_batch(
            [self._source(row, mask) for row, mask in zip(input_ids.tolist(), attention_mask.tolist(), strict=True)],
            prefixes if given > 1 else None,
            beam_size=num_beams,
            num_hypotheses=max(num_beams, num_return_sequences),
            length_penalty=0,  # log-probabilities themselves: the penalty comes here
            max_decoding_length=max_new_tokens + given - 1,
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            **{"min_decoding_length": 0, **_renamed(options)},
        )
        rows, scores = [], []
        for start, result in zip(decoder_input_ids[:, :1].tolist(), results, strict=True):
            found = []
            for pieces, total in zip(result.hypotheses, result.scores, strict=True):
                length = max(len(pieces) - given + 1, 1)
                score = total / PENALTIES[penalty](length) ** length_penalty
                found.append((score, [*start, *(self.target_ids[piece] for piece in pieces)]))
            found.sort(key=lambda each: -each[0])
            found += [(-torch.inf, start)] * num_return_sequences  # where there are fewer
            rows += [row for _, row in found[:num_return_sequences]]
            scores += [score for score, _ in found[:num_return_sequences]]
        longest = max(map(len, rows))
        padded = [[*row, *[self.config.pad_token_id] * (longest - len(row))] for row in rows]
        return GenerateBeamEncoderDecoderOutput(
            sequences=torch.tensor(padded), sequences_scores=None if do_sample else torch.tensor(scores)
        )

    def _source(self, ids: list[int], mask: list[int]) -> list[str]:
        return [self.source_pieces[token] for token, real in zip(ids, mask, strict=True) if real]


def _renamed(options: dict) -> dict:
    """The engine's names of options of `generate`. Those it has no equal of are refused."""
    of_the_library = {"return_dict_in_generate", "use_cache", "custom_generate", "max_extra_tokens"}
    options = {name: value for name, value in options.items() if name not in of_the_library}
    if options.pop("early_stopping", True) is not True:
        raise ValueError(
            "early_stopping: CTranslate2 always ends with the first num_beams finished translations. Leave it out, "
            "or leave out backend."
        )
    for name in options:
        if name not in NAMES:
            raise ValueError(
                f"CTranslate2 lacks the option {name}: leave it out, or leave out backend. It has "
                f"num_beams, length_penalty, penalty, max_extra_tokens, max_new_tokens, early_stopping, "
                f"{', '.join(NAMES)}."
            )
    return {NAMES[name]: value for name, value in options.items()}


def _expressed(model: PreTrainedModel) -> PreTrainedModel:
    """The model as this package's own, which is what can be converted."""
    kind = model.config.model_type
    if kind not in ("vanilla_transformer", "marian"):
        raise ValueError(
            f"backend='ctranslate2' takes this package's models and MarianMT, not a model of type {kind!r}: leave out "
            "backend."
        )
    return from_marian(model) if kind == "marian" else model


# --- what is kept beside a model ---


def _files_of(home: Path) -> dict:
    """What a conversion depends on: the model's files, by size and time, and the converters."""
    files = sorted(path for pattern in ("*.json", "*.safetensors", "*.bin", "*.spm") for path in home.glob(pattern))
    files += sorted((home / "target").glob("*.json"))
    stats = [(path.relative_to(home).as_posix(), path.stat()) for path in files]
    return {
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats},
        "versions": {name: version(name) for name in ("vanilla-transformer", "ctranslate2")},
    }


@contextmanager
def _replacing(kept: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of another once it is whole."""
    kept.parent.mkdir(exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{kept.name}-", dir=kept.parent))
    try:
        yield new
        shutil.rmtree(kept, ignore_errors=True)
        new.replace(kept)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _is_made_from(kept: Path, home: Path) -> bool:
    made_from = kept / MADE_FROM
    return made_from.is_file() and json.loads(made_from.read_text(encoding="utf-8")) == _files_of(home)
