import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from vanilla_transformer.serving.html_markup import translate_html
from vanilla_transformer.translation.words import word_attention

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


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        # Text after an element whose content a browser does not read as markup.
        ("<script>a</script x><p>A dog.</p>", "<script>a</script x><p>A DOG.</p>"),
        ("<style>a</style/><p>A dog.</p>", "<style>a</style/><p>A DOG.</p>"),
        ("<p>A dog.</p><script>a < b", "<p>A DOG.</p><script>a < b"),
        ("<script/>a</script>b", "<script/>a</script>B"),
        ("<title>a <b> c</title>d", "<title>A &lt;B&gt; C</title>D"),
        ("<noscript>a <b></noscript>b", "<noscript>a <b></noscript>B"),
        # What a browser reads as a comment or as a script stays one.
        ("<!-- x -- ><img src=x onerror=alert(1)> -->b", "<!-- x -- ><img src=x onerror=alert(1)> -->B"),
        ("<script>a</ script><b></script>b", "<script>a</ script><b></script>B"),
        ("<![foo[bar]]>b", "<![foo[bar]]>B"),
        ("<![>b", "<![>B"),
        ("<![ ]>b", "<![ ]>B"),
        ("<![CDATA[x]]>b", "<![CDATA[x]]>B"),
        ("a</>b</>", "A</>B</>"),
        ("a <b", "A <b"),
        ("a<?x?>b", "A<?x?>B"),
        # In svg and math, a tag may be text and text a tag.
        ("<svg><![CDATA[a></svg>]]></svg>b", "<svg><![CDATA[a></svg>]]></svg>B"),
        ("<svg><style><b>x</style></svg>b", "<svg><style><b>x</style></svg>b"),  # the <b> ends the svg
        ("<svg><title>a</title></svg>b<SVG/>c", "<svg><title>a</title></svg>B<SVG/>C"),
        ("<math><mi>a</math>b<svg>c", "<math><mi>a</math>B<svg>c"),
        ("<p translate='NO'>a</p>b", "<p translate='NO'>a</p>B"),
        ("<p\0>a</P >", "<p\0>A</P >"),
        ("a\r\nb&#13;c", "A\nB&#13;C"),
        ("a&#1;b&notit;", "A\1B¬IT;"),
    ],
)
def test_html_is_read_as_a_browser_reads_it(html, expected):
    assert translated(html)[0] == expected


TAGS = ["<p>", "</p>", "<b>", "</b>", "<a href='&amp;'>", "</a>", "<br>", "<img>", "<code>", "</code>", "<!-- x -->"]
TEXT = ["word", " ", "One. ", "Two! ", "\n", "&lt;", "é", '"', "&", ">"]
BROKEN = [
    *("<", "<x", "</", "</>", "<![CDATA[", "]]>", "<?x>", "<!x>", "<b", "&#", "</p", "-->", "<!--", "-- >", "\0", "'"),
    *("<script>", "</script>", "</ script>", "</script x>", "<style/>", "</style>", "<title>", "</title>", "<select>"),
    *("</select>", "<textarea>", "</textarea>", "<svg>", "</svg>", "<math>", "</math>", "<mi>", "<foreignObject>"),
    *("<table>", "<td>", "</table>", "<template>", "</template>", "<p title='", "<p translate=No>", "<plaintext>"),
    *("<img src=x onerror=alert(1)>", "<a title='<img src=x onerror=alert(2)>'>", "<!doctype html>", "\r", "&#13;"),
]
htmls = st.lists(st.sampled_from(TAGS + TEXT + BROKEN), max_size=12).map("".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TAGS + TEXT), max_size=12).map("".join))
def test_the_identity_keeps_every_tag_and_its_own_output(html):
    once, sentences = translated(html, str)
    assert TAG.findall(once) == TAG.findall(html)
    assert translated(once, str)[0] == once
    assert all(sentence == sentence.strip() for sentence in sentences)


@settings(max_examples=200, deadline=None)
@given(htmls)
def test_broken_html_becomes_html_that_stays(html):
    once, _ = translated(html, str)
    assert translated(once, str)[0] == once


def read_by_another_parser(html):
    """The text, and what is active: elements and their attributes."""
    tree = LexborHTMLParser(html)
    elements = {(node.tag, *sorted(node.attributes.items())) for node in tree.css("*") if not node.tag.startswith("-")}
    return tree.root.text(), elements


@settings(max_examples=400, deadline=None)
@given(htmls)
def test_the_identity_keeps_text_and_elements_for_another_parser(html):
    text, elements = read_by_another_parser(html)
    text_after, elements_after = read_by_another_parser(translated(html, str)[0])
    assert "".join(text_after.split()) == "".join(text.split())
    assert elements_after == elements


@settings(max_examples=400, deadline=None)
@given(htmls, st.sampled_from(["<img src=y onerror=alert(3)>", "\"' x=y", "]]>", "-->", "</script><i>", "<!--"]))
def test_a_translation_is_never_markup(html, translation):
    """Whatever the model writes, the elements of the page are those of the source."""
    result, _ = translated(html, lambda sentence: translation)
    assert read_by_another_parser(result)[1] == read_by_another_parser(html)[1]
