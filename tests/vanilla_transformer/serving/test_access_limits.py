import pytest

from vanilla_transformer.serving.access_limits import KEYS_VARIABLE, ApiKeys, Limits, RateLimit
from vanilla_transformer.serving.errors import RequestError


def test_keys_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "keys"
    file.write_text("first\n\n second \n")
    keys = ApiKeys.read(str(file))
    assert keys
    assert [keys.accept(key) for key in ("first", "second", "third", "", None, "\ud800")] == [True, True] + [False] * 4
    monkeypatch.setenv(KEYS_VARIABLE, "third, fourth")
    assert ApiKeys.read().accept("fourth")
    monkeypatch.delenv(KEYS_VARIABLE)
    assert not ApiKeys.read()
    assert ApiKeys.read().accept(None)
    file.write_text("\n")
    with pytest.raises(ValueError, match="holds no API key"):
        ApiKeys.read(str(file))


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(
        "vanilla_transformer.serving.access_limits.hmac.compare_digest", lambda a, b: compared.append((a, b)) or a == b
    )
    assert ApiKeys(["a", "b", "c"]).accept("a")
    assert len(compared) == 3
    assert {len(digest) for pair in compared for digest in pair} == {32}


def test_a_client_has_a_number_of_requests_in_each_minute():
    now = 30.0
    limit = RateLimit(2, clock=lambda: now)
    for client in ("a", "a", "b"):
        limit.count(client)
    with pytest.raises(RequestError, match="2 requests in a minute") as refused:
        limit.count("a")
    assert (refused.value.status_code, refused.value.headers) == (429, {"Retry-After": "30"})
    now = 60.0
    limit.count("a")


@pytest.mark.parametrize(
    ("texts", "status"), [(["abc", "de"], None), (["abcdef"], 413), (["a"] * 4, 413), (["\ud800"], 400)]
)
def test_texts_have_limits(texts, status):
    limits = Limits(max_characters=5, max_texts=3)
    if status is None:
        limits.require_texts(texts)
    else:
        with pytest.raises(RequestError) as refused:
            limits.require_texts(texts)
        assert refused.value.status_code == status


def test_a_limit_is_more_than_nothing():
    with pytest.raises(ValueError, match="max_seconds=0 must be more than 0"):
        Limits(max_seconds=0)
