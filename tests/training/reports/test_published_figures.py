"""Published perplexities beside our losses: ranks, differences and disagreement by hand."""

import math

import pytest

from vanilla_transformer.training.reports.published_figures import (
    compare_with_published,
    describe,
    plot_published,
    rank_correlation,
)


PUBLISHED = {"base": 5.0, "deep": 4.5, "narrow": 6.0, "same": 5.0, "other": 5.5}
LOSSES = {"base": [2.0, 2.02], "deep": [1.9], "narrow": [2.4], "same": [2.3], "other": [1.95, 1.99]}


@pytest.fixture
def rows():
    return compare_with_published(PUBLISHED, LOSSES)


def test_differences_are_from_the_first_variant_in_nats(rows):
    assert rows["narrow"]["published"] == pytest.approx(math.log(6 / 5))
    assert rows["narrow"]["ours"] == pytest.approx(2.4 - 2.01)
    assert rows["other"]["seeds"] == pytest.approx([-0.06, -0.02])


def test_only_opposite_directions_disagree(rows):
    assert [name for name, row in rows.items() if row["disagrees"]] == ["other"]


def test_equal_figures_share_their_rank(rows):
    # Ranks published: base 2.5, deep 1, narrow 5, same 2.5, other 4; ours: 3, 1, 5, 4, 2.
    theirs, ours = [2.5, 1, 5, 2.5, 4], [3, 1, 5, 4, 2]
    of_theirs, of_ours = ([rank - 3 for rank in side] for side in (theirs, ours))
    expected = sum(a * b for a, b in zip(of_theirs, of_ours, strict=True)) / math.sqrt(
        sum(a * a for a in of_theirs) * sum(b * b for b in of_ours)
    )
    assert rank_correlation(rows) == pytest.approx(expected)


def test_the_sentence_names_what_disagrees_and_the_picture_is_drawn(rows, tmp_path):
    assert describe(rows).endswith("over 5 variants, seeds differ by up to 0.040 nats; disagreement at other.")
    plot_published(rows, tmp_path / "published.png")
    assert (tmp_path / "published.png").stat().st_size > 1000


@pytest.mark.parametrize("losses", [{"base": [2.0]}, {"base": [2.0], "deep": [2.0], "narrow": [2.0]}])
def test_one_variant_and_equal_losses_have_no_correlation(losses):
    rows = compare_with_published(PUBLISHED, losses)
    assert rank_correlation(rows) is None
    assert describe(rows) == f"No rank correlation over {len(losses)} variants, one seed; no disagreement."
