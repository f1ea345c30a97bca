"""The options of mask-predict."""

from dataclasses import dataclass
from typing import ClassVar

from .search_options import MOST, SearchOptions, between, option, whole


@dataclass(frozen=True)
class MaskPredictOptions(SearchOptions):
    """Options of `mask_predict_search`, with the values of the paper's best results (Ghazvininejad et al. 2019)."""

    name: ClassVar[str] = "mask_predict"
    breadth: ClassVar[str] = "length_candidates"

    iterations: int = option(10, "For mask_predict models: passes of the decoder.", *whole(1, MOST))
    length_candidates: int = option(5, "For mask_predict models: lengths tried for each sentence.", *whole(1, MOST))
    length_ratio: float = option(
        1.0,
        "For mask_predict models: factor on the predicted length, 0.8 for terser translations.",
        between(0.1, 10),
        "lie between 0.1 and 10; 1 is the predicted length",
    )
    length_alpha: float = option(
        1.0,
        "For mask_predict models: lengths are ranked by log-probability / length^length_alpha; more is longer.",
        between(0, 10),
        "lie between 0 and 10; 1 ranks by the mean",
    )
