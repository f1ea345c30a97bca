"""The demo corpus against textbook tables, hand-written translations and what a corpus must keep to."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import pytest

from vanilla_transformer.training.data.demo_corpus.grammar import (
    IT,
    LIMITS,
    NOTHING,
    PRONOUNS,
    SIZES,
    THESE,
    THIS,
    WHAT,
    WHERE,
    WHERE_TO,
    WHO,
    WHY,
    Both,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    Sentence,
    Writer,
    demo_corpus,
    pronoun_for,
    relative_pronoun,
)
from vanilla_transformer.training.data.demo_corpus.lexicon import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    Adverb,
    Preposition,
    adjective_ending,
    article,
    clock_time,
    german_forms,
    german_verb,
    noun_form,
    number_word,
    past_forms,
    with_ing,
    with_s,
)


def tokens(text: str) -> list[str]:
    return re.findall(r"[\w'-]+|[.,?]", text)


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[dict[str, str]]]:
    return {split: demo_corpus(split) for split in SIZES}


# ---- The corpus


def test_default_sizes(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == {"train": 40_000, "validation": 500, "test": 500}
    assert all(pair.keys() == {"en", "de"} for pairs in corpus.values() for pair in pairs)


def test_the_examples_of_the_docstring_are_from_the_corpus(corpus):
    lines = re.findall(r"^    (.*)$", sys.modules[demo_corpus.__module__].__doc__, re.MULTILINE)
    examples = [{"en": english, "de": german} for english, german in zip(lines[::2], lines[1::2], strict=True)]
    assert len(examples) == 3
    assert all(example in corpus["train"] for example in examples)


def test_same_arguments_same_pairs_in_another_process():
    code = f"from {demo_corpus.__module__} import demo_corpus; print(demo_corpus('test', 50, seed=3))"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"}
    elsewhere = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert elsewhere.stdout.decode().strip() == str(demo_corpus("test", 50, seed=3))


def test_every_decision_comes_from_one_stream_of_numbers():
    """Only `Random.random` is promised to be the same in every version of Python."""

    def stream(state: int = 1):
        while True:
            state = state * 16807 % 2147483647
            yield state / 2147483647

    written = []
    for _ in range(2):
        writer = Writer(seed=0)
        writer.random = stream().__next__
        written.append([writer.sentence() for _ in range(300)])
    assert written[0] == written[1]


def test_seeds_differ_and_a_smaller_corpus_begins_a_larger_one():
    assert demo_corpus("train", 50, seed=1) != demo_corpus("train", 50, seed=2)
    assert demo_corpus("train", 50) == demo_corpus("train", 80)[:50]
    assert demo_corpus("test", 0) == []


def test_no_sentence_twice(corpus):
    for pairs in corpus.values():
        for language in ("en", "de"):
            assert len({pair[language] for pair in pairs}) == len(pairs)


def test_splits_share_no_sentence_whatever_sizes_and_seeds(corpus):
    sentences = {split: {text for pair in pairs for text in pair.values()} for split, pairs in corpus.items()}
    for seed in (1, 2):
        for split, size in (("train", 2000), ("validation", 700), ("test", 300)):
            sentences[split] |= {text for pair in demo_corpus(split, size, seed) for text in pair.values()}
    for one, other in combinations(sentences, 2):
        assert sentences[one].isdisjoint(sentences[other])


def test_one_english_sentence_has_one_translation(corpus):
    pairs = [*corpus["train"], *corpus["validation"], *corpus["test"], *demo_corpus("train", 20_000, seed=1)]
    translations = {}
    for pair in pairs:
        assert translations.setdefault(pair["en"], pair["de"]) == pair["de"], pair["en"]


def test_held_out_words_are_known(corpus):
    for language in ("en", "de"):
        known = {token for pair in corpus["train"] for token in tokens(pair[language])}
        held_out = {token for split in ("validation", "test") for p in corpus[split] for token in tokens(p[language])}
        assert held_out <= known


def test_no_word_of_the_lexicon_is_idle(corpus):
    english = {token.lower() for pair in corpus["train"] for token in tokens(pair["en"])}
    german = {token.lower() for pair in corpus["train"] for token in tokens(pair["de"])}
    for noun in NOUNS.values():
        assert {noun.de.lower(), noun.de_plural.lower()} & german, noun
    for adjective in ADJECTIVES.values():
        assert adjective.en in english, adjective
        assert adjective.de in german, adjective
    for infinitive, verb in VERBS.items():
        forms = german_forms(verb)
        assert {infinitive, forms.participle, forms.present[2]} & german, verb
    for number in range(2, 100):
        assert number_word(number).en in english
        assert number_word(number).de in german


def test_every_tag_asked_for_is_given():
    given = {tag for noun in NOUNS.values() for tag in noun.tags.split()}
    names = {noun.en.split()[0] for noun in NOUNS.values()} | {"home"}
    asked = " ".join(
        [
            *(" ".join((v.subject, v.object, v.target, v.places)) for v in VERBS.values()),
            *(adjective.fits for adjective in ADJECTIVES.values()),
        ]
    )
    assert set(asked.split()) <= given | names
    assert {word for verb in VERBS.values() for word in verb.because.split()} <= {*ADJECTIVES, "late"}
    assert {word for verb in VERBS.values() for word in verb.then.split()} <= VERBS.keys()


def test_lengths_spread(corpus):
    for language in ("en", "de"):
        lengths = [len(pair[language].split()) for pair in corpus["train"]]
        assert min(lengths) == 3
        assert 18 <= max(lengths) <= 22
        assert 8 <= sum(lengths) / len(lengths) <= 11
        assert sum(length <= 5 for length in lengths) > 2000
        assert sum(length >= 14 for length in lengths) > 2000


def test_sentences_are_written_properly(corpus):
    for pair in corpus["train"]:
        for text in pair.values():
            assert re.fullmatch(r"[A-ZÄÖÜ][\w' ,-]*[.?]", text), text
            assert not re.search(r"  | [.,?]|,\S|,,", text), text
        assert pair["en"][-1] == pair["de"][-1]


def test_german_commas_contractions_and_negation(corpus):
    german = [pair["de"] for pair in corpus["train"]]
    for text in german:
        assert not re.search(r"[^,] (weil|obwohl|wenn|während|dass|ob|aber)\b", text), text
        assert not re.search(r"\b(in|an|zu) dem\b|\b(in|an) das\b|\bzu der\b", text), text
        assert not re.search(r"\bnicht ein(e|en|em|er)?\b(?! *[,.?])", text), text
    assert any(" kein" in text for text in german)
    assert any(" nicht" in text for text in german)


def test_english_articles(corpus):
    for pair in corpus["train"]:
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", pair["en"]), pair["en"]


@pytest.mark.parametrize("split", ["Train", "dev", ""])
def test_unknown_split(split):
    with pytest.raises(ValueError, match=rf"no split '{split}': choose 'train', 'validation' or 'test'"):
        demo_corpus(split)


@pytest.mark.parametrize("split", SIZES)
@pytest.mark.parametrize("excess", [1, 10**9])
def test_more_than_there_is(split, excess):
    with pytest.raises(ValueError, match=rf"{LIMITS[split] + excess} {split} pairs: ask for at most {LIMITS[split]}"):
        demo_corpus(split, LIMITS[split] + excess)


def test_negative_size():
    with pytest.raises(ValueError, match="-1 train pairs"):
        demo_corpus("train", -1)


@pytest.mark.slow
def test_the_limits_can_be_reached():
    pairs = demo_corpus("test", LIMITS["test"])
    assert len({pair["en"] for pair in pairs}) == LIMITS["test"]


# ---- Numbers and times


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (2, "two", "zwei"),
        (11, "eleven", "elf"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (36, "thirty-six", "sechsunddreißig"),
        (47, "forty-seven", "siebenundvierzig"),
        (61, "sixty-one", "einundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_number_words(number, english, german):
    assert number_word(number) == (english, german)


def test_number_words_follow_the_counting_rule():
    """Every number to 99 from the names of digits and their shortened forms, counted up."""
    digits = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    short = {"sechs": "sech", "sieben": "sieb"}
    teens = ["zehn", "elf", "zwölf", *(short.get(digit, digit) + "zehn" for digit in digits[2:])]
    tens = ["zwanzig", "dreißig", *(short.get(digit, digit) + "zig" for digit in digits[3:])]
    counted = [*digits, *teens]
    for ten in tens:
        counted += [ten, *(("ein" if digit == "eins" else digit) + "und" + ten for digit in digits)]
    assert [number_word(number).de for number in range(1, 100)] == counted
    assert len({number_word(number).en for number in range(1, 100)}) == 99


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (3, 0, "at three o'clock", "um drei Uhr"),
        (1, 0, "at one o'clock", "um ein Uhr"),
        (7, 30, "at half past seven", "um halb acht"),
        (12, 30, "at half past twelve", "um halb eins"),
        (8, 45, "at quarter to nine", "um Viertel vor neun"),
        (12, 45, "at quarter to one", "um Viertel vor eins"),
        (9, 15, "at quarter past nine", "um Viertel nach neun"),
        (6, 10, "at ten past six", "um zehn nach sechs"),
        (4, 40, "at twenty to five", "um zwanzig vor fünf"),
        (11, 55, "at five to twelve", "um fünf vor zwölf"),
    ],
)
def test_clock_times(hour, minute, english, german):
    assert clock_time(hour, minute) == (english, german)


# ---- Words


# The endings of the textbook: nominative, accusative and dative of masculine, feminine, neuter and plural.
DER_TABLE = """
der alte    die alte    das alte    die alten
den alten   die alte    das alte    die alten
dem alten   der alten   dem alten   den alten
"""
EIN_TABLE = """
kein alter    keine alte    kein altes    keine alten
keinen alten  keine alte    kein altes    keine alten
keinem alten  keiner alten  keinem alten  keinen alten
"""
ZERO_TABLE = """
alter  alte   altes  alte
alten  alte   altes  alte
altem  alter  altem  alten
"""


def cells(table: str) -> dict[tuple[str, str], str]:
    keys = [(case, gender) for case in ("nom", "acc", "dat") for gender in "mfnp"]
    return dict(zip(keys, re.split(r"\n| {2,}", table.strip()), strict=True))


@pytest.mark.parametrize(
    ("determiner", "stem", "table"),
    [
        ("the", "d", DER_TABLE),
        (
            "this",
            "dies",
            re.sub(r"\b(d)(?=er|en|em)", "dies", DER_TABLE).replace("die ", "diese ").replace("das", "dieses"),
        ),
        ("no", "kein", EIN_TABLE),
        ("my", "mein", EIN_TABLE.replace("kein", "mein")),
        ("our", "unser", EIN_TABLE.replace("kein", "unser")),
        ("their", "ihr", EIN_TABLE.replace("kein", "ihr")),
        ("", "", ZERO_TABLE),
    ],
)
def test_endings(determiner, stem, table):
    for (case, gender), expected in cells(table).items():
        ending = adjective_ending(determiner, case, gender)
        assert f"{article(determiner, case, gender)} alt{ending}".strip() == expected, (determiner, case, gender)


def phrase(noun: str, determiner: str = "the", *adjectives: str, **rest) -> NounPhrase:
    return NounPhrase(NOUNS[noun], determiner, adjectives=tuple(ADJECTIVES[en] for en in adjectives), **rest)


@pytest.mark.parametrize(
    ("noun_phrase", "nominative", "accusative", "dative"),
    [
        (phrase("man"), "der Mann", "den Mann", "dem Mann"),
        (phrase("woman", "a", "old"), "eine alte Frau", "eine alte Frau", "einer alten Frau"),
        (phrase("child", "my", "small"), "mein kleines Kind", "mein kleines Kind", "meinem kleinen Kind"),
        (phrase("boy"), "der Junge", "den Jungen", "dem Jungen"),
        (phrase("student", "this"), "dieser Student", "diesen Studenten", "diesem Studenten"),
        (phrase("neighbor", "our"), "unser Nachbar", "unseren Nachbarn", "unserem Nachbarn"),
        (phrase("man", plural=True), "die Männer", "die Männer", "den Männern"),
        (phrase("bird", "", "black", plural=True), "schwarze Vögel", "schwarze Vögel", "schwarzen Vögeln"),
        (phrase("car", plural=True), "die Autos", "die Autos", "den Autos"),
        (phrase("girl", plural=True), "die Mädchen", "die Mädchen", "den Mädchen"),
        (
            phrase("coat", "a", "expensive", "black"),
            "ein teurer schwarzer Mantel",
            "einen teuren schwarzen Mantel",
            "einem teuren schwarzen Mantel",
        ),
        (phrase("room", "a", "dark"), "ein dunkles Zimmer", "ein dunkles Zimmer", "einem dunklen Zimmer"),
        (phrase("friend", "a", "tired"), "ein müder Freund", "einen müden Freund", "einem müden Freund"),
        (phrase("cheese", "", "good"), "guter Käse", "guten Käse", "gutem Käse"),
        (phrase("milk", "", "cold"), "kalte Milch", "kalte Milch", "kalter Milch"),
        (
            phrase("dog", "", "big", plural=True, number=3),
            "drei große Hunde",
            "drei große Hunde",
            "drei großen Hunden",
        ),
        (
            phrase("dog", "the", "big", plural=True, number=3),
            "die drei großen Hunde",
            "die drei großen Hunde",
            "den drei großen Hunden",
        ),
        (phrase("apple", "", number=1), "ein Apfel", "einen Apfel", "einem Apfel"),
        (phrase("euro", "", plural=True, number=21), "einundzwanzig Euro", "einundzwanzig Euro", "einundzwanzig Euro"),
        (phrase("Anna", ""), "Anna", "Anna", "Anna"),
        (PRONOUNS["she"], "sie", "sie", "ihr"),
        (IT["m"], "er", "ihn", "ihm"),
        (
            Both(phrase("man"), phrase("boy")),
            "der Mann und der Junge",
            "den Mann und den Jungen",
            "dem Mann und dem Jungen",
        ),
    ],
)
def test_noun_phrases(noun_phrase, nominative, accusative, dative):
    assert [noun_phrase.german(case) for case in ("nom", "acc", "dat")] == [nominative, accusative, dative]


@pytest.mark.parametrize("noun", [noun for noun in NOUNS.values() if noun.de_plural])
def test_dative_plurals_end_in_n_or_s(noun):
    assert noun_form(noun, "dat", plural=True)[-1] in "ns" or noun.de == "Euro"


@pytest.mark.parametrize(
    ("preposition", "noun_phrase", "german"),
    [
        (Preposition("in", "in", "dat"), phrase("garden"), "im Garten"),
        (Preposition("into", "in", "acc"), phrase("garden"), "in den Garten"),
        (Preposition("into", "in", "acc"), phrase("house"), "ins Haus"),
        (Preposition("in", "in", "dat"), phrase("kitchen", "the", "dark"), "in der dunklen Küche"),
        (Preposition("at", "an", "dat"), phrase("station"), "am Bahnhof"),
        (Preposition("to", "zu", "dat"), phrase("lake", "the", "beautiful"), "zum schönen See"),
        (Preposition("to", "zu", "dat"), phrase("library"), "zur Bibliothek"),
        (Preposition("on", "auf", "dat"), phrase("table"), "auf dem Tisch"),
        (Preposition("on", "auf", "acc"), phrase("table"), "auf den Tisch"),
        (Preposition("in", "in", "dat"), phrase("garden", "my"), "in meinem Garten"),
    ],
)
def test_prepositions_govern_and_contract(preposition, noun_phrase, german):
    assert PrepositionalPhrase(preposition, noun_phrase).de == german


@pytest.mark.parametrize(
    ("noun_phrase", "english"),
    [
        (phrase("apple", "a"), "an apple"),
        (phrase("apple", "a", "fresh"), "a fresh apple"),
        (phrase("book", "a", "old"), "an old book"),
        (phrase("book", "a", "interesting"), "an interesting book"),
        (phrase("uncle", "a"), "an uncle"),
        (phrase("euro", "a"), "a euro"),
        (phrase("woman", "this", plural=True), "these women"),
        (phrase("child", "the", plural=True), "the children"),
        (phrase("box", "", plural=True, number=2), "two boxes"),
        (phrase("story", "no", plural=True), "no stories"),
    ],
)
def test_english_noun_phrases(noun_phrase, english):
    assert noun_phrase.english("nom") == english


def test_english_spelling():
    assert [with_s(word) for word in ("wash", "tidy", "play", "go", "have", "potato", "bus")] == [
        "washes", "tidies", "plays", "goes", "has", "potatoes", "buses"
    ]  # fmt: skip
    assert [with_ing(word) for word in ("write", "sit", "lie", "see", "visit", "buy", "travel", "swim")] == [
        "writing", "sitting", "lying", "seeing", "visiting", "buying", "traveling", "swimming"
    ]  # fmt: skip
    assert past_forms(VERBS["aufräumen"]) == ("tidied", "tidied")
    assert past_forms(VERBS["wohnen"]) == ("lived", "lived")
    assert past_forms(VERBS["schreiben"]) == ("wrote", "written")


@pytest.mark.parametrize(
    ("infinitive", "present"),
    [
        ("lesen", "lese liest liest lesen"),
        ("essen", "esse isst isst essen"),
        ("geben", "gebe gibst gibt geben"),
        ("warten", "warte wartest wartet warten"),
        ("waschen", "wasche wäschst wäscht waschen"),
        ("fahren", "fahre fährst fährt fahren"),
        ("sitzen", "sitze sitzt sitzt sitzen"),
        ("mögen", "mag magst mag mögen"),
        ("wissen", "weiß weißt weiß wissen"),
        ("sein", "bin bist ist sind"),
        ("haben", "habe hast hat haben"),
    ],
)
def test_german_present(infinitive, present):
    assert german_forms(VERBS[infinitive]).present == tuple(present.split())


# ---- Word order


def statements(count: int) -> list[Clause]:
    writer = Writer(seed=5)
    return [writer.statement().main for _ in range(count)]


def test_the_verb_is_second_first_or_last():
    for clause in statements(2000):
        finite, rest = german_verb(clause.verb, clause.tense, clause.subject.person)
        first = clause.front.de or clause.subject.german("nom")
        assert clause.german("statement").startswith(f"{first} {finite}")
        assert clause.german("statement").endswith(rest)
        assert replace(clause, front=NOTHING).german("question").startswith(f"{finite} {clause.subject.german('nom')}")
        assert clause.german("embedded").endswith(finite)


def test_nothing_but_the_verb_moves():
    for clause in statements(500):
        if clause.tense in ("can", "must", "want", "should", "future"):
            orders = [sorted(clause.german(order).split()) for order in ("statement", "question", "embedded")]
            assert orders[0] == orders[1] == orders[2]


SEPARABLE = {
    "aufmachen": ("macht", "auf", "aufgemacht", "aufzumachen", "aufmacht"),
    "zumachen": ("macht", "zu", "zugemacht", "zuzumachen", "zumacht"),
    "einschalten": ("schaltet", "ein", "eingeschaltet", "einzuschalten", "einschaltet"),
    "ausschalten": ("schaltet", "aus", "ausgeschaltet", "auszuschalten", "ausschaltet"),
    "anziehen": ("zieht", "an", "angezogen", "anzuziehen", "anzieht"),
    "aufräumen": ("räumt", "auf", "aufgeräumt", "aufzuräumen", "aufräumt"),
    "einladen": ("lädt", "ein", "eingeladen", "einzuladen", "einlädt"),
    "anrufen": ("ruft", "an", "angerufen", "anzurufen", "anruft"),
    "abholen": ("holt", "ab", "abgeholt", "abzuholen", "abholt"),
    "zuhören": ("hört", "zu", "zugehört", "zuzuhören", "zuhört"),
    "ankommen": ("kommt", "an", "angekommen", "anzukommen", "ankommt"),
    "abfahren": ("fährt", "ab", "abgefahren", "abzufahren", "abfährt"),
    "aufstehen": ("steht", "auf", "aufgestanden", "aufzustehen", "aufsteht"),
}


def test_every_separable_verb_is_checked():
    assert SEPARABLE.keys() == {infinitive for infinitive, verb in VERBS.items() if "|" in verb.de}


@pytest.mark.parametrize("infinitive", SEPARABLE)
def test_separable_verbs(infinitive):
    finite, prefix, participle, to_infinitive, joined = SEPARABLE[infinitive]
    clause = Clause(PRONOUNS["she"], VERBS[infinitive], object=phrase("man") if VERBS[infinitive].object else None)
    has = {"haben": "hat", "sein": "ist"}[german_forms(VERBS[infinitive]).auxiliary]
    man = f" {clause.object.german(clause.verb.case)}" if clause.object else ""
    assert clause.german() == f"sie {finite}{man} {prefix}"
    assert clause.german("question") == f"{finite} sie{man} {prefix}"
    assert clause.german("embedded") == f"sie{man} {joined}"
    assert clause.german("infinitive") == f"{man} {to_infinitive}".strip()
    assert replace(clause, tense="past").german() == f"sie {has}{man} {participle}"
    assert replace(clause, tense="past").german("embedded") == f"sie{man} {participle} {has}"
    assert replace(clause, tense="want").german() == f"sie will{man} {infinitive}"
    assert replace(clause, tense="future").german("embedded") == f"sie{man} {infinitive} wird"


# ---- Translations by hand

ME, YOU, HE, SHE, WE, THEY = PRONOUNS.values()
YESTERDAY, TOMORROW, TODAY = Adverb("yesterday", "gestern"), Adverb("tomorrow", "morgen"), Adverb("today", "heute")
IN_GARDEN = PrepositionalPhrase(Preposition("in", "in", "dat"), phrase("garden"))
ON_TABLE = PrepositionalPhrase(Preposition("on", "auf", "dat"), phrase("table"))
ONTO_TABLE = PrepositionalPhrase(Preposition("on", "auf", "acc"), phrase("table"))


def clause(subject, infinitive: str, tense: str = "simple", object_=None, **rest) -> Clause:
    return Clause(subject, VERBS[infinitive], tense, object_, **rest)


def described(noun_phrase: NounPhrase, infinitive: str, tense: str = "simple", subject=None, **rest) -> NounPhrase:
    """The phrase with a relative clause, whose object it is if there is a `subject`."""
    pronoun = relative_pronoun(noun_phrase)
    objects = {"object_": pronoun} if subject else {}
    return replace(noun_phrase, relative=clause(subject or pronoun, infinitive, tense, **objects, **rest))


TRANSLATIONS = [
    # Tenses and modal verbs
    (
        Sentence(clause(phrase("woman"), "lesen", "progressive", phrase("book", "a", "old"))),
        "The woman is reading an old book.",
        "Die Frau liest ein altes Buch.",
    ),
    (
        Sentence(clause(phrase("woman"), "lesen", "future", phrase("letter"), front=TOMORROW)),
        "Tomorrow the woman will read the letter.",
        "Morgen wird die Frau den Brief lesen.",
    ),
    (
        Sentence(
            clause(THEY, "gehen", "past", target=PrepositionalPhrase(Preposition("to", "in", "acc"), phrase("park")))
        ),
        "They went to the park.",
        "Sie sind in den Park gegangen.",
    ),
    (
        Sentence(clause(YOU, "essen", "want", phrase("apple", "", "fresh", plural=True, number=2))),
        "You want to eat two fresh apples.",
        "Du willst zwei frische Äpfel essen.",
    ),
    (
        Sentence(clause(phrase("girl", "every"), "trinken", "like", phrase("milk", "", "cold"))),
        "Every girl likes to drink cold milk.",
        "Jedes Mädchen trinkt gern kalte Milch.",
    ),
    # Cases and prepositions
    (
        Sentence(clause(phrase("man"), "geben", "perfect", phrase("key", "his"), to_whom=phrase("boy", "this"))),
        "The man has given this boy his key.",
        "Der Mann hat diesem Jungen seinen Schlüssel gegeben.",
    ),
    (
        Sentence(clause(SHE, "legen", "past", phrase("newspaper"), target=ONTO_TABLE, time=YESTERDAY)),
        "She put the newspaper on the table yesterday.",
        "Sie hat gestern die Zeitung auf den Tisch gelegt.",
    ),
    (
        Sentence(clause(phrase("newspaper"), "liegen", target=ON_TABLE)),
        "The newspaper lies on the table.",
        "Die Zeitung liegt auf dem Tisch.",
    ),
    (
        Sentence(
            clause(phrase("child", plural=True), "helfen", "should", phrase("neighbor", "their"), place=IN_GARDEN)
        ),
        "The children should help their neighbor in the garden.",
        "Die Kinder sollten ihrem Nachbarn im Garten helfen.",
    ),
    (
        Sentence(
            clause(WE, "warten", "progressive", target=PrepositionalPhrase(Preposition("for", "auf", "acc"), HE))
        ),
        "We are waiting for him.",
        "Wir warten auf ihn.",
    ),
    (
        Sentence(clause(THIS, "sein", object_=phrase("dog", "a", "big", "black"))),
        "This is a big black dog.",
        "Das ist ein großer schwarzer Hund.",
    ),
    (
        Sentence(clause(THESE, "sein", object_=phrase("shirt", "my", "dirty", plural=True))),
        "These are my dirty shirts.",
        "Das sind meine schmutzigen Hemden.",
    ),
    # Time, manner, place
    (
        Sentence(
            clause(
                phrase("Paul", ""),
                "fahren",
                "must",
                target=PrepositionalPhrase(Preposition("to", "nach", "dat"), phrase("Munich", "")),
                manner=Adverb("by train", "mit dem Zug"),
                time=clock_time(7, 30),
            )
        ),
        "Paul must travel to Munich by train at half past seven.",
        "Paul muss um halb acht mit dem Zug nach München fahren.",
    ),
    (
        Sentence(clause(ME, "kaufen", "past", phrase("egg", "", plural=True, number=21), time=YESTERDAY)),
        "I bought twenty-one eggs yesterday.",
        "Ich habe gestern einundzwanzig Eier gekauft.",
    ),
    (
        Sentence(clause(SHE, "besuchen", object_=phrase("aunt", "her"), often=Adverb("often", "oft"))),
        "She often visits her aunt.",
        "Sie besucht ihre Tante oft.",
    ),
    # Negation
    (
        Sentence(clause(HE, "lesen", "past", phrase("book"), time=YESTERDAY, negated=True)),
        "He did not read the book yesterday.",
        "Er hat das Buch gestern nicht gelesen.",
    ),
    (
        Sentence(clause(phrase("doctor"), "haben", object_=phrase("car", "a", "new"), negated=True)),
        "The doctor does not have a new car.",
        "Der Arzt hat kein neues Auto.",
    ),
    (
        Sentence(clause(phrase("cat"), "schlafen", "can", place=IN_GARDEN, negated=True)),
        "The cat cannot sleep in the garden.",
        "Die Katze kann nicht im Garten schlafen.",
    ),
    (
        Sentence(clause(THEY, "zumachen", object_=phrase("door"), time=TODAY, negated=True, tense="progressive")),
        "They are not closing the door today.",
        "Sie machen die Tür heute nicht zu.",
    ),
    # Questions
    (
        Sentence(clause(YOU, "anrufen", object_=phrase("Anna", "")), question=True),
        "Do you call Anna?",
        "Rufst du Anna an?",
    ),
    (
        Sentence(clause(WHO, "abholen", "past", SHE, time=YESTERDAY), question=True),
        "Who picked her up yesterday?",
        "Wer hat sie gestern abgeholt?",
    ),
    (
        Sentence(clause(phrase("teacher"), "helfen", "progressive", WHO), question=True),
        "Who is the teacher helping?",
        "Wem hilft der Lehrer?",
    ),
    (
        Sentence(clause(SHE, "anziehen", "progressive", WHAT), question=True),
        "What is she putting on?",
        "Was zieht sie an?",
    ),
    (
        Sentence(clause(phrase("bus"), "abfahren", front=Adverb("when", "wann")), question=True),
        "When does the bus leave?",
        "Wann fährt der Bus ab?",
    ),
    (
        Sentence(clause(phrase("grandmother", "your"), "gehen", "progressive", front=WHERE_TO), question=True),
        "Where is your grandmother going?",
        "Wohin geht deine Großmutter?",
    ),
    (
        Sentence(clause(HE, "arbeiten", "past", front=WHERE), question=True),
        "Where did he work?",
        "Wo hat er gearbeitet?",
    ),
    (
        Sentence(clause(YOU, "kommen", front=WHY, negated=True, target=Adverb("home", "nach Hause")), question=True),
        "Why do you not come home?",
        "Warum kommst du nicht nach Hause?",
    ),
    (
        Sentence(clause(THEY, "brauchen", object_=phrase("chair", "how many", plural=True)), question=True),
        "How many chairs do they need?",
        "Wie viele Stühle brauchen sie?",
    ),
    (
        Sentence(clause(SHE, "tragen", "future", phrase("coat", "which", "red")), question=True),
        "Which red coat will she wear?",
        "Welchen roten Mantel wird sie tragen?",
    ),
    # Two clauses
    (
        Sentence(
            clause(phrase("woman"), "einschalten", object_=phrase("lamp")),
            link="because",
            second=clause(IT["n"], "sein", target=ADJECTIVES["dark"]),
        ),
        "The woman turns on the lamp because it is dark.",
        "Die Frau schaltet die Lampe ein, weil es dunkel ist.",
    ),
    (
        Sentence(
            clause(HE, "aufstehen", "past", time=YESTERDAY, negated=True),
            link="although",
            second=clause(phrase("man"), "haben", "past", phrase("time", "")),
            first=True,
        ),
        "Although the man had time, he did not get up yesterday.",
        "Obwohl der Mann Zeit hatte, ist er gestern nicht aufgestanden.",
    ),
    (
        Sentence(
            clause(phrase("uncle", "my"), "kaufen", "progressive", phrase("cake", "a", "good")),
            link="because",
            second=clause(HE, "essen", "want", pronoun_for(phrase("cake", "a"))),
        ),
        "My uncle is buying a good cake because he wants to eat it.",
        "Mein Onkel kauft einen guten Kuchen, weil er ihn essen will.",
    ),
    (
        Sentence(
            clause(YOU, "wissen"),
            question=True,
            link="whether",
            second=clause(
                described(phrase("dog"), "suchen", "progressive", SHE), "schlafen", "progressive", place=IN_GARDEN
            ),
        ),
        "Do you know whether the dog that she is looking for is sleeping in the garden?",
        "Weißt du, ob der Hund, den sie sucht, im Garten schläft?",
    ),
    (
        Sentence(
            clause(HE, "glauben", negated=True),
            link="that",
            second=clause(phrase("boy", plural=True), "aufräumen", "perfect", phrase("kitchen")),
        ),
        "He does not believe that the boys have tidied the kitchen.",
        "Er glaubt nicht, dass die Jungen die Küche aufgeräumt haben.",
    ),
    (
        Sentence(
            clause(ME, "vergessen", "perfect"), link="to", second=clause(ME, "aufmachen", object_=phrase("window"))
        ),
        "I have forgotten to open the window.",
        "Ich habe vergessen, das Fenster aufzumachen.",
    ),
    (
        Sentence(
            clause(SHE, "gehen", target=PrepositionalPhrase(Preposition("into", "in", "acc"), phrase("shop"))),
            link="in order to",
            second=clause(SHE, "kaufen", object_=phrase("bread", "", "fresh")),
        ),
        "She goes into the shop to buy fresh bread.",
        "Sie geht in den Laden, um frisches Brot zu kaufen.",
    ),
    (
        Sentence(
            clause(phrase("father", "my"), "trinken", object_=phrase("coffee", "")),
            link="but",
            second=clause(phrase("mother", "my"), "trinken", object_=phrase("tea", "")),
        ),
        "My father drinks coffee, but my mother drinks tea.",
        "Mein Vater trinkt Kaffee, aber meine Mutter trinkt Tee.",
    ),
    (
        Sentence(
            clause(ME, "kochen", "progressive", phrase("soup", "")),
            link="while",
            second=clause(YOU, "aufräumen", "progressive", phrase("room", "your")),
        ),
        "I am cooking soup while you are tidying your room.",
        "Ich koche Suppe, während du dein Zimmer aufräumst.",
    ),
    # Relative clauses
    (
        Sentence(clause(described(phrase("man"), "sehen", object_=phrase("woman")), "arbeiten", "progressive")),
        "The man who sees the woman is working.",
        "Der Mann, der die Frau sieht, arbeitet.",
    ),
    (
        Sentence(clause(described(phrase("man"), "sehen", subject=phrase("woman")), "arbeiten", "progressive")),
        "The man who the woman sees is working.",
        "Der Mann, den die Frau sieht, arbeitet.",
    ),
    (
        Sentence(
            clause(
                SHE, "kennen", object_=described(phrase("child", plural=True), "zuhören", "past", HE, time=YESTERDAY)
            )
        ),
        "She knows the children who he listened to yesterday.",
        "Sie kennt die Kinder, denen er gestern zugehört hat.",
    ),
    (
        Sentence(
            clause(HE, "verkaufen", "perfect", described(phrase("car"), "reparieren", "past", WE, time=YESTERDAY)),
        ),
        "He has sold the car that we repaired yesterday.",
        "Er hat das Auto verkauft, das wir gestern repariert haben.",
    ),
]


@pytest.mark.parametrize(("sentence", "english", "german"), TRANSLATIONS, ids=[pair[1] for pair in TRANSLATIONS])
def test_translations(sentence, english, german):
    assert sentence.english() == english
    assert sentence.german() == german


def test_what_comes_back_as_which_pronoun():
    assert pronoun_for(phrase("key")) == IT["m"]
    assert pronoun_for(phrase("lamp")) == IT["f"]
    assert pronoun_for(phrase("car", plural=True)) == THEY
    assert pronoun_for(phrase("waitress")) == SHE
    assert pronoun_for(Both(phrase("man"), phrase("woman"))) == THEY
    assert pronoun_for(phrase("girl")) is None
