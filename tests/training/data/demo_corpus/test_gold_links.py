from vanilla_transformer.training.data.demo_corpus.gold_links import (
    MARK,
    LinkedPair,
    _contracted,
    alignment_error_rate,
    linked_pairs,
    marked,
)
from vanilla_transformer.training.data.demo_corpus.grammar import demo_corpus, demo_sentences
from vanilla_transformer.translation.words import spelled, word_spans


def test_marks_change_no_word():
    for sentence in demo_sentences("validation", 400):
        with_marks = marked(sentence)
        assert MARK.sub("", with_marks.english()) == sentence.english()
        assert MARK.sub("", _contracted(with_marks.german())) == sentence.german()


def test_the_pairs_are_those_of_the_corpus_and_links_are_between_their_words():
    pairs = linked_pairs("test", 200)
    assert [{"en": pair.en, "de": pair.de} for pair in pairs] == demo_corpus("test", 200)
    for pair in pairs:
        assert pair.sure <= pair.possible
        assert all(s < len(word_spans(pair.en)) and t < len(word_spans(pair.de)) for s, t in pair.possible)
    share = sum(len(pair.sure) for pair in pairs) / sum(len(word_spans(pair.de)) for pair in pairs)
    assert 0.6 < share < 0.8  # verbs with auxiliaries have possible links only, full stops none


def test_links_by_hand():
    pairs = {pair.en: pair for pair in linked_pairs("test", 500)}
    pair = pairs["Today you must pick up your aunt at the station."]
    assert pair.de == "Heute musst du deine Tante am Bahnhof abholen."
    english, german = (spelled(text, word_spans(text)) for text in (pair.en, pair.de))
    sure = {(english[source], german[target]) for source, target in pair.sure}
    assert sure == {
        *(("Today", "Heute"), ("you", "du"), ("your", "deine"), ("aunt", "Tante")),
        *(("at", "am"), ("the", "am"), ("station", "Bahnhof")),
    }
    verbs = {(english[source], german[target]) for source, target in pair.possible - pair.sure}
    assert verbs == {(en, de) for en in ("must", "pick", "up") for de in ("musst", "abholen")}


def test_the_error_rate_is_och_and_ney_s():
    """By hand: of 4 links, 1 is sure, 2 are possible; 2 are sure in all; one is at a word that has no link."""
    pair = LinkedPair("a b c d", "e f g h", sure={(0, 0), (1, 1)}, possible={(0, 0), (1, 1), (2, 0), (2, 2)})
    links = {(0, 0), (2, 2), (0, 1), (3, 3)}
    assert alignment_error_rate([links], [pair]) == 1 - (1 + 2) / (3 + 2)
    assert alignment_error_rate([pair.sure], [pair]) == 0
