"""The page holds every weight, and no token can change its HTML."""

import json
import re

import pytest
import torch

from vanilla_transformer.training.reports.attention_page import AttentionMaps, render_page


def embedded_data(page: str) -> list[dict]:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])


def test_the_page_holds_every_weight():
    weights = torch.rand(2, 3, 2, 4)
    maps = AttentionMaps("cross attention", weights, ["a", "b"], ["w", "x", "y", "z"], "target", "source")
    (data,) = embedded_data(render_page([maps], title="a title"))
    assert torch.equal(torch.tensor(data.pop("weights")), weights)
    assert data == {
        "kind": "cross attention",
        "rows": ["a", "b"],
        "columns": ["w", "x", "y", "z"],
        "rows_are": "target",
        "columns_are": "source",
    }


def test_tokens_and_title_stay_text():
    tokens = ["</script><script>alert(1)</script>", "@title@"]
    maps = AttentionMaps("self-attention", torch.ones(1, 1, 2, 2), tokens, tokens, "", "")
    page = render_page([maps], title="<b>@data@</b>")
    assert embedded_data(page)[0]["rows"] == tokens
    assert "<title>&lt;b&gt;@data@&lt;/b&gt;</title>" in page
    assert page.count("<script") == 2


def test_attention_that_is_no_full_matrix_is_refused():
    with pytest.raises(ValueError, match=r"shape \[1, 1, 2, 3\], but 2 tokens attend to 2"):
        AttentionMaps("encoder self-attention", torch.ones(1, 1, 2, 3), ["a", "b"], ["a", "b"], "", "")
