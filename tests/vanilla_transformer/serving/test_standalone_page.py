"""A page in one file: no text can change its HTML, and it needs nothing from elsewhere."""

import json
import re

from vanilla_transformer.serving.standalone_page import standalone_html


def test_data_and_title_stay_text():
    data = {"tokens": ["</script><script>alert(1)</script>", "{title}", "\u2028"]}
    page = standalone_html("<b>{data}</b>", "drawAttention", data)
    assert json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]) == data
    assert "<title>&lt;b&gt;{data}&lt;/b&gt;</title>" in page
    assert page.count("<script") == page.count("</script>") == 2


def test_the_page_holds_its_script_and_style():
    page = standalone_html("a", "drawIterations", {"frames": []})
    assert "export function drawIterations" in page
    assert 'drawIterations(document.getElementById("view")' in page
    assert not re.search(r"<link|\bsrc=|^import |@import|url\(|innerHTML", page, re.MULTILINE)
