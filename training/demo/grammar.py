"""An English-German corpus without a download: tens of thousands of sentence pairs from a small grammar of our own.

A sentence is thought of once, as a `Clause` that says who does what, where and when, and put into words twice, in
English and in German order. No translation is typed in, so articles, genders, cases, endings and verb positions agree
everywhere, and a model that learns the corpus has to move words as a translator does:

    Our grandfather turns on the big lamps because it is dark.
    Unser Großvater schaltet die großen Lampen ein, weil es dunkel ist.

    Now Anna can read the interesting letter that she looked for on Saturday.
    Jetzt kann Anna den interessanten Brief lesen, den sie am Samstag gesucht hat.

    The man who I know reads four letters at half past five.
    Der Mann, den ich kenne, liest um halb sechs vier Briefe.

The words and their forms are in `demo_lexicon`. Here they become phrases, clauses and sentences; a `Writer` thinks of
something to say; and `demo_corpus` deals the sentences out to three splits.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal, NamedTuple, TypeVar

from vanilla_transformer.training.demo.lexicon import (
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


# ---- Phrases: each has a person, and puts itself into words for a case


class Pronoun(NamedTuple):
    """A personal pronoun, or one that `moves` to the front of its clause: "who", "what" and the relative pronouns."""

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
# "It" has the gender of what it stands for; the weather's is neuter.
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
    """A noun and all that agrees with it; `determiner` is the English word, "" for none."""

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
        one = self.number == 1  # which is declined like the article
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
    """What stands for the phrase when it is mentioned again.

    A girl and a child have none: German wavers between "es" and "sie" or "er", and so would the corpus.
    """
    if isinstance(phrase, Pronoun):
        return phrase
    if phrase.person == 3:
        return PRONOUNS["they"]
    if "person" in phrase.noun.tags:
        return {"m": PRONOUNS["he"], "f": PRONOUNS["she"]}.get(phrase.noun.gender)
    return IT[phrase.noun.gender]


def relative_pronoun(phrase: NounPhrase) -> Pronoun:
    """The forms of the article, except in the dative plural: "denen"."""
    nominative, accusative, dative = (article("the", case, phrase.gender) for case in ("nom", "acc", "dat"))
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
    """Who does what, in no order yet; `english` and `german` put it into one.

    Args:
        subject (`Phrase`): Who or what; an infinitive has one too, but does not say it.
        verb (`Verb`): Does.
        tense (`str`): When, or with which modal verb.
        object (`Phrase`, *optional*): What, in the verb's case.
        to_whom (`Phrase`, *optional*): The person in the dative beside an object in the accusative.
        target (`Adverbial`): The verb's complement: a goal, a place, a prepositional object or a quality.
        manner (`Adverbial`): With whom or by what means.
        place (`Adverbial`): Where.
        often (`Adverb`): What English puts before the main verb: "often", "already".
        time (`Adverb`): When.
        front (`Adverb`): What comes first in place of the subject: a time, or "where", "when" and "why".
        negated (`bool`): Whether not.
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
        """Subject, verb, objects, complement, place, time; a question puts an auxiliary before the subject."""
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
            # A prefix is one word with the verb it meets at the end: "macht ... auf", but "aufmacht".
            space = "" if self.tense in ("simple", "progressive", "like") else " "
            parts = (first, subject, *middle, f"{rest}{space}{finite}".strip())
        else:
            parts = (first, finite, subject, *middle, rest)
        # A relative clause waits until the verb is complete: "hat das Buch gekauft, das ..."
        relative = getattr(self.object, "relative", None)
        return words(*parts, f", {relative.german('embedded')}," if relative else "")

    def _middle(self) -> tuple[str, ...]:
        """What stands between the finite verb and the end of the clause, but for the subject.

        Pronouns come first, then what is known, and late what is new. "Nicht" stands between the known and the rest;
        a new object is denied by its own "kein".
        """
        object_, negation = self.object, "nicht" if self.negated else ""
        if isinstance(object_, NounPhrase):
            object_ = replace(object_, relative=None) if object_.relative else object_
            if self.negated and object_.indefinite and self.tense != "like":
                object_, negation = replace(object_, determiner="no"), ""
        pronouns, known, new = [], [], []
        for phrase, case in ((self.to_whom, "dat"), (object_, self.verb.case)):
            if phrase and not phrase.moves:
                is_new = phrase is object_ and isinstance(phrase, NounPhrase) and phrase.indefinite
                slot = pronouns if isinstance(phrase, Pronoun) else new if is_new else known
                slot.append(phrase.german(case))
        comment = words(negation, self.often.de, "gern" if self.tense == "like" else "")
        known = [*known, self.time.de] if comment else [self.time.de, *known]
        return (*pronouns, *known, comment, self.manner.de, self.place.de, *new, self.target.de)


class Link(NamedTuple):
    """What joins a second clause to the first, with its comma, and the order of that clause."""

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
    """A main clause, and by one of `LINKS` perhaps a second clause, which may come `first`."""

    main: Clause
    question: bool = False
    link: str = ""
    second: Clause | None = None
    first: bool = False

    def english(self) -> str:
        return self._written("english", "question" if self.question else "statement")

    def german(self) -> str:
        # A clause that comes first takes the place before the verb.
        return self._written("german", "question" if self.question or self.first else "statement")

    def _written(self, language: Literal["english", "german"], order: Order) -> str:
        text = getattr(self.main, language)(order)
        if self.second:
            link = LINKS[self.link]
            second = words(getattr(link, language), getattr(self.second, language)(link.order))
            text = f"{second}, {text}" if self.first else f"{text} {second}"
        text = re.sub("[ ,]*,", ",", text).strip(" ,")
        return text[0].upper() + text[1:] + ("?" if self.question else ".")


# ---- What to say when, where and why

AT_HOME, HOME = Adverb("at home", "zu Hause"), Adverb("home", "nach Hause")
RIDES = tuple(Adverb(f"by {ride.en}", f"mit dem {ride.de}") for ride in entries("car=Auto bus=Bus train=Zug"))
WHERE, WHERE_TO, WHEN, WHY = entries("where=wo where=wohin when=wann why=warum")
NOW, TODAY, TOMORROW, YESTERDAY = entries("now=jetzt today=heute tomorrow=morgen yesterday=gestern")
WEEK = "Monday=Montag Tuesday=Dienstag Wednesday=Mittwoch Thursday=Donnerstag Friday=Freitag Saturday=Samstag"
WEEKDAYS = tuple(Adverb(f"on {day.en}", f"am {day.de}") for day in entries(f"{WEEK} Sunday=Sonntag"))
DAYS = (YESTERDAY, TOMORROW, *WEEKDAYS)
MORNING, EVENING = Adverb("in the morning", "am Morgen"), Adverb("in the evening", "am Abend")
# The past always comes with a time, which also tells "they read" from "they read".
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
SKIES = {sky.en: sky for sky in entries("cold=kalt hot=heiß dark=dunkel late=spät")}
MOODS = tuple(ADJECTIVES[en] for en in ("tired", "sick", "hungry", "sad", "happy"))

# Verbs for any sentence; what people do on purpose; what they need a reason for; and what is done to things that
# have a past, unlike a letter that is being written.
DEEDS = tuple(verb for verb in VERBS.values() if verb.aspect in ASPECTS)
ACTS = tuple(v for v in DEEDS if v.aspect in ("routine", "action", "stay") and v.subject == "person")
CHOICES = tuple(verb for verb in ACTS if not verb.to_whom and not (verb.object and verb.by))
RELATABLE = tuple(verb for verb in DEEDS if verb not in (VERBS["schreiben"], VERBS["kochen"], VERBS["aufräumen"]))


@cache
def fits(noun: Noun, tags: str) -> bool:
    """Whether the noun has one of the tags or is named among them."""
    return any(tag in (noun.en.split()[0], *noun.tags.split()) for tag in tags.split())


@cache
def nouns(tags: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in NOUNS.values() if fits(noun, tags))


@cache
def qualities(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that can be said of the noun."""
    return tuple(adjective for adjective in ADJECTIVES.values() if fits(noun, adjective.fits))


def noun_of(phrase: Phrase | None) -> Noun | None:
    return phrase.noun if isinstance(phrase, NounPhrase) else None


def nouns_of(phrase: Phrase) -> tuple[Noun, ...]:
    if isinstance(phrase, Both):
        return phrase.first.noun, phrase.second.noun
    return (phrase.noun,) if isinstance(phrase, NounPhrase) else ()


def quantified(phrase: Phrase | None) -> bool:
    """Whether a negation beside the phrase could be understood in two ways."""
    return isinstance(phrase, NounPhrase) and (phrase.determiner in ("every", "no") or phrase.number is not None)


def others(subject: Phrase) -> tuple[Pronoun, ...]:
    """The pronouns that can be the object: not "I ... me", "we ... me" or "he ... him"."""
    speaker = PRONOUNS["I"], PRONOUNS["we"]
    same = speaker if subject in speaker else (pronoun_for(subject),)
    return tuple(pronoun for pronoun in PRONOUNS.values() if pronoun not in same)


def prompts(clause: Clause, subject: Phrase) -> list[tuple[Phrase, Adverbial]]:
    """What explains the deed: that its object, its subject or the weather is such or such."""
    object_, noun, found = clause.object, noun_of(clause.object), []
    # Nothing more is to be said of a red book, or of no book.
    closed = noun is not None and (object_.adjectives or (clause.negated and object_.indefinite))
    for en in clause.verb.because.split():
        adjective = ADJECTIVES.get(en)
        suits_object = isinstance(object_, Pronoun) or (noun is not None and adjective in qualities(noun))
        if en in SKIES:
            if noun is None or (fits(noun, "weather") and not suits_object):
                found.append((IT["n"], SKIES[en]))
        elif suits_object:
            found.append((None if closed else pronoun_for(object_), adjective))
        elif adjective in MOODS and "person" not in clause.verb.object:
            found.append((subject, adjective))
    return [prompt for prompt in found if prompt[0]]


def fronted(clause: Clause) -> Clause:
    """With the time in front, where it cannot be taken for that of a clause to come."""
    return clause if clause.time is NOTHING else replace(clause, front=clause.time, time=NOTHING)


# ---- The writer


class Writer:
    """Thinks of sentences; from the same seed of the same ones, on every machine and in every version of Python.

    For that, every decision is a call of `Random.random`, whose sequence Python promises to keep for a seed; it makes
    no such promise for `choice`, `choices` or `sample`.
    """

    def __init__(self, seed: int):
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
            which (`str`): The determiners to pick from, as for the objects of a `Verb`.
            owner (`Phrase`, *optional*): Whose it may be, if it is somebody's.
            plurals (`float`): How often there is more than one.
            most (`int`): The highest number.
        """
        if is_name(noun):
            return NounPhrase(noun, "")
        determiner = "my" if fits(noun, "family") else self.pick(which.split())
        if determiner == "my":
            mine = fits(noun, "own") or not fits(noun, "person place transport")
            determiner = self.possessive(owner) if mine else "the"
        countable = noun.de_plural != ""
        number = self.between(2, most) if countable and determiner == "number" else None
        plural = countable and (number is not None or determiner == "all" or self.chance(plurals))
        if determiner in ("all", "number") or (determiner == "a" and (plural or not countable)):
            determiner = ""
        return NounPhrase(noun, determiner, plural and determiner != "every", self.adjectives(noun), number)

    def possessive(self, owner: Phrase | None) -> str:
        """Mostly the owner's own; without an owner, anybody's."""
        pronoun = pronoun_for(owner) if owner else None
        if pronoun in PRONOUNS.values() and self.chance(0.6):
            return pronoun.en.split()[2]
        return self.pick(("my", "your", "our") if owner else ("my", "your", "his", "her", "our", "their"))

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        """None, one, or one and a color."""
        options = qualities(noun)
        if not options or self.chance(0.9 if fits(noun, "family") else 0.8 if fits(noun, "person") else 0.6):
            return ()
        first, second = self.pick(options), self.pick(options)
        return (first, second) if second.en in COLORS and first.en not in COLORS else (first,)

    def subject(self, tags: str, *, known: bool = False, pronouns: str = "I I you you he she we they") -> Phrase:
        """Somebody or something; if `known`, neither "a child" nor "every child" nor "no child"."""
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
        """Somebody who can be mentioned again by a pronoun."""
        while not pronoun_for(person := self.subject("person", known=True)):
            pass
        return person

    def companion(self, subject: Phrase, tags: str = "person", plurals: float = 0.25) -> NounPhrase:
        """Somebody other than the subject."""
        noun = self.pick([noun for noun in nouns(tags) if noun not in nouns_of(subject)])
        return self.phrase(noun, "the the my my this a", owner=subject, plurals=plurals)

    def somebody(self, subject: Phrase) -> Phrase:
        """Somebody other than the subject, perhaps a pronoun."""
        return self.pick(others(subject)) if self.chance(0.35) else self.companion(subject)

    def object(self, verb: Verb, subject: Phrase) -> Phrase:
        noun = self.pick(nouns(verb.object))
        if fits(noun, "person"):
            return self.somebody(subject)
        if fits(noun, "means"):
            return NounPhrase(noun, "")
        plurals = 0.6 if fits(noun, "many") else 0 if fits(noun, "place") else 0.2
        if verb.which == WORN:  # by everybody their own
            plurals = float(subject.person == 3)
        most = 99 if verb.which == MANY and fits(noun, "many") else 4
        return self.phrase(noun, verb.which, owner=subject, plurals=plurals, most=most)

    def located(self, noun: Noun, by: Preposition | Literal["at", "to"], owner: Phrase) -> PrepositionalPhrase:
        """The noun behind a preposition: the given one, that of a place, or any for a piece of furniture."""
        if not isinstance(by, Preposition):
            by = PLACES[noun.en][by == "to"] if noun.en in PLACES else self.pick(TWO_WAY[by])
        return PrepositionalPhrase(by, self.phrase(noun, "the the the my", owner=owner, plurals=0))

    def target(self, verb: Verb, subject: Phrase) -> Adverbial:
        if not verb.by:
            return NOTHING
        if "home" in verb.target and (verb.target == "home" or self.chance(0.3)):
            return AT_HOME if verb.by == "at" else HOME
        noun = self.pick(nouns(verb.target))
        if fits(noun, "person"):
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
        """One of the verb's tenses, `among` those named if it has any of them."""
        tenses = ASPECTS[verb.aspect].split()
        return self.pick([tense for tense in tenses if tense in among] or tenses)

    def clause(self, verb: Verb, subject: Phrase, tense: Tense | None = None, *, brief: bool = False) -> Clause:
        """A clause without a time; a `brief` one without anything the verb does not call for."""
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
        """The clause with an adverb that suits its tense, perhaps in `front`."""
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

    def denied(self, clause: Clause, probability: float = 0.15) -> Clause:
        """The clause negated, if chance will have it and no other word makes that unclear, as "every day" would."""
        clear = (
            clause.often is NOTHING
            and clause.tense != "must"
            and all(time in (NOTHING, NOW, TODAY, *DAYS) for time in (clause.time, clause.front))
            and not quantified(clause.subject)
            and not quantified(clause.object)
            # "keinem" and "keiner" would be too rare to be learned
            and not (clause.verb.case == "dat" and noun_of(clause.object) and clause.object.indefinite)
        )
        return replace(clause, negated=True) if clear and self.chance(probability) else clause

    def weather(self, tense: Tense, skies: Sequence[Adverb]) -> Clause:
        if self.chance(0.25):
            return Clause(IT["n"], VERBS["regnen"], "progressive" if tense == "simple" else tense)
        return Clause(IT["n"], VERBS["sein"], tense, target=self.pick(skies))

    def cause(self, main: Clause, subject: Phrase, tense: Tense, *, helpful: bool) -> Clause | None:
        """What makes `subject` do it or, if not `helpful`, should keep them from it."""
        if main.verb.because:
            options = prompts(main, subject)
            about, state = self.pick(options) if options else (None, NOTHING)
            return about and Clause(about, VERBS["sein"], tense, target=state, negated=not helpful)
        if not helpful and self.chance(0.4):
            noun = noun_of(main.object)  # of which "it is cold" must not seem to speak
            skies = [sky for en, sky in SKIES.items() if not noun or ADJECTIVES.get(en) not in qualities(noun)]
            return self.weather(tense, skies)
        if self.chance(0.5):
            return Clause(subject, VERBS["haben"], tense, NounPhrase(NOUNS["time"], ""), negated=not helpful)
        return Clause(subject, VERBS["sein"], tense, target=self.pick(MOODS[: 1 if helpful else 2]), negated=helpful)

    # Sentences

    def statement(self) -> Sentence:
        verb = self.pick(DEEDS)
        return Sentence(self.denied(self.timed(self.clause(verb, self.subject(verb.subject)))))

    def asked(self, verb: Verb) -> Clause:
        """A clause to make a question of, which one does not ask about oneself or about what must be."""
        clause = self.clause(verb, self.subject(verb.subject, known=True, pronouns="you you you he she they"))
        return replace(clause, tense={"must": "future", "should": "can"}.get(clause.tense, clause.tense))

    def yes_no_question(self) -> Sentence:
        clause = self.asked(self.pick(DEEDS))
        if self.chance(0.4):
            clause = replace(clause, tense=self.tense(clause.verb, "simple", "progressive"))
        return Sentence(self.timed(clause, front=False), question=True)

    def who_question(self) -> Sentence:
        verb = self.pick([verb for verb in DEEDS if verb.subject == "person"])
        return Sentence(self.timed(self.clause(verb, WHO), front=False), question=True)

    def object_question(self) -> Sentence:
        """ "What", "who", "which" and "how many"."""
        verb = self.pick([verb for verb in DEEDS if verb.object])
        clause = self.timed(self.asked(verb), front=False)
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
        clause, options = self.asked(verb), [WHY]
        if verb.by in ("at", "to") and verb.target != "home":
            options += [WHERE if verb.by == "at" else WHERE_TO] * 2
        elif verb.places:
            options += [WHERE] * 2
        if verb.aspect in ("routine", "action", "schedule", "timetable") and clause.tense in TIMES:
            options += [WHEN] * 2
        front = self.pick(options)
        if front is WHY:
            clause = self.denied(clause, 0.3)
        elif front is not WHEN:
            clause = replace(clause, place=NOTHING, target=NOTHING)
        return Sentence(replace(clause, front=front), question=True)

    def reason(self) -> Sentence | None:
        """ "Because" and "although"."""
        verb, first = self.pick(CHOICES), self.chance(0.4)
        main = self.clause(verb, self.person(), self.tense(verb, "simple", "progressive", "past", "want"), brief=True)
        main = self.denied(self.timed(main, front=not first) if main.tense in ("progressive", "past") else main, 0.35)
        plans = [VERBS[de] for de in verb.then.split() if fits(main.object.noun, VERBS[de].object)]
        if not plans or main.negated or main.tense == "past":
            return self.motivated(main, self.pick(("because", "although")), first)
        plan, subject = self.pick(plans), pronoun_for(main.subject)
        tense = "simple" if plan.aspect == "state" else "want"
        return Sentence(main, link="because", second=Clause(subject, plan, tense, pronoun_for(main.object)))

    def condition(self) -> Sentence | None:
        """ "If" and "when"."""
        link, tenses = self.pick((("if", ("future", "can", "should")), ("when", ("simple",))))
        main = self.clause(self.pick(CHOICES), self.person(), self.pick(tenses), brief=True)
        main = main if main.tense == "can" else self.denied(main, 0.3)
        return self.motivated(main, link, self.chance(0.6))

    def motivated(self, main: Clause, link: str, first: bool) -> Sentence | None:
        """The clause with its cause, perhaps `first`; whichever comes second has a pronoun for the person."""
        again, tense = pronoun_for(main.subject), "past" if main.tense == "past" else "simple"
        cause = self.cause(main, again, tense, helpful=main.negated == (link == "although"))
        if not cause or not first or (main.object and cause.subject == pronoun_for(main.object)):
            return cause and Sentence(main, link=link, second=cause)
        if cause.subject == again:
            main, cause = replace(main, subject=again), replace(cause, subject=main.subject)
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
        second = self.denied(self.timed(self.clause(verb, subject, tense), front=False))
        return Sentence(main, question, link, second)

    def relative(self) -> Sentence | None:
        """A subject or an object with a relative clause."""
        verb = self.pick([verb for verb in RELATABLE if verb.aspect != "mishap"])
        tense = self.tense(verb, "simple", "progressive", "perfect", "future", "can", "must", "want")
        if not verb.object or verb.by or self.chance(0.5):
            subject = self.told(self.pick(nouns(verb.subject)), "the", verb)
            # Behind the verb it would leave a prefix dangling: "fährt der Zug, der ..., ab".
            return subject and Sentence(self.timed(self.clause(verb, subject, tense, brief=True), front=False))
        clause = fronted(self.timed(self.clause(verb, self.subject(verb.subject), tense, brief=True)))
        object_ = self.told(self.pick(nouns(verb.object)), "the" if verb.which == KIND else "the the a", verb)
        return object_ and Sentence(replace(clause, object=object_))

    def told(self, noun: Noun, which: str, main: Verb) -> NounPhrase | None:
        """A phrase with a relative clause, in which it does something or has something done to it."""
        if is_name(noun) or fits(noun, "family means place"):
            return None
        doing = [(verb, True) for verb in RELATABLE if verb != main and fits(noun, verb.subject)]
        done = [(verb, False) for verb in RELATABLE if verb != main and fits(noun, verb.object) and not verb.by]
        verb, does = self.pick(self.pick([options for options in (doing, done) if options]))
        phrase, tense = self.phrase(noun, which), self.tense(verb, "progressive", "perfect", "past")
        pronoun = relative_pronoun(phrase)
        subject = pronoun if does else self.subject(verb.subject, known=True)
        if noun in nouns_of(subject):
            return None
        clause = self.clause(verb, subject, tense, brief=True)
        if tense != "progressive":
            clause = self.timed(clause, front=False)
        return replace(phrase, relative=clause if does else replace(clause, object=pronoun))

    def infinitive(self) -> Sentence:
        """ "Try to" and "forget to"."""
        tries = self.chance(0.5)
        tense = self.pick(("progressive", "perfect", "past", "future") if tries else ("perfect", "past"))
        main = fronted(self.timed(Clause(self.person(), VERBS["versuchen" if tries else "vergessen"], tense)))
        verb = self.pick([verb for verb in ACTS if verb.object and verb != VERBS["tragen"]])
        return Sentence(main, link="to", second=self.clause(verb, main.subject, "simple", brief=True))

    def purpose(self) -> Sentence:
        """Going somewhere to do what is done there."""
        verb, subject = self.pick([verb for verb in ACTS if verb.places]), self.person()
        place = self.pick(nouns(verb.places))
        motion = VERBS["fahren" if fits(place, "town") else "gehen"]
        main = self.timed(Clause(subject, motion, self.tense(motion), target=self.located(place, "to", subject)))
        return Sentence(main, link="in order to", second=self.clause(verb, subject, "simple", brief=True))

    def contrast(self) -> Sentence | None:
        """ "And" and "but"."""
        if self.chance(0.4):
            main = self.clause(self.pick(CHOICES), self.person(), "want", brief=True)
            cause = self.cause(main, pronoun_for(main.subject), "simple", helpful=False)
            return cause and Sentence(main, link="but", second=cause)
        verb = self.pick([verb for verb in DEEDS if len(verb.object.split()) == 1 and verb.subject == "person"])
        tense = self.tense(verb, "simple", "past", "perfect", "future", "want", "like")
        main = self.timed(self.clause(verb, self.person(), tense, brief=True))
        second = self.clause(verb, self.companion(main.subject), tense, brief=True)
        if (noun_of(main.object) or main.object) == (noun_of(second.object) or second.object):
            return None
        return Sentence(main, link=self.pick(("and", "but")), second=second)

    def mood(self) -> Sentence:
        clause = Clause(self.subject("person"), VERBS["sein"], self.pick(("simple", "past")))
        return Sentence(self.denied(self.timed(replace(clause, target=self.pick(MOODS)))))

    def quality(self) -> Sentence:
        """ "The car is red", "this is a red car" and "Paul is a good doctor"."""
        if self.chance(0.2):
            subject = self.phrase(self.pick(nouns("father brother uncle Paul Peter")), "my", plurals=0)
            quality = ADJECTIVES[self.pick(("good", "friendly", "young"))]
            object_ = NounPhrase(self.pick(nouns("profession")), "a", adjectives=(quality,))
            return Sentence(self.denied(Clause(subject, VERBS["sein"], object=object_)))
        noun = self.pick([noun for noun in nouns("adult animal goods opening place text") if qualities(noun)])
        quality, plurals = self.pick(qualities(noun)), 0 if fits(noun, "place") else 0.25
        if self.chance(0.3):
            subject = replace(self.phrase(noun, "the the my this", plurals=plurals), adjectives=())
            return Sentence(self.denied(Clause(subject, VERBS["sein"], target=quality)))
        object_ = replace(self.phrase(noun, "a a a my", plurals=plurals), adjectives=(quality,))
        return Sentence(self.denied(Clause(THESE if object_.plural else THIS, VERBS["sein"], object=object_)))

    def forecast(self) -> Sentence:
        clause = self.weather(self.pick(("simple", "past", "future")), (SKIES["cold"], SKIES["hot"]))
        return Sentence(self.timed(clause))

    def number(self) -> Sentence:
        """What things cost and how old people are."""
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
        """A sentence of any kind; some thoughts lead nowhere."""
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

SIZES: dict[str, int] = {"train": 40_000, "validation": 500, "test": 500}
# The grammar has many more sentences; up to here new ones are quickly found.
LIMITS: dict[str, int] = {"train": 500_000, "validation": 25_000, "test": 25_000}


def demo_corpus(split: Split, size: int | None = None, seed: int = 0) -> list[dict[str, str]]:
    """Sentence pairs `{"en": ..., "de": ...}`, all different.

    The same arguments give the same pairs everywhere. No sentence of one split is in another, whatever the sizes and
    seeds: a digest of the sentence decides where it belongs.

    Args:
        split (`str`): "train", "validation" or "test".
        size (`int`, *optional*): How many pairs; by default 40,000 to train and 500 each to validate and test.
        seed (`int`): Which of the many sentences.
    """
    if split not in SIZES:
        raise ValueError(f"The demo corpus has no split {split!r}: choose 'train', 'validation' or 'test'.")
    size = SIZES[split] if size is None else size
    if not 0 <= size <= LIMITS[split]:
        raise ValueError(f"The demo corpus cannot give {size} {split} pairs: ask for at most {LIMITS[split]}.")
    writer, pairs = Writer(seed), {}
    while len(pairs) < size:
        sentence = writer.sentence()
        german = sentence.german()
        if german not in pairs and split_of(german) == split:
            english = sentence.english()
            if reads_well(english) and reads_well(german):
                pairs[german] = {"en": english, "de": german}
    return list(pairs.values())


def split_of(german: str) -> Split:
    """One sentence in twenty is for validation and one for test.

    An English sentence has but one German translation, so that what is apart in German is apart in English too.
    """
    bucket = int(hashlib.sha256(german.encode()).hexdigest(), 16) % 20
    return {0: "validation", 1: "test"}.get(bucket, "train")


def reads_well(text: str) -> bool:
    """Neither too short nor too long, and no word twice in a row, as in "turned on on Monday" or "die die"."""
    return 3 <= len(text.split()) <= 22 and not re.search(r"\b(\w+) \1\b", text, re.IGNORECASE)
