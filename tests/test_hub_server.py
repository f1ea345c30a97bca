"""The Hub of hub_server.py against the real client, which runs in processes of its own: it reads its settings once."""

import http.client
import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.hub_server import ATTRIBUTES, HubServer


REPO = "someone/model"
PUSH = f"api.create_repo({REPO!r}, exist_ok=True); api.upload_folder(folder_path=arguments[0], repo_id={REPO!r})"
UNTOUCHED = {".gitattributes": ATTRIBUTES}


@pytest.fixture
def hub():
    with HubServer(token="hf_test", user="someone") as server:
        server.add_token("hf_read", user="someone", role="read")
        server.add_token("hf_other", user="other")
        yield server


@pytest.fixture
def try_client(hub, tmp_path):
    """Runs code that finds the client in `api`; `home` holds the cache that runs share."""

    def run(code, *arguments, token="hf_test", home="home"):
        prelude = "import json, sys; from huggingface_hub import HfApi; api, arguments = HfApi(), sys.argv[1:]\n"
        command = [sys.executable, "-c", prelude + code, *map(str, arguments)]
        environment = hub.environment(tmp_path / home, token)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture
def client(try_client):
    """`try_client` for code that must succeed; gives what it printed."""

    def run(code, *arguments, **keywords):
        done = try_client(code, *arguments, **keywords)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def refusals(client):
    """What the client makes of the Hub's answer to each call, all in one process."""
    code = """
for call in arguments:
    try:
        print(eval(call))
    except Exception as error:
        print(type(error).__name__, error.response.status_code)
"""
    return lambda calls: dict(zip(calls, client(code, *calls).splitlines(), strict=True))


@pytest.fixture
def connection(hub):
    """A connection without the client, for what it cannot be asked to do."""
    with closing(http.client.HTTPConnection(hub.url.removeprefix("http://"))) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path):
    """What an export looks like: weights, a card, and a file in a folder, with a space in its name."""
    path = tmp_path / "export"
    (path / "logs").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(os.urandom(300_000))
    (path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    (path / "logs" / "first run.txt").write_text("Grüße\n")
    return path


def contents(folder) -> dict[str, bytes]:
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def uploads(hub) -> list[int | None]:
    """The answer to every upload of a large file."""
    return [request.status for request in hub.requests if request.method == "PUT"]


def test_a_pushed_folder_comes_back_byte_for_byte(hub, client, folder):
    client(PUSH, folder)
    published = {**UNTOUCHED, **contents(folder)}
    assert hub.files(REPO) == published
    assert hub.history(REPO) == ["Upload folder using huggingface_hub", "initial commit"]
    assert uploads(hub) == [200]  # the weights alone go to large file storage

    snapshot = client(f"print(api.snapshot_download({REPO!r}))", token=None, home="elsewhere")
    assert contents(snapshot) == published


def test_what_is_there_is_not_fetched_again(hub, client, folder):
    client(PUSH, folder)
    fetch = f"print(api.snapshot_download({REPO!r}), api.hf_hub_download({REPO!r}, 'model.safetensors'))"
    first = client(fetch)
    assert len(hub.downloads()) == len(hub.files(REPO))

    hub.requests.clear()
    assert client(fetch) == first
    assert hub.downloads() == []
    assert any(request.method == "HEAD" and request.status == 200 for request in hub.requests)


def test_pushing_the_same_again_makes_no_commit(hub, client, folder):
    client(f"{PUSH}; {PUSH}", folder)
    assert len(hub.history(REPO)) == 2
    assert uploads(hub) == [200]


def test_a_cut_upload_publishes_nothing_and_the_next_push_completes(hub, try_client, client, folder):
    hub.cut_upload_after(100_000)
    failed = try_client(PUSH, folder)
    assert failed.returncode != 0
    assert "Error while uploading 'model.safetensors' to the Hub" in failed.stderr
    assert uploads(hub) == [None, 403]
    assert hub.files(REPO) == UNTOUCHED

    client(PUSH, folder)
    assert hub.files(REPO) == {**UNTOUCHED, **contents(folder)}


def test_the_client_recovers_by_itself_where_it_may(hub, client, folder):
    hub.cut_upload_after(100_000, client_may_retry=True)
    client(PUSH, folder)
    assert uploads(hub) == [None, 200]
    assert hub.files(REPO) == {**UNTOUCHED, **contents(folder)}


def test_a_failed_commit_publishes_nothing_and_the_next_push_uploads_nothing_twice(hub, try_client, client, folder):
    hub.fail_next_commit()
    failed = try_client(PUSH, folder)
    assert "500" in failed.stderr
    assert hub.files(REPO) == UNTOUCHED

    client(PUSH, folder)
    assert hub.files(REPO) == {**UNTOUCHED, **contents(folder)}
    assert uploads(hub) == [200]


def test_a_client_that_dies_leaves_nothing_behind(hub, connection):
    hub.create(REPO)
    connection.putrequest("PUT", hub.upload_address(hub.repositories[REPO], "0" * 64))
    connection.putheader("Content-Length", "1000")
    connection.endheaders(b"only these")
    connection.sock.shutdown(socket.SHUT_WR)
    assert connection.sock.recv(1) == b""  # no answer
    assert uploads(hub) == [None]
    assert hub.repositories[REPO].large_files == {}


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("hf_wrong", "Invalid credentials in Authorization header"),
        ("hf_read", "403 Forbidden: You don't have the rights to create a model under the namespace 'someone'"),
    ],
)
def test_a_token_that_may_not_write_creates_nothing(hub, try_client, folder, token, sentence):
    assert sentence in try_client(PUSH, folder, token=token).stderr
    assert hub.repositories == {}


def test_whoami(client, try_client):
    code = "account = api.whoami(); print(account['name'], account['auth']['accessToken']['role'])"
    assert client(code, token="hf_read") == "someone read"
    assert "The token from HF_TOKEN environment variable is invalid" in try_client(code, token="hf_wrong").stderr


@pytest.mark.parametrize(
    ("token", "sentence"), [("hf_read", "you must use a write token"), ("hf_other", "pass `create_pr=1`")]
)
def test_only_the_owner_with_a_write_token_publishes(hub, try_client, folder, token, sentence):
    hub.create(REPO)
    assert f"403 Forbidden: Forbidden: {sentence}" in try_client(PUSH, folder, token=token).stderr
    assert hub.files(REPO) == UNTOUCHED


def test_a_pull_request_leaves_main_alone(hub, client, folder):
    hub.create(REPO)
    propose = f"print(api.upload_folder(folder_path=arguments[0], repo_id={REPO!r}, create_pr=True).pr_revision)"
    assert client(propose, folder, token="hf_other") == "refs/pr/1"
    assert client(propose, folder) == "refs/pr/2"
    assert hub.files(REPO) == UNTOUCHED

    snapshot = client(f"print(api.snapshot_download({REPO!r}, revision='refs/pr/1'))")
    assert contents(snapshot) == {**UNTOUCHED, **contents(folder)} == hub.files(REPO, revision="refs/pr/2")


def test_revisions(hub, client, folder):
    hub.create(REPO)
    code = f"""
api.create_branch({REPO!r}, branch="release/2")
commit = api.upload_folder(folder_path=arguments[0], repo_id={REPO!r}, revision="release/2", commit_message="Two")
api.create_tag({REPO!r}, tag="v2", revision="release/2")
refs = api.list_repo_refs({REPO!r})
titles = [commit.title for commit in api.list_repo_commits({REPO!r}, revision="release/2")]
print(json.dumps([commit.oid, {{ref.name: ref.target_commit for ref in refs.branches + refs.tags}}, titles]))
print(api.snapshot_download({REPO!r}, revision="v2"))
"""
    printed, snapshot = client(code, folder).splitlines()
    oid, refs, titles = json.loads(printed)
    assert refs["release/2"] == refs["v2"] == oid != refs["main"]
    assert contents(snapshot) == {**UNTOUCHED, **contents(folder)} == hub.files(REPO, revision=oid)
    assert hub.files(REPO, revision="main") == UNTOUCHED
    assert titles == ["Two", "initial commit"]


def test_the_client_tells_each_refusal_from_the_others(hub, refusals):
    hub.create(REPO)
    expected = {
        "api.hf_hub_download('someone/model', 'README.md', revision='v9')": "RevisionNotFoundError 404",
        "api.hf_hub_download('someone/model', 'README.md')": "RemoteEntryNotFoundError 404",
        "api.hf_hub_download('someone/other', 'README.md')": "RepositoryNotFoundError 404",
        "api.model_info('someone/other', token=False)": "RepositoryNotFoundError 401",
        "api.list_repo_files('someone/model', revision='v9')": "RevisionNotFoundError 404",
        "api.delete_file('README.md', 'someone/model')": "RemoteEntryNotFoundError 404",
        "api.create_branch('someone/model', branch='main')": "HfHubHTTPError 409",
        "api.create_repo('someone/model')": "HfHubHTTPError 409",
        "api.create_repo('other/model')": "HfHubHTTPError 403",
        "api.delete_file('.gitattributes', 'someone/model', parent_commit='0' * 40)": "HfHubHTTPError 412",
    }
    assert refusals(expected) == expected
    assert hub.files(REPO) == UNTOUCHED


def test_a_private_repository_does_not_exist_for_others(hub, client, refusals, folder):
    client(f"api.create_repo({REPO!r}, private=True); {PUSH}", folder)
    expected = {
        "api.snapshot_download('someone/model', token=False)": "RepositoryNotFoundError 401",
        "api.snapshot_download('someone/model', token='hf_other')": "RepositoryNotFoundError 404",
        "api.hf_hub_download('someone/model', 'README.md', token=False)": "RepositoryNotFoundError 401",
        "api.model_info('someone/model', token='hf_read').private": "True",
    }
    assert refusals(expected) == expected
    assert hub.downloads() == []
    assert contents(client(f"print(api.snapshot_download({REPO!r}))", token="hf_read")) == hub.files(REPO)


def test_a_gated_repository_shows_itself_but_not_its_files(hub, refusals):
    hub.create(REPO)
    hub.gate(REPO)
    expected = {
        "api.model_info('someone/model', token=False).gated": "manual",
        "api.hf_hub_download('someone/model', '.gitattributes', token=False)": "GatedRepoError 401",
        "api.hf_hub_download('someone/model', '.gitattributes', token='hf_other')": "GatedRepoError 403",
        "api.hf_hub_download('someone/model', '.gitattributes') is None": "False",
    }
    assert refusals(expected) == expected


def test_a_card_with_broken_metadata_is_refused_before_anything_travels(hub, try_client, folder):
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n# A model\n")
    assert "Invalid metadata in README.md" in try_client(PUSH, folder).stderr
    assert uploads(hub) == []
    assert hub.files(REPO) == UNTOUCHED


def test_files_are_replaced_and_deleted(hub, client, folder):
    client(PUSH, folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    (folder / "model.safetensors").unlink()
    client(f"api.upload_folder(folder_path=arguments[0], repo_id={REPO!r}, delete_patterns='*.safetensors')", folder)
    assert hub.files(REPO) == {**UNTOUCHED, **contents(folder)}
    assert len(hub.history(REPO)) == 3  # both in one commit

    client(f"api.delete_folder('logs', {REPO!r})")
    assert set(hub.files(REPO)) == {".gitattributes", "README.md"}


def test_listings_tell_sizes_and_hashes(client, folder):
    code = f"""{PUSH}
tree = [entry.path for entry in api.list_repo_tree({REPO!r})]
siblings = {{file.rfilename: file for file in api.model_info({REPO!r}, files_metadata=True).siblings}}
asked = [entry.path for entry in api.get_paths_info({REPO!r}, ["logs", "README.md", "missing"])]
print(json.dumps([tree, siblings["model.safetensors"].lfs.size, asked, list(siblings)]))
verified = api.verify_repo_checksums({REPO!r}, local_dir=arguments[0])
print(verified.checked_count, len(verified.mismatches))
"""
    printed, verified = client(code, folder).splitlines()
    tree, size, asked, files = json.loads(printed)
    assert tree == [".gitattributes", "README.md", "logs", "model.safetensors"]
    assert size == 300_000
    assert asked == ["README.md", "logs"]
    assert files == [".gitattributes", "README.md", "logs/first run.txt", "model.safetensors"]
    assert verified == "3 0"  # the client's own hashes against the Hub's


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [("bytes=2-4", 206, slice(2, 5)), ("bytes=5-", 206, slice(5, None)), ("bytes=999-", 416, slice(0))],
)
def test_a_download_can_start_in_the_middle(hub, connection, asked, status, part):
    hub.create(REPO)
    connection.request("GET", f"/{REPO}/resolve/main/.gitattributes", headers={"Range": asked})
    response = connection.getresponse()
    assert (response.status, response.read()) == (status, ATTRIBUTES[part])
