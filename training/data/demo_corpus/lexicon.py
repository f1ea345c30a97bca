"""The words of the demo corpus: a small English-German dictionary, and the forms of its words.

Entries are like those of a printed dictionary. A noun has its gender and plural. A verb has its principal parts,
"lesen liest hat gelesen", with a bar after a separable prefix, "auf|machen". Tags say which words go together, so that
bread is eaten, lamps are turned on, and every sentence makes sense. In a list of tags, an English noun stands for
itself.
"""

import re
from functools import cache
from typing import Literal, NamedTuple


Gender = Literal["m", "f", "n"]
Case = Literal["nom", "acc", "dat"]
# The person of a verb form: 0 I, 1 you (du), 2 he, she, it and singular nouns, 3 we, they and plural nouns.
Person = Literal[0, 1, 2, 3]
Tense = Literal["simple", "progressive", "perfect", "past", "future", "can", "must", "want", "should", "like"]


# Determiners before an object; repeated ones are more probable. They are English words, where "my" means any
# possessive, "number" a number, and "all" a plural without determiner.
ANY = "the the the my my a a a this number"
KNOWN = "the the the my my this"
MANY = "number number the a a"
KIND = "all all all the this"
WORN = "the the my my my a a"


class Noun(NamedTuple):
    """A noun. `en` includes an irregular plural; without a German plural there is none (mass nouns and names)."""

    en: str
    de: str
    gender: Gender
    de_plural: str
    tags: str
    weak: bool = False  # der Junge, den Jungen, dem Jungen: the singular, except the nominative, is like the plural


class Adjective(NamedTuple):
    """An adjective and the nouns it may describe; `stem` if endings are not added to `de` itself."""

    en: str
    de: str
    fits: str
    stem: str = ""


class Adverb(NamedTuple):
    """A phrase that is never inflected."""

    en: str
    de: str


class Preposition(NamedTuple):
    """A preposition and the case it governs; a two-way preposition has one entry for each case."""

    en: str
    de: str
    case: Case


class Verb(NamedTuple):
    """A verb and the words that go with it.

    Args:
        en: Base form; for irregular verbs also past and participle.
        de: Infinitive, third person, auxiliary and participle; a separable prefix ends with a bar.
        object: Tags of the objects; empty if the verb takes no object.
        aspect: Which tenses make sense, see `ASPECTS`; verbs of aspect "other" occur only in special sentences.
        subject: Tags of the subjects.
        particle: An English particle that can be separated from the verb: "turns the lamp on".
        preposition: An English preposition before the object that German does not have: "looks for the key".
        case: The case of the object in German.
        to_whom: Whether the verb takes a person in the dative beside the object.
        target: Tags of the nouns in the complement that the verb requires.
        by: The preposition of the complement: a fixed one, or "at" (dative) or "to" (accusative) for that of the noun.
        places: Tags of the places where it happens.
        manner: "with" if other people may take part, "by" if vehicles may be used.
        because: Adjectives that explain the action, said of the object, the subject or the weather.
        then: Verbs that explain the action, with the same object.
        which: Determiners of the object: `ANY`, `KNOWN`, `MANY`, `KIND` or `WORN`.
    """

    en: str
    de: str
    object: str = ""
    aspect: str = "action"
    subject: str = "person"
    particle: str = ""
    preposition: str = ""
    case: Case = "acc"
    to_whom: bool = False
    target: str = ""
    by: Preposition | Literal["at", "to"] | None = None
    places: str = ""
    manner: str = ""
    because: str = ""
    then: str = ""
    which: str = ANY


NOUNS = {
    noun.en.split()[0]: noun
    for noun in (
        Noun("man men", "Mann", "m", "Männer", "person adult"),
        Noun("woman women", "Frau", "f", "Frauen", "person adult"),
        Noun("teacher", "Lehrer", "m", "Lehrer", "person adult profession own"),
        Noun("doctor", "Arzt", "m", "Ärzte", "person adult profession own"),
        Noun("student", "Student", "m", "Studenten", "person adult profession", weak=True),
        Noun("neighbor", "Nachbar", "m", "Nachbarn", "person adult own", weak=True),
        Noun("friend", "Freund", "m", "Freunde", "person adult own"),
        Noun("waitress", "Kellnerin", "f", "Kellnerinnen", "person adult"),
        Noun("child children", "Kind", "n", "Kinder", "person kid own"),
        Noun("boy", "Junge", "m", "Jungen", "person kid", weak=True),
        Noun("girl", "Mädchen", "n", "Mädchen", "person kid"),
        Noun("father", "Vater", "m", "", "person family own"),
        Noun("mother", "Mutter", "f", "", "person family own"),
        Noun("brother", "Bruder", "m", "Brüder", "person family own"),
        Noun("sister", "Schwester", "f", "Schwestern", "person family own"),
        Noun("son", "Sohn", "m", "Söhne", "person family own"),
        Noun("daughter", "Tochter", "f", "Töchter", "person family own"),
        Noun("uncle", "Onkel", "m", "Onkel", "person family own"),
        Noun("aunt", "Tante", "f", "Tanten", "person family own"),
        Noun("grandmother", "Großmutter", "f", "", "person family own"),
        Noun("grandfather", "Großvater", "m", "", "person family own"),
        Noun("Anna", "Anna", "f", "", "person first"),
        Noun("Maria", "Maria", "f", "", "person first"),
        Noun("Paul", "Paul", "m", "", "person first"),
        Noun("Peter", "Peter", "m", "", "person first"),
        Noun("dog", "Hund", "m", "Hunde", "animal"),
        Noun("cat", "Katze", "f", "Katzen", "animal"),
        Noun("horse", "Pferd", "n", "Pferde", "animal"),
        Noun("bird", "Vogel", "m", "Vögel", "animal"),
        Noun("apple", "Apfel", "m", "Äpfel", "food goods many"),
        Noun("orange", "Orange", "f", "Orangen", "food goods many"),
        Noun("egg", "Ei", "n", "Eier", "food goods many"),
        Noun("potato", "Kartoffel", "f", "Kartoffeln", "food goods many"),
        Noun("cake", "Kuchen", "m", "Kuchen", "food goods"),
        Noun("bread", "Brot", "n", "", "food goods"),
        Noun("cheese", "Käse", "m", "", "food goods"),
        Noun("soup", "Suppe", "f", "", "food"),
        Noun("coffee", "Kaffee", "m", "", "drink"),
        Noun("tea", "Tee", "m", "", "drink"),
        Noun("water", "Wasser", "n", "", "drink weather"),
        Noun("milk", "Milch", "f", "", "drink goods weather"),
        Noun("juice", "Saft", "m", "", "drink goods weather"),
        Noun("book", "Buch", "n", "Bücher", "text goods gift thing many"),
        Noun("letter", "Brief", "m", "Briefe", "text thing"),
        Noun("newspaper", "Zeitung", "f", "Zeitungen", "text goods thing"),
        Noun("story", "Geschichte", "f", "Geschichten", "text"),
        Noun("coat", "Mantel", "m", "Mäntel", "clothes goods weather"),
        Noun("sweater", "Pullover", "m", "Pullover", "clothes goods weather"),
        Noun("shirt", "Hemd", "n", "Hemden", "clothes goods"),
        Noun("jacket", "Jacke", "f", "Jacken", "clothes goods weather"),
        Noun("car", "Auto", "n", "Autos", "vehicle goods"),
        Noun("bicycle", "Fahrrad", "n", "Fahrräder", "vehicle goods"),
        Noun("bus", "Bus", "m", "Busse", "transport"),
        Noun("train", "Zug", "m", "Züge", "transport"),
        Noun("table", "Tisch", "m", "Tische", "furniture goods"),
        Noun("chair", "Stuhl", "m", "Stühle", "furniture goods many"),
        Noun("bed", "Bett", "n", "Betten", "furniture goods"),
        Noun("sofa", "Sofa", "n", "Sofas", "furniture goods"),
        Noun("window", "Fenster", "n", "Fenster", "opening weather"),
        Noun("door", "Tür", "f", "Türen", "opening weather"),
        Noun("box", "Kiste", "f", "Kisten", "vessel"),
        Noun("bottle", "Flasche", "f", "Flaschen", "vessel many"),
        Noun("cup", "Tasse", "f", "Tassen", "vessel goods many"),
        Noun("glass", "Glas", "n", "Gläser", "vessel goods many"),
        Noun("lamp", "Lampe", "f", "Lampen", "device vessel goods weather"),
        Noun("radio radios", "Radio", "n", "Radios", "device goods"),
        Noun("computer", "Computer", "m", "Computer", "device goods"),
        Noun("key", "Schlüssel", "m", "Schlüssel", "thing"),
        Noun("bag", "Tasche", "f", "Taschen", "thing goods gift"),
        Noun("picture", "Bild", "n", "Bilder", "thing goods gift"),
        Noun("ball", "Ball", "m", "Bälle", "thing goods gift"),
        Noun("flower", "Blume", "f", "Blumen", "goods gift many"),
        Noun("present", "Geschenk", "n", "Geschenke", "thing gift"),
        Noun("house", "Haus", "n", "Häuser", "place own"),
        Noun("garden", "Garten", "m", "Gärten", "place own nature"),
        Noun("kitchen", "Küche", "f", "Küchen", "place own"),
        Noun("room", "Zimmer", "n", "Zimmer", "place own"),
        Noun("park", "Park", "m", "Parks", "place nature"),
        Noun("city", "Stadt", "f", "Städte", "place"),
        Noun("forest", "Wald", "m", "Wälder", "place nature"),
        Noun("shop", "Laden", "m", "Läden", "place"),
        Noun("market", "Markt", "m", "Märkte", "place"),
        Noun("station", "Bahnhof", "m", "Bahnhöfe", "place"),
        Noun("library", "Bibliothek", "f", "Bibliotheken", "place"),
        Noun("museum", "Museum", "n", "Museen", "place"),
        Noun("lake", "See", "m", "Seen", "place nature"),
        Noun("Berlin", "Berlin", "n", "", "town"),
        Noun("Hamburg", "Hamburg", "n", "", "town"),
        Noun("Munich", "München", "n", "", "town"),
        Noun("Vienna", "Wien", "n", "", "town"),
        Noun("time", "Zeit", "f", "", "means"),
        Noun("money", "Geld", "n", "", "means"),
        Noun("euro euros", "Euro", "m", "Euro", "price"),
        Noun("year", "Jahr", "n", "Jahre", ""),
    )
}

ADJECTIVES = {
    adjective.en: adjective
    for adjective in (
        Adjective("old", "alt", "adult animal vehicle furniture clothes device house city book key bag picture"),
        Adjective("young", "jung", "man woman teacher doctor waitress animal"),
        Adjective("small", "klein", "kid animal furniture vessel house garden kitchen room city shop bag"),
        Adjective("big", "groß", "animal furniture vessel house garden kitchen room city forest bag"),
        Adjective("new", "neu", "vehicle furniture clothes device book"),
        Adjective("good", "gut", "teacher doctor friend text cake cheese soup coffee"),
        Adjective("friendly", "freundlich", "adult kid family first animal"),
        Adjective("tired", "müde", "adult kid family first", stem="müd"),
        Adjective("hungry", "hungrig", "adult kid animal"),
        Adjective("sick", "krank", "adult kid family first animal"),
        Adjective("sad", "traurig", "adult kid family first story"),
        Adjective("happy", "glücklich", "adult kid family first"),
        Adjective("beautiful", "schön", "clothes flower picture house garden city park lake story"),
        Adjective("red", "rot", "clothes vehicle apple flower ball bag cup chair"),
        Adjective("blue", "blau", "clothes vehicle flower ball bag cup chair"),
        Adjective("black", "schwarz", "clothes vehicle animal bag"),
        Adjective("expensive", "teuer", "clothes vehicle furniture device picture", stem="teur"),
        Adjective("cheap", "billig", "clothes vehicle furniture device"),
        Adjective("fresh", "frisch", "bread milk egg apple orange juice"),
        Adjective("cold", "kalt", "water milk juice tea"),
        Adjective("hot", "heiß", "coffee tea soup"),
        Adjective("interesting", "interessant", "text museum picture man woman"),
        Adjective("dirty", "schmutzig", "clothes vehicle cup glass"),
        Adjective("dark", "dunkel", "forest room kitchen coat sweater jacket", stem="dunkl"),
        Adjective("broken", "kaputt", "device vehicle chair"),
    )
}
COLORS = ("red", "blue", "black", "dark")

IN, INTO = Preposition("in", "in", "dat"), Preposition("into", "in", "acc")
TO_IN, TO_ZU, TO_MIT = Preposition("to", "in", "acc"), Preposition("to", "zu", "dat"), Preposition("to", "mit", "dat")
ON, FOR_AUF = Preposition("on", "auf", "dat"), Preposition("for", "auf", "acc")
WITH = Preposition("with", "mit", "dat")
# The prepositions for being at a place and for going there. Nouns that are not listed are furniture and take any of
# TWO_WAY.
PLACES = {
    **dict.fromkeys(("house", "garden", "kitchen", "room", "city", "forest", "shop"), (IN, INTO)),
    **dict.fromkeys(("park", "library", "museum"), (IN, TO_IN)),
    **dict.fromkeys(("Berlin", "Hamburg", "Munich", "Vienna"), (IN, Preposition("to", "nach", "dat"))),
    "market": (Preposition("at", "auf", "dat"), Preposition("to", "auf", "acc")),
    "station": (Preposition("at", "an", "dat"), TO_ZU),
    "lake": (IN, TO_ZU),
}
ON_FURNITURE = (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))
TWO_WAY = {
    "at": tuple(Preposition(en, de, "dat") for en, de in ON_FURNITURE),
    "to": tuple(Preposition(en, de, "acc") for en, de in ON_FURNITURE),
}

# The tenses that make sense with a verb; repeated ones are more probable. A "routine" happens every day, a "schedule"
# or "timetable" has a time of day, and a "mishap" is never planned.
ASPECTS = {
    "routine": "simple simple simple progressive perfect past past future can must want should like",
    "action": "simple progressive perfect past past future can must want should",
    "stay": "simple progressive past past future can must want should",
    "event": "simple simple perfect past future can",
    "mishap": "perfect past",
    "schedule": "simple simple simple perfect past future must want",
    "timetable": "simple simple perfect past future",
    "posture": "simple progressive",
    "state": "simple",
}

# The keys are German infinitives: "know" and "put" are two verbs each in German.
VERBS = {
    verb.de.split()[0].replace("|", ""): verb
    for verb in (
        Verb("eat ate eaten", "essen isst hat gegessen", "food", "routine", places="kitchen garden", because="hungry"),
        Verb("drink drank drunk", "trinken trinkt hat getrunken", "drink", "routine", places="garden", because="hot"),
        Verb("cook", "kochen kocht hat gekocht", "soup potato egg", "routine", places="kitchen", because="hungry"),
        Verb("read read read", "lesen liest hat gelesen", "text", "routine", places="park", because="interesting"),
        Verb("write wrote written", "schreiben schreibt hat geschrieben", "letter story", "routine", places="library"),
        Verb("buy bought bought", "kaufen kauft hat gekauft", "goods", places="shop", then="essen lesen", which=MANY),
        Verb("sell sold sold", "verkaufen verkauft hat verkauft", "vehicle furniture", because="old small"),
        Verb("need", "brauchen braucht hat gebraucht", "thing means vehicle device many", "state", which=MANY),
        Verb("have had had", "haben hat hat gehabt", "thing animal means vehicle many", "state", which=MANY),
        Verb("repair", "reparieren repariert hat repariert", "vehicle device", because="broken"),
        Verb("wash", "waschen wäscht hat gewaschen", "clothes vehicle cup glass", because="dirty", which=KNOWN),
        Verb("wear wore worn", "tragen trägt hat getragen", "clothes", "stay", because="beautiful", which=WORN),
        Verb("put put put", "an|ziehen zieht hat gezogen", "clothes", particle="on", because="cold", which=WORN),
        Verb("look", "suchen sucht hat gesucht", "thing animal", preposition="for", places="garden", then="brauchen"),
        Verb("lose lost lost", "verlieren verliert hat verloren", "key bag", "mishap", places="city", which=KNOWN),
        Verb("forget forgot forgotten", "vergessen vergisst hat vergessen", "key bag present", "mishap", which=KNOWN),
        Verb("open", "auf|machen macht hat gemacht", "opening box bottle", because="hot", which=KNOWN),
        Verb("close", "zu|machen macht hat gemacht", "opening box", because="cold", which=KNOWN),
        Verb("turn", "ein|schalten schaltet hat geschaltet", "device", particle="on", because="dark", which=KNOWN),
        Verb("turn", "aus|schalten schaltet hat geschaltet", "device", particle="off", because="late", which=KNOWN),
        Verb("tidy", "auf|räumen räumt hat geräumt", "kitchen room house", "routine", which=KNOWN),
        Verb("put put put", "legen legt hat gelegt", "thing", target="furniture", by="to"),
        Verb("put put put", "stellen stellt hat gestellt", "vessel", target="table chair bed", by="to"),
        Verb("know knew known", "kennen kennt hat gekannt", "person story town", "state"),
        Verb("like", "mögen mag hat gemocht", "person animal food drink town", "state", which=KIND),
        Verb("see saw seen", "sehen sieht hat gesehen", "person animal", "event", places="garden park forest"),
        Verb("visit", "besuchen besucht hat besucht", "person museum town", "routine", because="sick", which=KNOWN),
        Verb("invite", "ein|laden lädt hat geladen", "person", because="friendly"),
        Verb("call", "an|rufen ruft hat gerufen", "person", "routine", because="sad sick"),
        Verb("pick", "ab|holen holt hat geholt", "person", particle="up", places="station"),
        Verb("help", "helfen hilft hat geholfen", "person", "routine", case="dat", places="garden", because="tired"),
        Verb("listen", "zu|hören hört hat gehört", "person", preposition="to", case="dat", because="sad"),
        Verb("belong", "gehören gehört hat gehört", "person", "state", "thing vehicle", preposition="to", case="dat"),
        Verb("give gave given", "geben gibt hat gegeben", "gift key", to_whom=True),
        Verb("show showed shown", "zeigen zeigt hat gezeigt", "letter picture book house", to_whom=True),
        Verb("talk", "sprechen spricht hat gesprochen", aspect="routine", target="person", by=TO_MIT),
        Verb("wait", "warten wartet hat gewartet", target="person transport", by=FOR_AUF),
        Verb("sit sat sat", "sitzen sitzt hat gesessen", aspect="stay", target="chair sofa", by=ON, because="tired"),
        Verb("lie lay lain", "liegen liegt hat gelegen", "", "posture", "thing cat", target="furniture", by="at"),
        Verb("live", "wohnen wohnt hat gewohnt", aspect="state", target="house city town", by="at"),
        Verb("stay", "bleiben bleibt ist geblieben", aspect="stay", target="home town", by="at", because="tired sick"),
        Verb("go went gone", "gehen geht ist gegangen", "", "routine", target="place", by="to", manner="with"),
        Verb("run ran run", "laufen läuft ist gelaufen", "", "action", "kid dog cat horse", target="nature", by="to"),
        Verb("travel", "fahren fährt ist gefahren", "", "routine", target="town", by="to", manner="with by"),
        Verb("arrive", "an|kommen kommt ist gekommen", "", "timetable", "adult transport", target="town", by="at"),
        Verb("leave left left", "ab|fahren fährt ist gefahren", "", "timetable", "transport"),
        Verb("come came come", "kommen kommt ist gekommen", aspect="schedule", target="home", by="to"),
        Verb("get got gotten", "auf|stehen steht ist gestanden", aspect="schedule", particle="up"),
        Verb("sleep slept slept", "schlafen schläft hat geschlafen", "", "routine", places="house", because="tired"),
        Verb("work", "arbeiten arbeitet hat gearbeitet", aspect="routine", places="garden kitchen library city town"),
        Verb("play", "spielen spielt hat gespielt", "", "routine", "kid dog cat", places="garden park", manner="with"),
        Verb("swim swam swum", "schwimmen schwimmt ist geschwommen", "", "routine", places="lake", because="hot"),
        Verb("be was been", "sein ist ist gewesen", aspect="other", case="nom"),
        Verb("cost cost cost", "kosten kostet hat gekostet", "price", "other", "clothes book bag ball lamp"),
        Verb("rain", "regnen regnet hat geregnet", aspect="other", subject=""),
        Verb("say said said", "sagen sagt hat gesagt", aspect="other"),
        Verb("believe", "glauben glaubt hat geglaubt", aspect="other"),
        Verb("hope", "hoffen hofft hat gehofft", aspect="other"),
        Verb("know knew known", "wissen weiß hat gewusst", aspect="other"),
        Verb("ask", "fragen fragt hat gefragt", aspect="other"),
        Verb("try", "versuchen versucht hat versucht", aspect="other"),
    )
}


# ---- Numbers and clock times


def entries(text: str) -> tuple[Adverb, ...]:
    """Reads "one=eins two=zwei"."""
    return tuple(Adverb(*entry.split("=")) for entry in text.split())


NUMBERS = entries(
    "zero=null one=eins two=zwei three=drei four=vier five=fünf six=sechs seven=sieben eight=acht nine=neun ten=zehn"
    " eleven=elf twelve=zwölf thirteen=dreizehn fourteen=vierzehn fifteen=fünfzehn sixteen=sechzehn"
    " seventeen=siebzehn eighteen=achtzehn nineteen=neunzehn"
)
TENS = entries(
    "twenty=zwanzig thirty=dreißig forty=vierzig fifty=fünfzig sixty=sechzig seventy=siebzig eighty=achtzig"
    " ninety=neunzig"
)


def number_word(number: int) -> Adverb:
    """A number below 100 in words: "twenty-one", "einundzwanzig"."""
    if number < 20:
        return NUMBERS[number]
    tens, unit = TENS[number // 10 - 2], NUMBERS[number % 10]
    if unit.en == "zero":
        return tens
    return Adverb(f"{tens.en}-{unit.en}", f"{'ein' if unit.de == 'eins' else unit.de}und{tens.de}")


def clock_time(hour: int, minute: int) -> Adverb:
    """A time of day. German names the half hour by the next hour: "um halb acht" is half past seven."""
    this, following = number_word(hour), number_word(hour % 12 + 1)
    if minute == 0:
        return Adverb(f"at {this.en} o'clock", f"um {'ein' if hour == 1 else this.de} Uhr")
    if minute == 30:
        return Adverb(f"at half past {this.en}", f"um halb {following.de}")
    distance = min(minute, 60 - minute)
    step = Adverb("quarter", "Viertel") if distance == 15 else number_word(distance)
    if minute < 30:
        return Adverb(f"at {step.en} past {this.en}", f"um {step.de} nach {this.de}")
    return Adverb(f"at {step.en} to {following.en}", f"um {step.de} vor {following.de}")


# ---- English forms


def words(*parts: str) -> str:
    """Joins the parts that are not empty."""
    return " ".join(filter(None, parts))


@cache
def with_s(word: str) -> str:
    """The regular plural of a noun or third person of a verb: "stories", "washes", "goes"."""
    if word == "have":
        return "has"
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(s|x|ch|sh|o)$", word) else "s")


def with_ing(base: str) -> str:
    """The present participle: "reading", "writing", "sitting", "lying"."""
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if re.fullmatch("[^aeiou]*[aeiou][^aeiouwxy]", base):
        return base + base[-1] + "ing"
    return re.sub("(?<!e)e$", "", base) + "ing"


def past_forms(verb: Verb) -> tuple[str, str]:
    """The simple past and the past participle."""
    base, *irregular = verb.en.split()
    regular = re.sub("e$", "", re.sub("(?<![aeiou])y$", "i", base)) + "ed"
    past, participle = irregular or (regular, regular)
    return past, participle


BE = {"simple": ("am", "are", "is", "are"), "past": ("was", "were", "was", "were")}
# Auxiliaries that take an infinitive, English and German; "want" is a full verb in English.
MODALS = {
    "future": ("will", "werden"),
    "can": ("can", "können"),
    "must": ("must", "müssen"),
    "should": ("should", "sollen"),
    "want": ("", "wollen"),
}


@cache
def english_verb(verb: Verb, tense: Tense, person: Person, *, supported: bool) -> tuple[str, str]:
    """The auxiliary ("" if there is none) and the rest of the verb.

    Questions and negations need an auxiliary: with `supported`, a verb without one gets "do".
    """
    base = verb.en.split()[0]
    past, participle = past_forms(verb)
    if base == "be" and tense in BE:
        return BE[tense][person], ""
    if tense == "progressive":
        return BE["simple"][person], with_ing(base)
    if tense == "perfect":
        return "has" if person == 2 else "have", participle
    if tense in MODALS and tense != "want":
        return MODALS[tense][0], base
    finite, infinitive = (tense, f"to {base}") if tense in ("want", "like") else (base, "")
    if supported:
        return "did" if tense == "past" else "does" if person == 2 else "do", words(finite, infinitive)
    if tense == "past":
        return "", past
    return "", words(with_s(finite) if person == 2 else finite, infinitive)


# ---- German forms

# The endings that show case and gender; p is the plural, which has no genders. All other endings follow from them.
STRONG = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
DEFINITE = {"er": "der", "e": "die", "es": "das", "en": "den", "em": "dem"}
# English determiner: German stem, and the declension of the adjective after it.
DETERMINERS = {
    "the": ("d", "weak"),
    "this": ("dies", "weak"),
    "every": ("jed", "weak"),
    "which": ("welch", "weak"),
    "a": ("ein", "mixed"),
    "no": ("kein", "mixed"),
    "my": ("mein", "mixed"),
    "your": ("dein", "mixed"),
    "his": ("sein", "mixed"),
    "her": ("ihr", "mixed"),
    "our": ("unser", "mixed"),
    "their": ("ihr", "mixed"),
}


def endingless(case: Case, gender: str) -> bool:
    """Whether "ein" and similar words have no ending here, so that the adjective shows it: "ein alter Mann"."""
    return (case, gender) in (("nom", "m"), ("nom", "n"), ("acc", "n"))


def article(determiner: str, case: Case, gender: str) -> str:
    """The German for an English determiner, "" for none."""
    if determiner in ("", "how many"):
        return determiner and "wie viele"
    stem, declension = DETERMINERS[determiner]
    if determiner == "the":
        return DEFINITE[STRONG[case][gender]]
    return stem if declension == "mixed" and endingless(case, gender) else stem + STRONG[case][gender]


def adjective_ending(determiner: str, case: Case, gender: str) -> str:
    """The ending of an adjective: strong if the determiner does not show case and gender, otherwise weak."""
    _, declension = DETERMINERS.get(determiner, ("", "strong"))
    if declension == "strong" or (declension == "mixed" and endingless(case, gender)):
        return STRONG[case][gender]
    return "e" if gender != "p" and (case == "nom" or (case == "acc" and gender != "m")) else "en"


def noun_form(noun: Noun, case: Case, *, plural: bool) -> str:
    """The German form of a noun. Plurals in -e, -el and -er add -n in the dative."""
    if plural:
        return noun.de_plural + ("n" if case == "dat" and noun.de_plural.endswith(("e", "el", "er")) else "")
    return noun.de_plural if noun.weak and case != "nom" else noun.de


IRREGULAR = {
    "sein": ("bin", "bist", "ist", "sind"),
    "haben": ("habe", "hast", "hat", "haben"),
    "werden": ("werde", "wirst", "wird", "werden"),
    "können": ("kann", "kannst", "kann", "können"),
    "müssen": ("muss", "musst", "muss", "müssen"),
    "wollen": ("will", "willst", "will", "wollen"),
    "sollen": ("sollte", "solltest", "sollte", "sollten"),  # "should"
    "mögen": ("mag", "magst", "mag", "mögen"),
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
}
# The two verbs of this lexicon whose past is not written in the perfect.
PRETERITE = {"sein": ("war", "warst", "war", "waren"), "haben": ("hatte", "hattest", "hatte", "hatten")}


class GermanForms(NamedTuple):
    """The forms of a verb; `infinitive` and `present` have no separable prefix."""

    prefix: str
    infinitive: str
    to_infinitive: str
    present: tuple[str, ...]
    auxiliary: str
    participle: str


@cache
def german_forms(verb: Verb) -> GermanForms:
    infinitive, third, auxiliary, participle = verb.de.split()
    prefix, _, infinitive = infinitive.rpartition("|")
    first = infinitive.removesuffix("n").removesuffix("e") + "e"
    second = third if third[-2] in "sßz" else third[:-1] + "st"  # du liest, du putzt
    return GermanForms(
        prefix,
        infinitive,
        f"{prefix}zu{infinitive}" if prefix else f"zu {infinitive}",
        IRREGULAR.get(infinitive, (first, second, third, infinitive)),
        {"hat": "haben", "ist": "sein"}[auxiliary],
        prefix + participle,
    )


def german_verb(verb: Verb, tense: Tense, person: Person) -> tuple[str, str]:
    """The finite verb, and the part at the end of a main clause: prefix, participle or infinitive."""
    forms = german_forms(verb)
    if tense in MODALS:
        return IRREGULAR[MODALS[tense][1]][person], forms.prefix + forms.infinitive
    if tense in ("perfect", "past"):
        if forms.infinitive in PRETERITE:
            return PRETERITE[forms.infinitive][person], ""
        return IRREGULAR[forms.auxiliary][person], forms.participle
    return forms.present[person], forms.prefix
