"""What a client may ask for: sizes, time, number of requests, and who may ask at all."""

import hmac
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from .errors import RequestError


KEYS_VARIABLE = "VANILLA_API_KEYS"
BYTES_PER_CHARACTER = 12  # at most: a character outside of the basic plane, as \uXXXX\uXXXX or as %XX%XX%XX%XX
OTHER_BYTES = 16_384  # for everything in a request that is not text


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all requests together.

    Args:
        max_characters: Characters in a request, all texts together.
        max_texts: Texts in a request.
        max_sentence_tokens: Tokens in a sentence. The time for a sentence grows with the square of its length.
        max_seconds: Seconds until a request is answered, and for its body to arrive.
        max_waiting: Sentences of all requests that wait for the engine.
        max_connections: Connections that are open.
        requests_per_minute: Requests of one client in a minute; `None` for no limit.
    """

    max_characters: int = 10_000
    max_texts: int = 128
    max_sentence_tokens: int = 512
    max_seconds: float = 30.0
    max_waiting: int = 4096
    max_connections: int = 1000
    requests_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be more than 0, and finite.")

    @property
    def max_bytes(self) -> int:
        """Bytes in the body or in the address of a request."""
        return OTHER_BYTES + BYTES_PER_CHARACTER * self.max_characters

    def require_texts(self, texts: list[str], translation: str = "") -> None:
        """Refuses texts that are too many, too long, or not Unicode. A translation may be longer than its text: its
        tokens are counted later."""
        if len(texts) > self.max_texts:
            raise RequestError(413, f"q has {len(texts):,} texts: send at most {self.max_texts:,} at once.")
        characters = sum(map(len, texts))
        if characters > self.max_characters:
            raise RequestError(413, f"q has {characters:,} characters: send at most {self.max_characters:,} at once.")
        try:
            "".join([*texts, translation]).encode("utf-8")
        except UnicodeEncodeError as error:
            raise RequestError(400, "q is not Unicode text: it has half of a surrogate pair.") from error


class ApiKeys:
    """The keys that clients must send; without any key, everyone may ask.

    Args:
        keys: The keys.
    """

    def __init__(self, keys: Iterable[str] = ()):
        self._digests = [self._digest(key) for key in keys]

    @classmethod
    def read(cls, path: str | None = None) -> "ApiKeys":
        """Reads keys from a file, one a line, or else from the environment, separated by commas."""
        if path is None:
            return cls(key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",") if key.strip())
        keys = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
        if not keys:
            raise ValueError(f"{path} holds no API key: write one a line.")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, key: str | None) -> bool:
        """Whether a client with this key may ask. The time it takes does not depend on the key.

        Digests have the same length, and every key is compared, also after a match.
        """
        digest = self._digest(key or "")
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) or not self._digests

    @staticmethod
    def _digest(key: str) -> bytes:
        return sha256(key.encode("utf-8", "surrogatepass")).digest()


class RateLimit:
    """Counts the requests of each client, and starts again every minute.

    Args:
        requests_per_minute: Requests of one client in a minute; `None` for no limit.
        clock: Seconds since any moment.
    """

    def __init__(self, requests_per_minute: int | None, clock: Callable[[], float] = time.monotonic):
        self._limit, self._clock = requests_per_minute, clock
        self._minute, self._requests = -1, Counter[str]()

    def count(self, client: str) -> None:
        """Counts a request. Refuses it if the client has used up its minute."""
        if self._limit is None:
            return
        minute, second = divmod(int(self._clock()), 60)
        if minute != self._minute:
            self._minute = minute
            self._requests.clear()
        self._requests[client] += 1
        if self._requests[client] > self._limit:
            raise RequestError(
                429,
                f"A client may send {self._limit:,} requests in a minute: wait for the next one.",
                {"Retry-After": str(60 - second)},
            )
