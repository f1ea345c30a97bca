"""HTML whose text is translated and whose tags stay.

Block tags such as `<p>` and `<li>` end a sentence. Inline tags such as `<b>` and `<a>` may be inside of one. The
sentence is translated without its inline tags. Each tag is then put around the words that attend to its words:

    A man in a <b>red shirt</b> sleeps.    ->    Ein Mann in einem <b>roten Hemd</b> schläft.

Attention is no exact alignment. If the words of a tag are not next to each other in the translation, or if there are
none, the pieces between the tags are translated one by one. That reads worse, but every tag has the translation of its
content.

Attributes, comments and the content of the elements in `KEPT`, of `<svg>` and `<math>`, or with `translate="no"`, are
not translated. Character references such as `&eacute;` become characters. All markup stays as it was written, so a
browser reads the same tags as before: nothing that was inert, such as a comment, becomes active.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import NamedTuple

from turbohtml import Token, TokenType, parse_fragment, tokenize

from vanilla_transformer.translation.long_texts import split_sentences, trimmed
from vanilla_transformer.translation.words import Span, WordAttention

from .served_models import ModelTranslator


INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i"),
    *("img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup"),
    *("time", "tt", "u", "var", "wbr"),
}
# Elements without an end tag.
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
KEPT = {
    *("code", "kbd", "pre", "samp", "textarea", "var"),
    # A browser reads no markup in these.
    *("iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "xmp"),
}
FOREIGN = re.compile("<(svg|math)", re.IGNORECASE)
OPENS, STANDS_ALONE, CLOSES = 1, 0, -1


async def translate_html(html: str, translator: ModelTranslator) -> list[str]:
    """Translates the text of HTML; returns `n_best` documents, best first."""
    parts = [part if isinstance(part, str) else list(part.sentences(translator.language)) for part in _parts_of(html)]
    sentences = [sentence for part in parts if isinstance(part, list) for sentence in part]
    translations = dict(zip(map(id, sentences), await _translations(sentences, translator), strict=True))
    return [
        "".join(part if isinstance(part, str) else "".join(translations[id(s)][rank] for s in part) for part in parts)
        for rank in range(translator.n_best)
    ]


async def _translations(sentences: "list[_Sentence]", translator: ModelTranslator) -> list[list[str]]:
    """Translates sentences: as a whole, and where a tag finds no place, piece by piece."""
    results = iter(await translator.translate([s.text.strip() for s in sentences if s.text.strip()]))
    ranked = [next(results) if s.text.strip() else [""] * translator.n_best for s in sentences]
    placed = [
        [await _placed(sentence, text, translator) for text in texts]
        for sentence, texts in zip(sentences, ranked, strict=True)
    ]
    without_place = [sentence for sentence, texts in zip(sentences, placed, strict=True) if None in texts]
    pieces = [piece.strip() for sentence in without_place for piece in sentence.pieces if piece.strip()]
    translated_pieces = iter(await translator.translate(pieces))
    return [
        [text or "" for text in texts] if None not in texts else _piece_by_piece(s, translated_pieces, len(texts))
        for s, texts in zip(sentences, placed, strict=True)
    ]


async def _placed(sentence: "_Sentence", translation: str, translator: ModelTranslator) -> str | None:
    """The translation with the sentence's tags; `None` if one of them finds no place."""
    if not sentence.has_tags_inside:
        return sentence.around(_escaped(translation), sentence.tags)
    return sentence.place(translation, await translator.align(sentence.text.strip(), translation))


def _piece_by_piece(sentence: "_Sentence", translated_pieces: Iterator[list[str]], n_best: int) -> list[str]:
    ranked = [next(translated_pieces) if piece.strip() else [""] * n_best for piece in sentence.pieces]
    return [sentence.with_pieces([texts[rank] for texts in ranked]) for rank in range(n_best)]


class _Tag(NamedTuple):
    """An inline tag as it was written, its position in the text, and what it does."""

    at: int
    raw: str
    does: int


@dataclass
class _Sentence:
    """A sentence with the white space around it and its inline tags.

    Args:
        text: The text, character references resolved.
        tags: The tags, in their order.
    """

    text: str
    tags: list[_Tag]

    @property
    def inner(self) -> Span:
        """The text without the white space around it."""
        before, inner, _ = trimmed(self.text)
        return len(before), len(before) + len(inner)

    @property
    def has_tags_inside(self) -> bool:
        start, end = self.inner
        return any(start < tag.at < end for tag in self.tags)

    @property
    def pieces(self) -> list[str]:
        """The text between the tags."""
        return [self.text[start:end] for start, end in pairwise(self._cuts)]

    @property
    def _cuts(self) -> list[int]:
        return sorted({0, *(tag.at for tag in self.tags), len(self.text)})

    def around(self, translation: str, tags: list[_Tag]) -> str:
        """The translation with the white space of the sentence, and tags in that space."""
        before, inner, after = trimmed(self.text)
        if not inner:
            return _spliced(self.text, tags)
        leading = [tag for tag in tags if tag.at <= len(before)]
        trailing = [tag._replace(at=tag.at - len(before) - len(inner)) for tag in tags if tag not in leading]
        return _spliced(before, leading) + translation + _spliced(after, trailing)

    def with_pieces(self, translations: list[str]) -> str:
        """The sentence from translations of its pieces."""
        parts = []
        for at, piece, translation in zip(self._cuts, self.pieces, translations, strict=False):
            before, _, after = trimmed(piece)
            parts += [tag.raw for tag in self.tags if tag.at == at]
            parts.append(_escaped(before + translation + after))
        parts += [tag.raw for tag in self.tags if tag.at == len(self.text)]
        return "".join(parts)

    def place(self, translation: str, attention: WordAttention) -> str | None:
        """Puts each element around the words that attend to its words."""
        elements, loose = self._elements()
        start, end = self.inner
        if any(start < tag.at < end for tag in loose):
            return None
        marks = []
        for number, (opening, closing) in enumerate(elements):
            span = _aligned_span((opening.at - start, closing.at - start), attention)
            if span is None:
                return None
            # At one position: end tags before start tags; of start tags the outer first, of end tags the inner.
            marks.append((span[0], 1, -span[1], number, opening.raw))
            marks.append((span[1], 0, -span[0], -number, closing.raw))
        inner = _spliced(translation, [_Tag(mark[0], mark[-1], STANDS_ALONE) for mark in sorted(marks)])
        return self.around(inner, loose)

    def _elements(self) -> tuple[list[tuple[_Tag, _Tag]], list[_Tag]]:
        """Pairs of start tag and end tag, from the outside in, and all other tags."""
        pairs, loose, opened = [], [], []
        for tag in self.tags:
            if tag.does == OPENS:
                opened.append(tag)
            elif tag.does == CLOSES and opened:
                pairs.append((opened.pop(), tag))
            else:
                loose.append(tag)
        order = {id(tag): number for number, tag in enumerate(self.tags)}
        return sorted(pairs, key=lambda pair: order[id(pair[0])]), [*loose, *opened]


def _escaped(text: str) -> str:
    """Text as HTML. Of line ends only a reference to a carriage return is read as one."""
    return escape(text, quote=False).replace("\r", "&#13;")


def _spliced(text: str, tags: list[_Tag]) -> str:
    """Text, escaped, with tags at their positions."""
    parts, done = [], 0
    for tag in tags:
        parts += [_escaped(text[done : tag.at]), tag.raw]
        done = tag.at
    return "".join([*parts, _escaped(text[done:])])


def _aligned_span(source: Span, attention: WordAttention) -> Span | None:
    """The words of the translation that attend to a span of the source, if there are any and they are neighbours."""
    inside = {index for index, (start, _) in enumerate(attention.source) if source[0] <= start < source[1]}
    words = [index for index, aligned in enumerate(attention.alignment) if aligned in inside]
    if not words or words[-1] - words[0] + 1 != len(words):
        return None
    return attention.target[words[0]][0], attention.target[words[-1]][1]


# --- parsing ---


@dataclass
class _Run:
    """Text between two block tags, with its inline tags."""

    text: str = ""
    tags: list[_Tag] = field(default_factory=list)

    def sentences(self, language: str) -> Iterator[_Sentence]:
        """Splits the text. Between two sentences, end tags belong to the first and start tags to the second."""
        tags, start = self.tags, 0
        for text in split_sentences(self.text, language):
            end = start + len(text)
            count = 0
            while count < len(tags) and (tags[count].at < end or (tags[count].at == end and tags[count].does < 0)):
                count += 1
            count = len(tags) if end == len(self.text) else count
            yield _Sentence(text, [tag._replace(at=tag.at - start) for tag in tags[:count]])
            tags, start = tags[count:], end
        if not self.text:
            yield _Sentence("", tags)


def _parts_of(html: str) -> list["_Run | str"]:
    """Splits HTML into runs of text, and strings that stay as they are."""
    html = html.replace("\r\n", "\n").replace("\r", "\n")  # as every HTML parser does first
    parser, done = _Parser(), 0
    for start, end in _foreign_elements(html):
        parser.read(html[done:start])
        parser.put("svg", html[start:end], STANDS_ALONE)
        done = end
    parser.read(html[done:])
    return parser.finished_parts()


def _foreign_elements(html: str) -> Iterator[Span]:
    """Where `<svg>` and `<math>` begin and end. Inside of them other rules, which need the tree, say what is a tag.

    One that the source does not close reaches to the end.
    """
    tree = parse_fragment(html, source_locations=True, scripting=True) if FOREIGN.search(html) else None
    places = [element.source_location for element in tree.select("svg, math")] if tree else []
    done = 0
    for place in sorted(filter(None, places), key=lambda place: place.start_tag.start_offset):
        start, end = place.start_tag.start_offset, place.start_tag.end_offset
        if start >= done:  # not inside of another
            closed = any(token.self_closing for token in tokenize(html[start:end]))
            done = place.end_tag.end_offset if place.end_tag else end if closed else len(html)
            yield start, done


class _Parser:
    def __init__(self) -> None:
        self.parts: list[_Run | str] = []
        self._kept: list[str] = []  # open elements inside of an element whose content stays, which is the first
        self._verbatim = ""  # its content so far

    def read(self, html: str) -> None:
        """Reads HTML without foreign elements."""
        done = 0
        # "</>" is nothing and gets no token; the empty comment "<!>" gets one.
        for token in tokenize(html.replace("</>", "<!>"), capture_source=True, resolve_references=False):
            raw = html[done : done + len(token.source or token.data or "")]
            done += len(raw)
            if token.type == TokenType.START_TAG:
                self._start(token, raw)
            elif token.type == TokenType.END_TAG:
                self._end(token.tag or "", raw)
            elif token.type == TokenType.TEXT:
                self._text(raw, raw)
            elif token.type == TokenType.CHARACTER_REFERENCE:
                self._text(token.data or "", raw)
            else:
                self.put("" if token.type == TokenType.DOCTYPE else "span", raw, STANDS_ALONE)
        if html[done:]:  # an unfinished tag, which is neither a tag nor text
            self.put("", html[done:], STANDS_ALONE)

    def _start(self, token: Token, raw: str) -> None:
        tag = token.tag or ""
        if tag in VOID:
            self.put(tag, raw, STANDS_ALONE)
        elif self._kept or tag in KEPT or (token.attr("translate") or "").lower() == "no":
            self._verbatim += raw
            self._kept.append(tag)
        else:
            self.put(tag, raw, OPENS)

    def _end(self, tag: str, raw: str) -> None:
        if tag not in self._kept:
            self.put(tag, raw, CLOSES)
            return
        while self._kept.pop() != tag:  # elements that were never closed
            pass
        self._verbatim += raw
        if not self._kept:
            verbatim, self._verbatim = self._verbatim, ""
            self.put(tag, verbatim, STANDS_ALONE)

    def _text(self, text: str, raw: str) -> None:
        if self._kept:
            self._verbatim += raw
        else:
            self._run().text += text

    def put(self, tag: str, raw: str, does: int) -> None:
        """Puts an inline tag into the run, and any other tag between two runs."""
        if self._kept:
            self._verbatim += raw
        elif tag in INLINE:
            run = self._run()
            run.tags.append(_Tag(len(run.text), raw, does))
        else:
            self.parts.append(raw)

    def finished_parts(self) -> list["_Run | str"]:
        """All parts; an element that was never closed is the last."""
        return [*self.parts, self._verbatim] if self._verbatim else self.parts

    def _run(self) -> _Run:
        if not self.parts or isinstance(self.parts[-1], str):
            self.parts.append(_Run())
        run = self.parts[-1]
        assert isinstance(run, _Run)
        return run
