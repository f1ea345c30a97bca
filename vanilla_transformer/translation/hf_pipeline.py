"""The pipeline task `vanilla-translation`: `Translator` behind the library's `pipeline`.

pipe = pipeline("vanilla-translation", model="runs/demo/model")
pipe("Do you know where he works?")   # {'translation_text': 'Weißt du, wo er arbeitet?', ...}
pipe("Guten Tag", src_lang="de", tgt_lang="fr")   # a model with several directions
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from transformers import Pipeline, PreTrainedTokenizerBase

from vanilla_transformer.hub.loading import load_tokenizers

from .translator import Hypothesis, Translator


class TranslationPipeline(Pipeline):
    """`pipeline("vanilla-translation", model=...)`: texts in, `{"translation_text": ...}` out.

    The output is that of the library's translation pipeline, which transformers 5 removed. Options of
    `Translator.translate` go into the call. With `n_best` above 1 there is a list for each text. `Translator` makes
    batches by tokens, so the library's `batch_size` and `num_workers` are accepted and have no effect.

    Texts are split into sentences if sentencex is installed and the model records its languages, except with options
    for single sentences (`n_best`, `prefix`, `attention`). `split_sentences=False` turns it off.

    `src_lang` and `tgt_lang` are the languages of a model with several, as in the library's pipeline. Without
    `src_lang` the text decides, and the output has what was found. A text in `tgt_lang` is marked as `unchanged`.

    Args:
        target_tokenizer: The target's tokenizer, for a model object with separate vocabularies. By default it is
            loaded from where the model came from.
    """

    _load_processor = _load_image_processor = _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args: Any, target_tokenizer: PreTrainedTokenizerBase | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if getattr(self.model.config, "target_vocab_size", None) is not None and target_tokenizer is None:
            if not self.model.name_or_path:
                raise ValueError("The model has a separate target vocabulary: give its target_tokenizer too.")
            commit = getattr(self.model.config, "_commit_hash", None)
            options = {"revision": commit} if commit else {}
            target_tokenizer = load_tokenizers(self.model.name_or_path, **options)[1]
        self.translator = Translator(self.model, self.tokenizer, target_tokenizer)
        if find_spec("sentencex") is not None:
            self.translator.split_sentences = self.translator.languages.source or len(self.translator.directions) > 1

    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int | None = None,
        num_workers: int | None = None,
        **options: Any,
    ) -> Any:
        options = _renamed({**self._forward_params, **options})
        if any(options.get(name) for name in ("prefix", "attention")) or options.get("n_best", 1) != 1:
            options.setdefault("split_sentences", False)
        if isinstance(texts, str):
            return self.run_single(texts, {}, options, {})
        outputs = (
            self.postprocess({"hypotheses": hypotheses}) for hypotheses in self.translator.translate(texts, **options)
        )
        return list(outputs) if isinstance(texts, list | tuple) else outputs  # an iterator gives an iterator

    def _sanitize_parameters(self, **options: Any) -> tuple[dict, dict, dict]:
        return {}, options, {}

    def preprocess(self, text: str) -> dict[str, str]:
        return {"text": text}

    def _forward(self, inputs: dict[str, str], **options: Any) -> dict[str, list[Hypothesis]]:
        return {"hypotheses": next(self.translator.translate([inputs["text"]], **options))}

    def postprocess(self, outputs: dict[str, list[Hypothesis]]) -> list[dict[str, Any]] | dict[str, Any]:
        results: list[dict[str, Any]] = [
            {"translation_text": each.text, "score": each.score}
            | ({"not_copied": each.not_copied} if each.not_copied else {})
            | ({"src_lang": each.detected.language} if each.detected else {})
            | ({"unchanged": True} if each.unchanged else {})
            for each in outputs["hypotheses"]
        ]
        return results if len(results) > 1 else results[0]


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options of the library's pipeline under the names of `Translator.translate`."""
    names = {"src_lang": "source_lang", "tgt_lang": "target_lang"}
    return {names.get(name, name): value for name, value in options.items()}
