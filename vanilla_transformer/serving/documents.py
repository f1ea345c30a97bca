"""Texts as sentences, and back: what is between the sentences stays as it was."""

from vanilla_transformer.translation.long_texts import Pieces

from .served_models import ModelTranslator


async def translate_text(text: str, translator: ModelTranslator) -> list[str]:
    """Translates plain text sentence by sentence. Line breaks and the white space between sentences stay.

    Returns:
        `n_best` texts: the first is made of the best translation of each sentence, the second of the second best.
    """
    pieces = Pieces.of(text, translator.language)
    ranked = await translator.translate(pieces.texts)
    return [
        pieces.join([translations[rank] for translations in ranked], translator.target_language)
        for rank in range(translator.n_best)
    ]
