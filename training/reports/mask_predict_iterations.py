"""The iterations of a mask-predict model on one text, and a table of them for the terminal."""

from dataclasses import dataclass
from typing import Any

from vanilla_transformer import Translator
from vanilla_transformer.models.mask_predict_options import MaskPredictOptions
from vanilla_transformer.models.mask_predict_search import Iteration
from vanilla_transformer.models.search_options import search_of
from vanilla_transformer.training.reports.tables import aligned


@dataclass(frozen=True)
class Frame:
    """One iteration.

    Args:
        tokens: The tokens after it, as text.
        masked: Which of them it predicted. The others are from earlier iterations.
        probabilities: The probability of each token when it was predicted.
    """

    tokens: tuple[str, ...]
    masked: tuple[bool, ...]
    probabilities: tuple[float, ...]

    @property
    def repeated(self) -> tuple[int, ...]:
        """Positions of tokens that repeat the one before: the typical mistake of predicting all tokens at once."""
        return tuple(index for index in range(1, len(self.tokens)) if self.tokens[index] == self.tokens[index - 1])


@dataclass(frozen=True)
class Iterations:
    """A text, its translation, and how it came about.

    Args:
        source: The text.
        translation: Its translation.
        score: Mean log-probability of the translation's tokens.
        frames: The iterations.
    """

    source: str
    translation: str
    score: float
    frames: tuple[Frame, ...]


def iterations_of(translator: Translator, text: str, **options: Any) -> Iterations:
    """Translates a text and keeps all iterations.

    Args:
        translator: A translator with a mask-predict model, in torch.
        text: The text.
        options: Options of the search: `iterations`, `length_candidates`, `length_ratio`, `length_alpha`.
    """
    model, tokenizer = translator.model, translator.target_tokenizer
    if search_of(model) is not MaskPredictOptions:
        raise ValueError(
            f"{type(model).__name__} writes one token after another and has no iterations: give a model of type "
            "mask_predict."
        )
    if not text.strip():
        raise ValueError("The text is empty: give a sentence.")
    history: list[Iteration] = []
    source = translator.tokenizer(text, return_tensors="pt").to(model.device)
    output = model.generate(**source, **options, history=history, return_dict_in_generate=True)
    length = int((history[-1].tokens[0] == model.config.eos_token_id).nonzero()[0])
    frames = tuple(
        Frame(
            tokens=tuple(_text_of(tokenizer, token_id) for token_id in step.tokens[0, :length].tolist()),
            masked=tuple(step.masked[0, :length].tolist()),
            probabilities=tuple(step.log_probabilities[0, :length].exp().tolist()),
        )
        for step in history
    )
    translation = tokenizer.decode(output.sequences[0], skip_special_tokens=True)
    return Iterations(text, translation, float(output.sequences_scores[0]), frames)


def _text_of(tokenizer: Any, token_id: int) -> str:
    """The text of a token. A space in front says that it starts a word; `Ġ` is how byte-level tokenizers spell it."""
    return tokenizer.convert_ids_to_tokens(token_id).replace("Ġ", "▁") if tokenizer.decode([token_id]).strip() else "▁"


def readable(iterations: Iterations) -> str:
    """A table with one line for each iteration: predicted tokens in brackets, kept tokens without."""
    length = len(iterations.frames[0].tokens)
    rows = [("iteration", "masked", *map(str, range(1, length + 1)))]
    for number, frame in enumerate(iterations.frames, start=1):
        cells = (f"[{token}]" if new else token for token, new in zip(frame.tokens, frame.masked, strict=True))
        rows.append((str(number), str(sum(frame.masked)), *cells))
    repeated = len(iterations.frames[-1].repeated)
    return (
        f"{iterations.source}\n\n{aligned(rows)}\n\n{iterations.translation}\n"
        f"mean log-probability {iterations.score:.3f}, tokens that repeat the one before: {repeated}"
    )
