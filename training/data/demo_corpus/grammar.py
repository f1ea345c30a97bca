"""An English-German corpus without a download: tens of thousands of sentence pairs from a small grammar.

Each sentence is generated once, as a `Clause` that says who does what, where and when. It is then written twice, in
English and in German word order. No translation is stored, so articles, genders, cases, endings and verb positions
always agree, and a model that learns the corpus must reorder words like a translator:

    Our grandfather turns on the big lamps because it is dark.
    Unser Großvater schaltet die großen Lampen ein, weil es dunkel ist.

    Now Anna can read the interesting letter that she looked for on Saturday.
    Jetzt kann Anna den interessanten Brief lesen, den sie am Samstag gesucht hat.

    The man who I know reads four letters at half past five.
    Der Mann, den ich kenne, liest um halb sechs vier Briefe.

The words and their forms are in `lexicon`. This module builds phrases, clauses and sentences from them. A `Writer`
generates random sentences, and `demo_corpus` divides them into three splits.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal, NamedTuple, TypeVar, cast

from vanilla_transformer.training.data.demo_corpus.lexicon import (
    ADJECTIVES,
    ASPECTS,
    COLORS,
    KIND,
    MANY,
    NOUNS,
    PLACES,
    TWO_WAY,
    VERBS,
    WITH,
    WORN,
    Adjective,
    Adverb,
    Case,
    Noun,
    Person,
    Preposition,
    Tense,
    Verb,
    adjective_ending,
    article,
    clock_time,
    english_verb,
    entries,
    german_forms,
    german_verb,
    noun_form,
    number_word,
    with_s,
    words,
)


Split = Literal["train", "validation", "test"]
Order = Literal["statement", "question", "embedded", "infinitive"]
T = TypeVar("T")


# ---- Phrases: each has a grammatical person, and is written in a given case


class Pronoun(NamedTuple):
    """A personal pronoun, or one that `moves` to the front of its clause: "who", "what", relative pronouns."""

    en: str  # subject, object, possessive
    de: str  # nominative, accusative, dative
    person: Person
    moves: bool = False

    def english(self, case: Case) -> str:
        return self.en.split()[case != "nom"]

    def german(self, case: Case) -> str:
        return self.de.split()[("nom", "acc", "dat").index(case)]


PRONOUNS = {
    pronoun.en.split()[0]: pronoun
    for pronoun in (
        Pronoun("I me my", "ich mich mir", 0),
        Pronoun("you you your", "du dich dir", 1),
        Pronoun("he him his", "er ihn ihm", 2),
        Pronoun("she her her", "sie sie ihr", 2),
        Pronoun("we us our", "wir uns uns", 3),
        Pronoun("they them their", "sie sie ihnen", 3),
    )
}
# The German for "it" has the gender of its noun; for the weather it is neuter.
IT = {
    "m": Pronoun("it it", "er ihn ihm", 2),
    "f": Pronoun("it it", "sie sie ihr", 2),
    "n": Pronoun("it it", "es es ihm", 2),
}
THIS, THESE = Pronoun("this", "das", 2), Pronoun("these", "das", 3)
WHO, WHAT = Pronoun("who who", "wer wen wem", 2, moves=True), Pronoun("what what", "was was", 2, moves=True)


def is_name(noun: Noun) -> bool:
    return noun.en[0].isupper()


@dataclass(frozen=True)
class NounPhrase:
    """A noun with determiner, number, adjectives and relative clause; `determiner` is English, "" for none."""

    noun: Noun
    determiner: str = "the"
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    number: int | None = None
    relative: "Clause | None" = None

    @property
    def person(self) -> Person:
        return 3 if self.plural else 2

    @property
    def gender(self) -> str:
        return "p" if self.plural else self.noun.gender

    @property
    def moves(self) -> bool:
        return self.determiner in ("which", "how many")

    @property
    def indefinite(self) -> bool:
        return self.determiner in ("a", "no", "") and not is_name(self.noun)

    def english(self, case: Case) -> str:
        singular, plural = (*self.noun.en.split(), with_s(self.noun.en))[:2]
        number = number_word(self.number).en if self.number else ""
        rest = words(number, *(adjective.en for adjective in self.adjectives), plural if self.plural else singular)
        determiner = self.determiner
        if determiner == "a" and re.match("[aio]|e(?!u)|u(?!ni)", rest):  # an egg, but a euro
            determiner = "an"
        if determiner == "this" and self.plural:
            determiner = "these"
        return words(determiner, rest, self.relative.english("embedded") if self.relative else "")

    def german(self, case: Case) -> str:
        one = self.number == 1  # declined like the article
        determiner = "a" if one else self.determiner
        number = number_word(self.number).de if self.number and not one else ""
        ending = adjective_ending(determiner, case, self.gender)
        adjectives = ((adjective.stem or adjective.de) + ending for adjective in self.adjectives)
        noun = noun_form(self.noun, case, plural=self.plural)
        phrase = words(article(determiner, case, self.gender), number, *adjectives, noun)
        return f"{phrase}, {self.relative.german('embedded')}," if self.relative else phrase


class Both(NamedTuple):
    """Two phrases joined by "and"."""

    first: NounPhrase
    second: NounPhrase
    person: Person = 3
    moves: bool = False

    def english(self, case: Case) -> str:
        return f"{self.first.english(case)} and {self.second.english(case)}"

    def german(self, case: Case) -> str:
        return f"{self.first.german(case)} und {self.second.german(case)}"


Phrase = Pronoun | NounPhrase | Both


def pronoun_for(phrase: Phrase) -> Pronoun | None:
    """The pronoun for a phrase that is mentioned again.

    A girl and a child have none: German uses both "es" and "sie" or "er" for them, so the corpus avoids it.
    """
    if isinstance(phrase, Pronoun):
        return phrase
    if isinstance(phrase, Both) or phrase.person == 3:
        return PRONOUNS["they"]
    if "person" in phrase.noun.tags:
        return {"m": PRONOUNS["he"], "f": PRONOUNS["she"]}.get(phrase.noun.gender)
    return IT[phrase.noun.gender]


def existing_pronoun(phrase: Phrase) -> Pronoun:
    """The pronoun for a phrase that is known to have one."""
    pronoun = pronoun_for(phrase)
    assert pronoun is not None, phrase
    return pronoun


def relative_pronoun(phrase: NounPhrase) -> Pronoun:
    """The forms of the article, except in the dative plural: "denen"."""
    cases: tuple[Case, ...] = ("nom", "acc", "dat")
    nominative, accusative, dative = (article("the", case, phrase.gender) for case in cases)
    german = f"{nominative} {accusative} {'denen' if phrase.plural else dative}"
    return Pronoun("who who" if "person" in phrase.noun.tags else "that that", german, phrase.person, moves=True)


CONTRACTIONS = {"in dem": "im", "in das": "ins", "an dem": "am", "zu dem": "zum", "zu der": "zur"}


class PrepositionalPhrase(NamedTuple):
    """A phrase in the case that its preposition governs."""

    preposition: Preposition
    phrase: Phrase

    @property
    def en(self) -> str:
        return words(self.preposition.en, self.phrase.english(self.preposition.case))

    @property
    def de(self) -> str:
        first, second, *rest = words(self.preposition.de, self.phrase.german(self.preposition.case)).split()
        return words(CONTRACTIONS.get(f"{first} {second}", f"{first} {second}"), *rest)


Adverbial = Adverb | Adjective | PrepositionalPhrase
NOTHING = Adverb("", "")


# ---- Clauses and sentences


@dataclass(frozen=True)
class Clause:
    """Who does what, without word order; `english` and `german` write it in theirs.

    Args:
        subject: The subject. An infinitive has one too, which is not written.
        verb: The verb.
        tense: The tense, or the modal verb.
        object: The object, in the case of the verb.
        to_whom: The person in the dative, beside an object in the accusative.
        target: The complement of the verb: a goal, a place, a prepositional object or a quality.
        manner: With whom, or by what means.
        place: Where.
        often: An adverb that English puts before the main verb: "often", "already".
        time: When.
        front: What comes first instead of the subject: a time, or "where", "when" and "why".
        negated: Whether the clause is negated.
    """

    subject: Phrase
    verb: Verb
    tense: Tense = "simple"
    object: Phrase | None = None
    to_whom: Phrase | None = None
    target: Adverbial = NOTHING
    manner: Adverbial = NOTHING
    place: Adverbial = NOTHING
    often: Adverb = NOTHING
    time: Adverb = NOTHING
    front: Adverb = NOTHING
    negated: bool = False

    def english(self, order: Order = "statement") -> str:
        """Order: subject, verb, objects, complement, place, time. A question puts an auxiliary first."""
        verb, negation = self.verb, "not" if self.negated else ""
        inverted = order == "question" and not self.subject.moves
        subject, object_ = self.subject.english("nom"), self.object.english("acc") if self.object else ""
        auxiliary, main = english_verb(verb, self.tense, self.subject.person, supported=inverted or self.negated)
        if order == "infinitive":
            head = words("to", verb.en.split()[0])
        elif inverted:
            head = words(auxiliary, subject, negation, self.often.en, main)
        else:
            head = words(subject, auxiliary, negation, self.often.en, main).replace("can not", "cannot")
        moved, object_ = (object_, "") if self.object and self.object.moves else ("", object_)
        tail = [verb.particle, verb.preposition, object_]
        if verb.particle and isinstance(self.object, Pronoun):  # "turns on the lamp", but "turns it on"
            tail.reverse()
        to_whom = self.to_whom.english("dat") if self.to_whom else ""
        rest = (self.target.en, self.manner.en, self.place.en, self.time.en)
        return words(self.front.en, moved, head, to_whom, *tail, *rest)

    def german(self, order: Order = "statement") -> str:
        """The finite verb comes second in a statement, first in a question, last in an embedded clause."""
        finite, rest = german_verb(self.verb, self.tense, self.subject.person)
        first, subject, middle = self.front.de, self.subject.german("nom"), self._middle()
        if self.object and self.object.moves:
            first = self.object.german(self.verb.case)
        if self.subject.moves or (order == "statement" and not first):
            first, subject = subject, ""
        if order == "infinitive":
            parts = (*middle, german_forms(self.verb).to_infinitive)
        elif order == "embedded":
            # At the end of the clause, the prefix and the verb are one word: "macht ... auf", but "aufmacht".
            space = "" if self.tense in ("simple", "progressive", "like") else " "
            parts = (first, subject, *middle, f"{rest}{space}{finite}".strip())
        else:
            parts = (first, finite, subject, *middle, rest)
        # A relative clause comes after the complete verb: "hat das Buch gekauft, das ..."
        relative = getattr(self.object, "relative", None)
        return words(*parts, f", {relative.german('embedded')}," if relative else "")

    def _middle(self) -> tuple[str, ...]:
        """The German phrases between the finite verb and the end of the clause, without the subject.

        Pronouns come first, then known phrases, and new ones late. "Nicht" follows the known phrases. A new object is
        negated with "kein" instead.
        """
        object_, negation = self.object, "nicht" if self.negated else ""
        if isinstance(object_, NounPhrase):
            object_ = replace(object_, relative=None) if object_.relative else object_
            if self.negated and object_.indefinite and self.tense != "like":
                object_, negation = replace(object_, determiner="no"), ""
        pronouns: list[str] = []
        known: list[str] = []
        new: list[str] = []
        roles: tuple[tuple[Phrase | None, Case], ...] = ((self.to_whom, "dat"), (object_, self.verb.case))
        for phrase, case in roles:
            if phrase and not phrase.moves:
                is_new = phrase is object_ and isinstance(phrase, NounPhrase) and phrase.indefinite
                slot = pronouns if isinstance(phrase, Pronoun) else new if is_new else known
                slot.append(phrase.german(case))
        comment = words(negation, self.often.de, "gern" if self.tense == "like" else "")
        known = [*known, self.time.de] if comment else [self.time.de, *known]
        return (*pronouns, *known, comment, self.manner.de, self.place.de, *new, self.target.de)


class Link(NamedTuple):
    """The conjunction before a second clause, with its comma, and the word order of that clause."""

    english: str
    german: str
    order: Order


LINKS = {
    "because": Link("because", ", weil", "embedded"),
    "although": Link("although", ", obwohl", "embedded"),
    "if": Link("if", ", wenn", "embedded"),
    "when": Link("when", ", wenn", "embedded"),
    "while": Link("while", ", während", "embedded"),
    "that": Link("that", ", dass", "embedded"),
    "whether": Link("whether", ", ob", "embedded"),
    "why": Link("why", ", warum", "embedded"),
    "to": Link("", ",", "infinitive"),
    "in order to": Link("", ", um", "infinitive"),
    "and": Link(", and", "und", "statement"),
    "but": Link(", but", ", aber", "statement"),
}


@dataclass(frozen=True)
class Sentence:
    """A main clause and, with one of `LINKS`, an optional second clause, which may come `first`."""

    main: Clause
    question: bool = False
    link: str = ""
    second: Clause | None = None
    first: bool = False

    def english(self) -> str:
        return self._written("english", "question" if self.question else "statement")

    def german(self) -> str:
        # A second clause that comes first fills the position before the verb.
        return self._written("german", "question" if self.question or self.first else "statement")

    def _written(self, language: Literal["english", "german"], order: Order) -> str:
        text = getattr(self.main, language)(order)
        if self.second:
            link = LINKS[self.link]
            second = words(getattr(link, language), getattr(self.second, language)(link.order))
            text = f"{second}, {text}" if self.first else f"{text} {second}"
        text = re.sub("[ ,]*,", ",", text).strip(" ,")
        return text[0].upper() + text[1:] + ("?" if self.question else ".")


# ---- Times, places, and which verbs and adjectives go together

AT_HOME, HOME = Adverb("at home", "zu Hause"), Adverb("home", "nach Hause")
RIDES = tuple(Adverb(f"by {ride.en}", f"mit dem {ride.de}") for ride in entries("car=Auto bus=Bus train=Zug"))
WHERE, WHERE_TO, WHEN, WHY = entries("where=wo where=wohin when=wann why=warum")
NOW, TODAY, TOMORROW, YESTERDAY = entries("now=jetzt today=heute tomorrow=morgen yesterday=gestern")
WEEK = "Monday=Montag Tuesday=Dienstag Wednesday=Mittwoch Thursday=Donnerstag Friday=Freitag Saturday=Samstag"
WEEKDAYS = tuple(Adverb(f"on {day.en}", f"am {day.de}") for day in entries(f"{WEEK} Sunday=Sonntag"))
DAYS = (YESTERDAY, TOMORROW, *WEEKDAYS)
MORNING, EVENING = Adverb("in the morning", "am Morgen"), Adverb("in the evening", "am Abend")
# The past always has a time, which also distinguishes "they read" (present) from "they read" (past).
TIMES = {
    "simple": (Adverb("every day", "jeden Tag"), MORNING, EVENING),
    "like": (MORNING, EVENING),
    "progressive": (NOW, TODAY),
    "past": (YESTERDAY, YESTERDAY, *WEEKDAYS, Adverb("last week", "letzte Woche")),
    "future": (TOMORROW, TOMORROW, *WEEKDAYS, Adverb("next week", "nächste Woche")),
    **dict.fromkeys(("can", "must", "want", "should"), (NOW, TODAY, TOMORROW)),
}
OFTEN = {
    "simple": entries("often=oft always=immer sometimes=manchmal never=nie"),
    "perfect": (*entries("already=schon just=gerade"), Adverb("never", "noch nie")),
}
MINUTES = (0, 0, 0, 5, 10, 15, 15, 20, 30, 30, 40, 45, 45, 50, 55)
TENSE_IN_QUESTIONS: dict[Tense, Tense] = {"must": "future", "should": "can"}
CONDITIONS: tuple[tuple[str, tuple[Tense, ...]], ...] = (("if", ("future", "can", "should")), ("when", ("simple",)))
SKIES = {sky.en: sky for sky in entries("cold=kalt hot=heiß dark=dunkel late=spät")}
MOODS = tuple(ADJECTIVES[en] for en in ("tired", "sick", "hungry", "sad", "happy"))

# DEEDS: verbs for any sentence. ACTS: what people do on purpose. CHOICES: what people need a reason for. RELATABLE:
# verbs for relative clauses, without those that create their object, such as writing a letter.
DEEDS = tuple(verb for verb in VERBS.values() if verb.aspect in ASPECTS)
ACTS = tuple(v for v in DEEDS if v.aspect in ("routine", "action", "stay") and v.subject == "person")
CHOICES = tuple(verb for verb in ACTS if not verb.to_whom and not (verb.object and verb.by))
RELATABLE = tuple(verb for verb in DEEDS if verb not in (VERBS["schreiben"], VERBS["kochen"], VERBS["aufräumen"]))


@cache
def fits(noun: Noun, tags: str) -> bool:
    """Whether the noun has one of the tags, or is itself one of them."""
    return any(tag in (noun.en.split()[0], *noun.tags.split()) for tag in tags.split())


@cache
def nouns(tags: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in NOUNS.values() if fits(noun, tags))


@cache
def qualities(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that can describe the noun."""
    return tuple(adjective for adjective in ADJECTIVES.values() if fits(noun, adjective.fits))


def noun_of(phrase: Phrase | None) -> Noun | None:
    return phrase.noun if isinstance(phrase, NounPhrase) else None


def nouns_of(phrase: Phrase) -> tuple[Noun, ...]:
    if isinstance(phrase, Both):
        return phrase.first.noun, phrase.second.noun
    return (phrase.noun,) if isinstance(phrase, NounPhrase) else ()


def quantified(phrase: Phrase | None) -> bool:
    """Whether a negation beside the phrase would be ambiguous."""
    return isinstance(phrase, NounPhrase) and (phrase.determiner in ("every", "no") or phrase.number is not None)


def object_pronouns(subject: Phrase) -> tuple[Pronoun, ...]:
    """The pronouns that can be the object: not "I ... me", "we ... me" or "he ... him"."""
    speaker = PRONOUNS["I"], PRONOUNS["we"]
    same = speaker if subject in speaker else (pronoun_for(subject),)
    return tuple(pronoun for pronoun in PRONOUNS.values() if pronoun not in same)


def causes(clause: Clause, subject: Phrase) -> list[tuple[Phrase, Adverbial]]:
    """What explains a clause: a state of its object, of its subject or of the weather."""
    object_, noun = clause.object, noun_of(clause.object)
    # Nothing more is said of an object with an adjective, nor of a negated one ("no book").
    is_closed = isinstance(object_, NounPhrase) and bool(object_.adjectives or (clause.negated and object_.indefinite))
    states: list[tuple[Phrase, Adverbial]] = []
    for en in clause.verb.because.split():
        if en in SKIES:
            if noun is None or (fits(noun, "weather") and ADJECTIVES.get(en) not in qualities(noun)):
                states.append((IT["n"], SKIES[en]))
            continue
        adjective = ADJECTIVES[en]
        suits_object = isinstance(object_, Pronoun) or (noun is not None and adjective in qualities(noun))
        if object_ is not None and suits_object:
            pronoun = None if is_closed else pronoun_for(object_)
            if pronoun is not None:
                states.append((pronoun, adjective))
        elif adjective in MOODS and "person" not in clause.verb.object:
            states.append((subject, adjective))
    return states


def with_time_in_front(clause: Clause) -> Clause:
    """The clause with its time first, where it cannot be read as the time of a following clause."""
    return clause if clause.time is NOTHING else replace(clause, front=clause.time, time=NOTHING)


# ---- The writer


class Writer:
    """Generates random sentences. A seed gives the same ones on every machine and in every version of Python.

    For that, every decision is a call of `Random.random`: Python guarantees its sequence for a seed, but not those of
    `choice`, `choices` and `sample`.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    # Phrases

    def phrase(
        self, noun: Noun, which: str, *, owner: Phrase | None = None, plurals: float = 0.25, most: int = 4
    ) -> NounPhrase:
        """A phrase for a noun.

        Args:
            noun: The noun.
            which: The determiners to pick from, as for the objects of a `Verb`.
            owner: Who may own it, for possessives.
            plurals: Probability of the plural.
            most: The highest number.
        """
        if is_name(noun):
            return NounPhrase(noun, "")
        determiner = "my" if fits(noun, "family") else self.pick(which.split())
        if determiner == "my":
            can_be_owned = fits(noun, "own") or not fits(noun, "person place transport")
            determiner = self.possessive(owner) if can_be_owned else "the"
        countable = noun.de_plural != ""
        number = self.between(2, most) if countable and determiner == "number" else None
        plural = countable and (number is not None or determiner == "all" or self.chance(plurals))
        if determiner in ("all", "number") or (determiner == "a" and (plural or not countable)):
            determiner = ""
        return NounPhrase(noun, determiner, plural and determiner != "every", self.adjectives(noun), number)

    def possessive(self, owner: Phrase | None) -> str:
        """Mostly that of the owner; without an owner, any."""
        pronoun = pronoun_for(owner) if owner else None
        if pronoun is not None and pronoun in PRONOUNS.values() and self.chance(0.6):
            return pronoun.en.split()[2]
        return self.pick(("my", "your", "our") if owner else ("my", "your", "his", "her", "our", "their"))

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        """No adjective, one, or one and a color."""
        options = qualities(noun)
        if not options or self.chance(0.9 if fits(noun, "family") else 0.8 if fits(noun, "person") else 0.6):
            return ()
        first, second = self.pick(options), self.pick(options)
        return (first, second) if second.en in COLORS and first.en not in COLORS else (first,)

    def subject(self, tags: str, *, known: bool = False, pronouns: str = "I I you you he she we they") -> Phrase:
        """A subject with one of the tags; if `known`, not "a child", "every child" or "no child"."""
        if "person" in tags.split():
            if self.chance(0.4):
                return PRONOUNS[self.pick(pronouns.split())]
            if self.chance(0.08):
                first, second = (self.phrase(self.pick(nouns("adult first")), "the", plurals=0) for _ in range(2))
                return Both(first, second) if first.noun != second.noun else first
        noun = self.pick(nouns(tags))
        if known or not fits(noun, "person animal"):
            return self.phrase(noun, "the the the my this" if fits(noun, "person animal") else "the the the this")
        if self.chance(0.1):
            return self.phrase(noun, "a", plurals=0)
        return self.phrase(noun, "the the the my my this every no number")

    def person(self) -> Phrase:
        """A person that has a pronoun."""
        while not pronoun_for(person := self.subject("person", known=True)):
            pass
        return person

    def companion(self, subject: Phrase, tags: str = "person", plurals: float = 0.25) -> NounPhrase:
        """A person other than the subject."""
        noun = self.pick([noun for noun in nouns(tags) if noun not in nouns_of(subject)])
        return self.phrase(noun, "the the my my this a", owner=subject, plurals=plurals)

    def somebody(self, subject: Phrase) -> Phrase:
        """A person other than the subject, possibly a pronoun."""
        return self.pick(object_pronouns(subject)) if self.chance(0.35) else self.companion(subject)

    def object(self, verb: Verb, subject: Phrase) -> Phrase:
        noun = self.pick(nouns(verb.object))
        if fits(noun, "person"):
            return self.somebody(subject)
        if fits(noun, "means"):
            return NounPhrase(noun, "")
        plurals = 0.6 if fits(noun, "many") else 0 if fits(noun, "place") else 0.2
        if verb.which == WORN:  # each person wears one
            plurals = float(subject.person == 3)
        most = 99 if verb.which == MANY and fits(noun, "many") else 4
        return self.phrase(noun, verb.which, owner=subject, plurals=plurals, most=most)

    def located(self, noun: Noun, by: Preposition | Literal["at", "to"], owner: Phrase) -> PrepositionalPhrase:
        """The noun after a preposition: the given one, that of a place, or any for a piece of furniture."""
        if isinstance(by, Preposition):
            preposition = by
        else:
            preposition = PLACES[noun.en][by == "to"] if noun.en in PLACES else self.pick(TWO_WAY[by])
        return PrepositionalPhrase(preposition, self.phrase(noun, "the the the my", owner=owner, plurals=0))

    def target(self, verb: Verb, subject: Phrase) -> Adverbial:
        if not verb.by:
            return NOTHING
        if "home" in verb.target and (verb.target == "home" or self.chance(0.3)):
            return AT_HOME if verb.by == "at" else HOME
        noun = self.pick(nouns(verb.target))
        if fits(noun, "person"):
            assert isinstance(verb.by, Preposition), verb
            return PrepositionalPhrase(verb.by, self.somebody(subject))
        return self.located(noun, verb.by, subject)

    def manner(self, verb: Verb, subject: Phrase) -> Adverbial:
        if not verb.manner or self.chance(0.7):
            return NOTHING
        if self.pick(verb.manner.split()) == "by":
            return self.pick(RIDES)
        return PrepositionalPhrase(WITH, self.companion(subject, "adult family first dog", plurals=0))

    # Clauses

    def tense(self, verb: Verb, *among: Tense) -> Tense:
        """One of the tenses of the verb; one `among` the given ones if it has any of them."""
        tenses = cast(list[Tense], ASPECTS[verb.aspect].split())
        return self.pick([tense for tense in tenses if tense in among] or tenses)

    def clause(self, verb: Verb, subject: Phrase, tense: Tense | None = None, *, brief: bool = False) -> Clause:
        """A clause without a time; a `brief` one has only what the verb requires."""
        placed = verb.places and not brief and self.chance(0.4)
        return Clause(
            subject,
            verb,
            tense or self.tense(verb),
            object=self.object(verb, subject) if verb.object else None,
            to_whom=self.somebody(subject) if verb.to_whom else None,
            target=self.target(verb, subject),
            manner=NOTHING if brief else self.manner(verb, subject),
            place=self.located(self.pick(nouns(verb.places)), "at", subject) if placed else NOTHING,
        )

    def timed(self, clause: Clause, *, front: bool = True) -> Clause:
        """The clause with an adverb that fits its tense, possibly in `front`."""
        tense, aspect = clause.tense, clause.verb.aspect
        scheduled = aspect in ("schedule", "timetable")
        if tense not in (*TIMES, *OFTEN) or (tense == "simple" and not scheduled and aspect != "routine"):
            return clause
        if tense in OFTEN and aspect != "timetable" and not quantified(clause.subject) and self.chance(0.3):
            return replace(clause, often=self.pick(OFTEN[tense]))
        if tense == "perfect" or not (tense == "past" or scheduled or self.chance(0.6)):
            return clause
        time, clock = self.pick(TIMES[tense]), clock_time(self.between(1, 12), self.pick(MINUTES))
        if tense == "simple" and self.chance(0.8 if scheduled else 0.4):
            time = clock
        elif time in DAYS and self.chance(0.6 if scheduled else 0 if aspect == "stay" else 0.2):
            time = Adverb(f"{time.en} {clock.en}", f"{time.de} {clock.de}")
        return replace(clause, front=time) if front and self.chance(0.4) else replace(clause, time=time)

    def perhaps_negated(self, clause: Clause, probability: float = 0.15) -> Clause:
        """The clause, negated with this probability unless another word, such as "every day", makes that ambiguous."""
        clear = (
            clause.often is NOTHING
            and clause.tense != "must"
            and all(time in (NOTHING, NOW, TODAY, *DAYS) for time in (clause.time, clause.front))
            and not quantified(clause.subject)
            and not quantified(clause.object)
            # "keinem" and "keiner" would be too rare to be learned
            and not (clause.verb.case == "dat" and isinstance(clause.object, NounPhrase) and clause.object.indefinite)
        )
        return replace(clause, negated=True) if clear and self.chance(probability) else clause

    def weather(self, tense: Tense, skies: Sequence[Adverb]) -> Clause:
        if self.chance(0.25):
            return Clause(IT["n"], VERBS["regnen"], "progressive" if tense == "simple" else tense)
        return Clause(IT["n"], VERBS["sein"], tense, target=self.pick(skies))

    def cause(self, main: Clause, subject: Phrase, tense: Tense, *, helpful: bool) -> Clause | None:
        """The reason why `subject` does it or, if not `helpful`, a reason against it."""
        if main.verb.because:
            options = causes(main, subject)
            if not options:
                return None
            about, state = self.pick(options)
            return Clause(about, VERBS["sein"], tense, target=state, negated=not helpful)
        if not helpful and self.chance(0.4):
            noun = noun_of(main.object)  # "it is cold" must not seem to be about the object
            skies = [sky for en, sky in SKIES.items() if not noun or ADJECTIVES.get(en) not in qualities(noun)]
            return self.weather(tense, skies)
        if self.chance(0.5):
            return Clause(subject, VERBS["haben"], tense, NounPhrase(NOUNS["time"], ""), negated=not helpful)
        return Clause(subject, VERBS["sein"], tense, target=self.pick(MOODS[: 1 if helpful else 2]), negated=helpful)

    # Sentences

    def statement(self) -> Sentence:
        verb = self.pick(DEEDS)
        return Sentence(self.perhaps_negated(self.timed(self.clause(verb, self.subject(verb.subject)))))

    def question_clause(self, verb: Verb) -> Clause:
        """A clause for a question: not about the speaker, and without "must" and "should"."""
        clause = self.clause(verb, self.subject(verb.subject, known=True, pronouns="you you you he she they"))
        return replace(clause, tense=TENSE_IN_QUESTIONS.get(clause.tense, clause.tense))

    def yes_no_question(self) -> Sentence:
        clause = self.question_clause(self.pick(DEEDS))
        if self.chance(0.4):
            clause = replace(clause, tense=self.tense(clause.verb, "simple", "progressive"))
        return Sentence(self.timed(clause, front=False), question=True)

    def who_question(self) -> Sentence:
        verb = self.pick([verb for verb in DEEDS if verb.subject == "person"])
        return Sentence(self.timed(self.clause(verb, WHO), front=False), question=True)

    def object_question(self) -> Sentence:
        """ "What", "who", "which" and "how many"."""
        verb = self.pick([verb for verb in DEEDS if verb.object])
        clause = self.timed(self.question_clause(verb), front=False)
        noun = noun_of(clause.object) or NOUNS["man"]
        single = not noun.de_plural or fits(noun, "place") or verb.case == "dat"
        # "What" does not tell which of the two German verbs for "put" is meant.
        if single or (self.chance(0.5) and verb.en != VERBS["legen"].en):
            return Sentence(replace(clause, object=WHO if fits(noun, "person") else WHAT), question=True)
        counted = fits(noun, "many person animal") and self.chance(0.5)
        object_ = NounPhrase(noun, "how many" if counted else "which", plural=counted or self.chance(0.2))
        return Sentence(replace(clause, object=object_), question=True)

    def adverb_question(self) -> Sentence:
        """ "Where", "when" and "why"."""
        verb = self.pick(DEEDS)
        clause, options = self.question_clause(verb), [WHY]
        if verb.by in ("at", "to") and verb.target != "home":
            options += [WHERE if verb.by == "at" else WHERE_TO] * 2
        elif verb.places:
            options += [WHERE] * 2
        if verb.aspect in ("routine", "action", "schedule", "timetable") and clause.tense in TIMES:
            options += [WHEN] * 2
        front = self.pick(options)
        if front is WHY:
            clause = self.perhaps_negated(clause, 0.3)
        elif front is not WHEN:
            clause = replace(clause, place=NOTHING, target=NOTHING)
        return Sentence(replace(clause, front=front), question=True)

    def reason(self) -> Sentence | None:
        """ "Because" and "although"."""
        verb, first = self.pick(CHOICES), self.chance(0.4)
        main = self.clause(verb, self.person(), self.tense(verb, "simple", "progressive", "past", "want"), brief=True)
        main = self.perhaps_negated(
            self.timed(main, front=not first) if main.tense in ("progressive", "past") else main, 0.35
        )
        noun = noun_of(main.object)
        plans = [VERBS[de] for de in verb.then.split() if noun is not None and fits(noun, VERBS[de].object)]
        if not plans or main.negated or main.tense == "past":
            return self.with_cause(main, self.pick(("because", "although")), first)
        assert main.object is not None  # plans are made for an object
        plan, subject = self.pick(plans), existing_pronoun(main.subject)
        tense: Tense = "simple" if plan.aspect == "state" else "want"
        return Sentence(main, link="because", second=Clause(subject, plan, tense, pronoun_for(main.object)))

    def condition(self) -> Sentence | None:
        """ "If" and "when"."""
        link, tenses = self.pick(CONDITIONS)
        main = self.clause(self.pick(CHOICES), self.person(), self.pick(tenses), brief=True)
        main = main if main.tense == "can" else self.perhaps_negated(main, 0.3)
        return self.with_cause(main, link, self.chance(0.6))

    def with_cause(self, main: Clause, link: str, first: bool) -> Sentence | None:
        """The clause with its cause, possibly `first`. The clause that comes second has a pronoun for the person."""
        pronoun = existing_pronoun(main.subject)
        tense: Tense = "past" if main.tense == "past" else "simple"
        cause = self.cause(main, pronoun, tense, helpful=main.negated == (link == "although"))
        if cause is None:
            return None
        if not first or (main.object and cause.subject == pronoun_for(main.object)):
            return Sentence(main, link=link, second=cause)
        if cause.subject == pronoun:
            main, cause = replace(main, subject=pronoun), replace(cause, subject=main.subject)
        return Sentence(main, link=link, second=cause, first=True)

    def meanwhile(self) -> Sentence | None:
        """ "While"."""
        verbs = (*ACTS, VERBS["aufstehen"])
        main, second = (self.clause(self.pick(verbs), self.person(), "progressive", brief=True) for _ in range(2))
        if main.verb == second.verb or main.subject == second.subject:
            return None
        return Sentence(main, link="while", second=second, first=self.chance(0.4))

    def report(self) -> Sentence:
        """ "That", "whether" and "why"."""
        de, link = self.pick(REPORTS)
        question = de in ("glauben", "wissen") and self.chance(0.3)
        negated = de in ("glauben", "wissen") and not question and self.chance(0.4)
        main = Clause(self.subject("person", known=True, pronouns="you you he she they"), VERBS[de], negated=negated)
        verb = self.pick(ACTS if de == "hoffen" else DEEDS)
        tense = self.tense(verb, "future", "can", "perfect") if de == "hoffen" else None
        subject = self.subject(verb.subject, known=negated or link != "that")
        second = self.perhaps_negated(self.timed(self.clause(verb, subject, tense), front=False))
        return Sentence(main, question, link, second)

    def relative(self) -> Sentence | None:
        """A subject or an object with a relative clause."""
        verb = self.pick([verb for verb in RELATABLE if verb.aspect != "mishap"])
        tense = self.tense(verb, "simple", "progressive", "perfect", "future", "can", "must", "want")
        if not verb.object or verb.by or self.chance(0.5):
            subject = self.with_relative_clause(self.pick(nouns(verb.subject)), "the", verb)
            if subject is None:
                return None
            # No time in front: after the verb, the relative clause would separate it from its prefix, as in
            # "fährt der Zug, der ..., ab".
            return Sentence(self.timed(self.clause(verb, subject, tense, brief=True), front=False))
        clause = with_time_in_front(self.timed(self.clause(verb, self.subject(verb.subject), tense, brief=True)))
        determiners = "the" if verb.which == KIND else "the the a"
        object_ = self.with_relative_clause(self.pick(nouns(verb.object)), determiners, verb)
        return None if object_ is None else Sentence(replace(clause, object=object_))

    def with_relative_clause(self, noun: Noun, which: str, main: Verb) -> NounPhrase | None:
        """A phrase with a relative clause, in which it is the subject or the object."""
        if is_name(noun) or fits(noun, "family means place"):
            return None
        as_subject = [(verb, True) for verb in RELATABLE if verb != main and fits(noun, verb.subject)]
        as_object = [(verb, False) for verb in RELATABLE if verb != main and fits(noun, verb.object) and not verb.by]
        verb, is_subject = self.pick(self.pick([options for options in (as_subject, as_object) if options]))
        phrase, tense = self.phrase(noun, which), self.tense(verb, "progressive", "perfect", "past")
        pronoun = relative_pronoun(phrase)
        subject = pronoun if is_subject else self.subject(verb.subject, known=True)
        if noun in nouns_of(subject):
            return None
        clause = self.clause(verb, subject, tense, brief=True)
        if tense != "progressive":
            clause = self.timed(clause, front=False)
        return replace(phrase, relative=clause if is_subject else replace(clause, object=pronoun))

    def infinitive(self) -> Sentence:
        """ "Try to" and "forget to"."""
        tries = self.chance(0.5)
        tenses: tuple[Tense, ...] = ("progressive", "perfect", "past", "future") if tries else ("perfect", "past")
        tense = self.pick(tenses)
        main = with_time_in_front(
            self.timed(Clause(self.person(), VERBS["versuchen" if tries else "vergessen"], tense))
        )
        verb = self.pick([verb for verb in ACTS if verb.object and verb != VERBS["tragen"]])
        return Sentence(main, link="to", second=self.clause(verb, main.subject, "simple", brief=True))

    def purpose(self) -> Sentence:
        """Going to a place to do what is done there."""
        verb, subject = self.pick([verb for verb in ACTS if verb.places]), self.person()
        place = self.pick(nouns(verb.places))
        motion = VERBS["fahren" if fits(place, "town") else "gehen"]
        main = self.timed(Clause(subject, motion, self.tense(motion), target=self.located(place, "to", subject)))
        return Sentence(main, link="in order to", second=self.clause(verb, subject, "simple", brief=True))

    def contrast(self) -> Sentence | None:
        """ "And" and "but"."""
        if self.chance(0.4):
            main = self.clause(self.pick(CHOICES), self.person(), "want", brief=True)
            cause = self.cause(main, existing_pronoun(main.subject), "simple", helpful=False)
            return None if cause is None else Sentence(main, link="but", second=cause)
        verb = self.pick([verb for verb in DEEDS if len(verb.object.split()) == 1 and verb.subject == "person"])
        tense = self.tense(verb, "simple", "past", "perfect", "future", "want", "like")
        main = self.timed(self.clause(verb, self.person(), tense, brief=True))
        second = self.clause(verb, self.companion(main.subject), tense, brief=True)
        if (noun_of(main.object) or main.object) == (noun_of(second.object) or second.object):
            return None
        return Sentence(main, link=self.pick(("and", "but")), second=second)

    def mood(self) -> Sentence:
        clause = Clause(self.subject("person"), VERBS["sein"], self.pick(("simple", "past")))
        return Sentence(self.perhaps_negated(self.timed(replace(clause, target=self.pick(MOODS)))))

    def quality(self) -> Sentence:
        """ "The car is red", "this is a red car" and "Paul is a good doctor"."""
        if self.chance(0.2):
            subject = self.phrase(self.pick(nouns("father brother uncle Paul Peter")), "my", plurals=0)
            quality = ADJECTIVES[self.pick(("good", "friendly", "young"))]
            object_ = NounPhrase(self.pick(nouns("profession")), "a", adjectives=(quality,))
            return Sentence(self.perhaps_negated(Clause(subject, VERBS["sein"], object=object_)))
        noun = self.pick([noun for noun in nouns("adult animal goods opening place text") if qualities(noun)])
        quality, plurals = self.pick(qualities(noun)), 0 if fits(noun, "place") else 0.25
        if self.chance(0.3):
            subject = replace(self.phrase(noun, "the the my this", plurals=plurals), adjectives=())
            return Sentence(self.perhaps_negated(Clause(subject, VERBS["sein"], target=quality)))
        object_ = replace(self.phrase(noun, "a a a my", plurals=plurals), adjectives=(quality,))
        return Sentence(self.perhaps_negated(Clause(THESE if object_.plural else THIS, VERBS["sein"], object=object_)))

    def forecast(self) -> Sentence:
        clause = self.weather(self.pick(("simple", "past", "future")), (SKIES["cold"], SKIES["hot"]))
        return Sentence(self.timed(clause))

    def number(self) -> Sentence:
        """The price of a thing, or the age of a person."""
        if self.chance(0.5):
            euros = NounPhrase(NOUNS["euro"], "", plural=True, number=self.between(2, 99))
            return Sentence(Clause(self.subject(VERBS["kosten"].subject), VERBS["kosten"], object=euros))
        noun = self.pick(nouns("kid adult first"))
        number = self.between(2, 17) if fits(noun, "kid") else self.between(18, 99)
        years = NounPhrase(NOUNS["year"], "", plural=True, number=number)
        age = Adverb(f"{years.english('acc')} old", f"{years.german('acc')} alt")
        subject = replace(self.phrase(noun, "the the my", plurals=0), adjectives=())
        return Sentence(Clause(subject, VERBS["sein"], target=age))

    def sentence(self) -> Sentence:
        """A sentence of a random kind. A kind that returns `None` is drawn again."""
        while not (sentence := self.pick(KINDS)(self)):
            pass
        return sentence


REPORTS = (
    *(("sagen", "that"), ("glauben", "that"), ("hoffen", "that")),
    *(("wissen", "that"), ("wissen", "whether"), ("wissen", "why"), ("fragen", "whether"), ("fragen", "why")),
)
KINDS = [
    kind
    for kind, weight in {
        Writer.statement: 16,
        Writer.yes_no_question: 8,
        Writer.who_question: 2,
        Writer.object_question: 3,
        Writer.adverb_question: 4,
        Writer.reason: 8,
        Writer.condition: 5,
        Writer.meanwhile: 4,
        Writer.report: 7,
        Writer.relative: 7,
        Writer.infinitive: 2,
        Writer.purpose: 3,
        Writer.contrast: 3,
        Writer.mood: 1,
        Writer.quality: 6,
        Writer.forecast: 1,
        Writer.number: 4,
    }.items()
    for _ in range(weight)
]


# ---- The corpus

SPLIT_OF_BUCKET: dict[int, Split] = {0: "validation", 1: "test"}  # of 20 buckets; the others are for training
SIZES: dict[str, int] = {"train": 40_000, "validation": 500, "test": 500}
# The grammar has many more sentences, but beyond these sizes new ones become hard to find.
LIMITS: dict[str, int] = {"train": 500_000, "validation": 25_000, "test": 25_000}


def demo_corpus(split: Split, size: int | None = None, seed: int = 0) -> list[dict[str, str]]:
    """Sentence pairs `{"en": ..., "de": ...}` without duplicates.

    The same arguments give the same pairs on every machine. The splits never overlap, for any sizes and seeds: a hash
    of the sentence decides its split.

    Args:
        split: "train", "validation" or "test".
        size: Number of pairs; default: 40,000 for training, 500 each for validation and test.
        seed: Seed of the random sentences.
    """
    return [{"en": sentence.english(), "de": sentence.german()} for sentence in demo_sentences(split, size, seed)]


def demo_sentences(split: Split, size: int | None = None, seed: int = 0) -> list[Sentence]:
    """The sentences of `demo_corpus`, as the grammar builds them."""
    if split not in SIZES:
        raise ValueError(f"The demo corpus has no split {split!r}: choose 'train', 'validation' or 'test'.")
    size = SIZES[split] if size is None else size
    if not 0 <= size <= LIMITS[split]:
        raise ValueError(f"The demo corpus cannot give {size} {split} pairs: ask for at most {LIMITS[split]}.")
    writer = Writer(seed)
    sentences: dict[str, Sentence] = {}
    while len(sentences) < size:
        sentence = writer.sentence()
        german = sentence.german()
        fits_in = german not in sentences and split_of(german) == split
        if fits_in and reads_well(sentence.english()) and reads_well(german):
            sentences[german] = sentence
    return list(sentences.values())


def split_of(german: str) -> Split:
    """The split of a sentence: one in twenty is for validation, one in twenty for test.

    Each English sentence has one German translation, so splits that are disjoint in German are disjoint in English.
    """
    bucket = int(hashlib.sha256(german.encode()).hexdigest(), 16) % 20
    return SPLIT_OF_BUCKET.get(bucket, "train")


def reads_well(text: str) -> bool:
    """Whether a sentence has 3 to 22 words and no word twice in a row, as in "turned on on Monday" or "die die"."""
    return 3 <= len(text.split()) <= 22 and not re.search(r"\b(\w+) \1\b", text, re.IGNORECASE)
