"""What must be copied is found in five languages, becomes placeholders, and comes back as it was."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vanilla_transformer.translation.placeholders import (
    MOST_PLACEHOLDERS,
    PLACEHOLDERS,
    is_copied,
    protect,
    restore,
)


COPIED = [
    *("info@example.com", "anna.b+news@mail.example.co.uk", "müller@example.de"),
    *(
        "https://www.example.org",
        "https://example.com/a_(b)?x=1&y=2#top",
        "http://example.com:8080/",
        "www.example.com",
    ),
    *("example.com", "example.com/path", "docs.example.org/a/b.html", "EXAMPLE.COM", "bit.ly/x7"),
    *("+49 30 1234567", "+1 (555) 010-0199", "+49 (0)30 123456", "+86 138 0013 8000", "(555) 010-0199", "030/123456"),
    *("0171 1234567", "01 23 45 67 89", "612 34 56 78", "555-0123", "400-123-4567", "020 7946 0958"),
    *("AB-1234", "X7K9Q", "LH123", "COVID-19", "DE89 3704 0044 0532 0130 00", "GB29 NWBK 6016 1331 9268 19"),
    *(
        "$19.99",
        "3,50 €",
        "3,50\u00a0€",
        "EUR 20",
        "20 EUR",
        "¥100",
        "US$5",
        "1.250,00 €",
        "1\u202f250 €",
        "£1,250.50",
    ),
    *(
        "1,250",
        "12.5",
        "3.50",
        "12345",
        "10 000",
        "10\u202f000",
        "1'250",
        "1,25,000",
        "2.13.0",
        "v2.13.0",
        "192.168.0.1",
    ),
    *("2024-05-17", "17.05.2024", "5/17/2024", "2024/5/17", "2024-05-17T10:30:00Z", "10:30", "9:05", "23:59:59"),
    *("@name", "@anna.b", "@anna@mastodon.example", "#tag", "#Straße"),
]
SENTENCES = [
    "Please see {} today.",
    "Is it {}?",
    "It is {}.",
    "({}), yes!",
    "Hier: „{}“ – gut.",
    "Bitte bis »{}« warten!",
    "C'est « {} » ?",
    "Voici\u00a0: {}\u202f!",
    "¿Es {}?",
    "¡Es {}!",
    "请看{}。",
    "这是{}，对吗？",
    "（{}）",
    '"{}"',
    "'{}'",
    "{}",
]
KEPT = [
    *("7", "There are 2 apples and 7 pears.", "the 2nd of May", "am 17. Oktober"),
    *("10,000th", "In the 1990s", "Room 5", "3. Oktober", "2º piso", "1er étage", "The end.It is late."),
    *("Let's go.And then?", "5KG AT 10AM", "THE 2ND, 3RD AND 4TH", "C# or C++", "We are #1", "24/7", "3:1"),
    *("z.B. und d.h.", "U.S.A.", "Mr. No", "三个苹果和4个梨", "5月7日", "关注我@", "#话题#", "a@b"),
    *("½ litre", "5 dollars", "AT&T", "2元", "e.g. this", "hello...world", "Dr.Miller", "1.,2.", "5%"),
    *("-5 °C", "Straße 1", "4K and 5G", "well-known"),
]

PIECES = st.one_of(
    st.sampled_from(COPIED),
    st.text("aAzZß é019+-.,:;/@#$€¥()'⟨⟩1中。，\u00a0\n_😀", max_size=8),
    st.text(max_size=5),
)
TEXTS = st.lists(PIECES, max_size=14).map("".join) | st.lists(PIECES, max_size=14).map(" ".join)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_everything_is_found_in_every_sentence(sentence):
    for thing in COPIED:
        assert protect(sentence.format(thing)) == (sentence.format("⟨1⟩"), (thing,))


def test_small_numbers_ordinals_and_words_stay():
    for text in KEPT:
        assert protect(text) == (text, ())


@pytest.mark.parametrize(
    ("text", "protected", "values"),
    [
        ("l'info@example.com", "l'⟨1⟩", ["info@example.com"]),
        ("Buy 20 $5 cards", "Buy ⟨1⟩ ⟨2⟩ cards", ["20", "$5"]),
        ("1999-2004, 42 people", "⟨1⟩-⟨2⟩, ⟨3⟩ people", ["1999", "2004", "42"]),
        ("5 €/kg or 12.5kg", "⟨1⟩/kg or ⟨2⟩kg", ["5 €", "12.5"]),
        ("COVID-19-Pandemie", "⟨1⟩-Pandemie", ["COVID-19"]),
        ("[page](https://example.com/a)", "[page](⟨1⟩)", ["https://example.com/a"]),
        ("10:30-11:30 Uhr", "⟨1⟩-⟨2⟩ Uhr", ["10:30", "11:30"]),
        ("航班LH123晚点,价格¥100", "航班⟨1⟩晚点,价格⟨2⟩", ["LH123", "¥100"]),
        ("It fell by -12.5 %", "It fell by ⟨1⟩ %", ["-12.5"]),
        ("⟨1⟩ of info@example.com", "⟨1⟩ of info@example.com", []),
        ("⟨12345⟩", "⟨⟨1⟩⟩", ["12345"]),
    ],
)
def test_several_things_and_their_neighbours(text, protected, values):
    assert protect(text) == (protected, tuple(values))
    assert restore(protected, tuple(values)) == text


@given(TEXTS, st.integers(-1, 20))
@example("⟨1⟩ 12345", 9)
@example("⟨12345⟩ ⟨1 12345⟩ ⟨", 9)
def test_protecting_and_restoring_is_the_identity(text, most):
    protected, values = protect(text, most)
    assert restore(protected, values) == text
    assert len(values) <= max(0, min(most, MOST_PLACEHOLDERS))
    if values:
        positions = [protected.index(placeholder) for placeholder in PLACEHOLDERS[: len(values)]]
        assert positions == sorted(positions)  # numbered in the order of the source
        assert all(protected.count(placeholder) == 1 for placeholder in PLACEHOLDERS[: len(values)])


@given(st.lists(st.sampled_from(COPIED), min_size=1, max_size=9), st.randoms())
def test_restoring_in_any_order(things, random):
    """Each value stands where the translation has its placeholder; a lost or doubled one is noticed."""
    protected, values = protect(" ; ".join(things))
    assert values == tuple(things)
    shuffled = random.sample(range(len(things)), len(things))
    assert restore(" ; ".join(PLACEHOLDERS[i] for i in shuffled), values) == " ; ".join(things[i] for i in shuffled)
    lost = random.choice(PLACEHOLDERS[: len(things)])
    assert restore(protected.replace(lost, ""), values) is None
    assert restore(protected + lost, values) is None
    if len(things) < MOST_PLACEHOLDERS:
        assert restore(protected + PLACEHOLDERS[len(things)], values) is None


def test_equal_values_may_stand_for_each_other():
    _, values = protect("From 10:30 to 10:30")
    assert restore("⟨2⟩ ⟨2⟩", values) == "10:30 10:30"
    assert restore("⟨2⟩", values) is None


def test_a_tenth_thing_stays():
    protected, values = protect(" ".join(f"1000{digit}," for digit in range(10)))
    assert len(values) == 9
    assert protected.endswith("⟨9⟩, 10009,")


def test_a_thing_alone_is_copied():
    for thing in COPIED:
        assert is_copied(thing)
        assert is_copied(f" {thing}, {thing}\n")
        assert not is_copied(f"see {thing}")


def test_numbers_signs_and_emoji_alone_are_copied():
    assert all(map(is_copied, ["42", "😀", "👍🏽 🎉", "1999", "3 + 4 = 7", "?", "½", "5 %", "⟨1⟩", ""]))
    assert not any(map(is_copied, ["a", "42 apples", "中", "5 kg", "😀 ok", "Ω"]))


@pytest.mark.parametrize(
    "piece",
    ["A-", "a.", "1 ", "1.", "+1", "(1", "a@", "0 ", "((", "https://(", "www.(a", "AAAA-", "1'111", "1", "@a."],
)
def test_time_grows_with_the_length_and_not_with_its_square(piece):
    """A repetition inside a repetition would take hours here."""
    text = piece * 5_000
    protected, values = protect(text)
    assert restore(protected, values) == text
