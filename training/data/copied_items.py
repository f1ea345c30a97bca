"""Things that a translation copies: invented names, addresses, numbers, codes and emoji."""

from collections.abc import Callable
from random import Random


EMOJI = "😀😂🙂😉😍🤔😎😢👍👏🙏❤️🎉🔥🌍☀️🐶🐱🍎🍕⚽🚗✈️🏠".replace("\ufe0f", "")
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiouy"
CAPITALS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
ENDINGS = ("com", "org", "net", "de", "fr", "es", "cn", "io")
CURRENCIES = ("${}", "€{}", "£{}", "{} €", "{} EUR", "{} USD", "¥{}")


def _word(random: Random) -> str:
    syllables = (random.choice(CONSONANTS) + random.choice(VOWELS) for _ in range(random.randint(1, 4)))
    return "".join(syllables) + random.choice(("", *CONSONANTS))


def _name(random: Random) -> str:
    return _word(random).capitalize()


def _person(random: Random) -> str:
    return " ".join(_name(random) for _ in range(random.randint(1, 2)))


def _street(random: Random) -> str:
    name, number = _name(random), random.randrange(1, 300)
    return random.choice((f"{number} {name} Street", f"{name} {number}", f"{number} {name} Road"))


def _email(random: Random) -> str:
    return f"{_word(random)}.{_word(random)}@{_word(random)}.{random.choice(ENDINGS)}"


def _url(random: Random) -> str:
    path = "".join(f"/{_word(random)}" for _ in range(random.randrange(3)))
    return f"{random.choice(('https://', 'https://www.', 'www.'))}{_word(random)}.{random.choice(ENDINGS)}{path}"


def _phone(random: Random) -> str:
    groups = [str(random.randrange(10**size, 10 ** (size + 1))) for size in (1, 2, 3)]
    return random.choice((f"+{' '.join(groups)}", f"0{''.join(groups)}", f"({groups[1]}) {groups[1]}-{groups[2]}"))


def _code(random: Random) -> str:
    letters = "".join(random.choices(CAPITALS, k=random.randint(1, 3)))
    return f"{letters}{random.choice(('', '-'))}{random.randrange(10, 10 ** random.randint(2, 6))}"


def _number(random: Random) -> str:
    number = random.randrange(10 ** random.randint(1, 6))
    return random.choice((f"{number}", f"{number}", f"{number:,}", f"{number / 100:.2f}"))


def _price(random: Random) -> str:
    amount = random.choice((f"{random.randrange(2, 500)}", f"{random.randrange(100, 50_000) / 100:.2f}"))
    return random.choice(CURRENCIES).format(amount)


def _date(random: Random) -> str:
    year, month, day = random.randrange(1950, 2040), random.randint(1, 12), random.randint(1, 28)
    return random.choice((f"{year}-{month:02}-{day:02}", f"{day:02}.{month:02}.{year}", f"{day}/{month}/{year}"))


def _time(random: Random) -> str:
    return f"{random.choice((0, *range(2, 24)))}:{random.randrange(60):02}"  # not 1:..: Spanish would need "la"


def _emoji(random: Random) -> str:
    few = random.choices(EMOJI, k=random.randint(1, 3))
    return "".join(few) * random.choice((1, 1, 1, 3, 10))


# The keys are also the slots of templates.
COPIED: dict[str, Callable[[Random], str]] = {
    "name": _name,
    "person": _person,
    "street": _street,
    "email": _email,
    "url": _url,
    "phone": _phone,
    "code": _code,
    "number": lambda random: str(random.randrange(2, 10 ** random.randint(1, 4))),
    "amount": _number,
    "price": _price,
    "date": _date,
    "time": _time,
    "age": lambda random: str(random.randint(2, 99)),
    "emoji": _emoji,
}
