import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.serving.html_markup import translate_html
from vanilla_transformer.serving.words import word_attention

from .conftest import UpperCaseTranslator


TAG = re.compile(r"<[^>]*>")


class Translate:
    """Translates by a function; words attend to the words at their places, in reverse if asked for."""

    language, target_language, n_best = "en", "de", 1

    def __init__(self, function=str.upper):
        self.function, self.sentences = function, []

    async def translate(self, sentences):
        self.sentences += sentences
        return [[self.function(sentence)] for sentence in sentences]

    async def align(self, sentence, translation):
        return word_attention(sentence, UpperCaseTranslator().attend(sentence, translation))


def translated(html, function=str.upper):
    translator = Translate(function)
    (result,) = asyncio.run(translate_html(html, translator))
    return result, translator.sentences


@pytest.mark.parametrize(
    ("html", "expected", "sentences"),
    [
        ("<p>One dog. Two cats.</p>\n<ul><li>It</ul>", None, ["One dog.", "Two cats.", "It"]),
        ("a <b>red</b> car", None, ["a red car"]),
        ("<b>a red</b> <i>car</i>", None, ["a red car"]),
        ("a <a href='x'>very <b>red</b></a> car", None, ["a very red car"]),
        ("<p class='a'>One. <b>Two.</b> Three.</p>", None, ["One.", "Two.", "Three."]),
        ("x &amp; y &lt; z", "X &amp; Y &lt; Z", ["x & y < z"]),
        ("caf&eacute;", "CAFÉ", ["café"]),
        ("a <img src=b> c", None, ["a  c", "a", "c"]),
        ("run <code>rm x</code> now", "RUN <code>rm x</code> NOW", ["run  now", "run", "now"]),
        ("<script>if (a<b) c()</script>", "<script>if (a<b) c()</script>", []),
        ("<span translate=no>not &amp; me</span>", "<span translate=no>not &amp; me</span>", []),
        ("<!DOCTYPE html><!-- note --><br/>x", "<!DOCTYPE html><!-- note --><br/>X", ["x"]),
        ("a <b>c", "A <b>C", ["a c", "a", "c"]),
        ("<pre>kept\n <b>as it is", "<pre>kept\n <b>as it is", []),
        ("<b>\n \n</b>", "<b>\n \n</b>", []),
        ("", "", []),
    ],
)
def test_tags_stay_around_their_words(html, expected, sentences):
    if expected is None:
        expected = "".join(part if TAG.match(part) else part.upper() for part in re.split(r"(<[^>]*>)", html))
    assert translated(html) == (expected, sentences)


def test_a_tag_without_a_place_makes_its_sentence_be_translated_in_pieces():
    """The translation has no word that attends to the word in the tag."""
    result, sentences = translated("one two <b>three</b>", lambda text: "EINS" if " " in text else text.upper())
    assert sentences == ["one two three", "one two", "three"]
    assert result == "EINS <b>THREE</b>"


def test_a_model_puts_tags_around_the_aligned_words(bundled):
    class Model(Translate):
        async def align(self, sentence, translation):
            return word_attention(sentence, bundled.attend(sentence, translation))

    (result,) = asyncio.run(translate_html("<p>A <b>dog</b> runs in the <i>snow</i>.</p>", Model(bundled)))
    assert result == "<p>Ein <b>Hund</b> rennt im <i>Schnee</i>.</p>"


TAGS = ["<p>", "</p>", "<b>", "</b>", "<a href='&amp;'>", "</a>", "<br>", "<img>", "<code>", "</code>", "<!-- x -->"]
TEXT = ["word", " ", "One. ", "Two! ", "\n", "&lt;", "é", '"', "&", ">"]
BROKEN = ["<", "<x", "</", "<![CDATA[", "<?x>", "<!x>", "<b", "&#", "<script>", "</p", "-->"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TAGS + TEXT), max_size=12).map("".join))
def test_the_identity_keeps_every_tag_and_its_own_output(html):
    once, sentences = translated(html, str)
    assert TAG.findall(once) == TAG.findall(html)
    assert translated(once, str)[0] == once
    assert all(sentence == sentence.strip() for sentence in sentences)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TAGS + TEXT + BROKEN), max_size=12).map("".join))
def test_broken_html_becomes_html_that_stays(html):
    once, _ = translated(html, str)
    assert translated(once, str)[0] == once
