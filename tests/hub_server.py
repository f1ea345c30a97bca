"""A Hugging Face Hub on loopback: the real client pushes to it and loads from it through HF_ENDPOINT.

    with HubServer(token="hf_test", user="someone") as hub:
        subprocess.run([sys.executable, "-c", code], env=hub.environment(tmp_path, hub.token), check=True)
        hub.files("someone/model")  # path -> bytes, as published

Models only, kept in memory; nothing depends on the clock. Statuses, error codes and sentences are the Hub's own where
the client, or the person reading its message, depends on them. ROUTES, at the end, is the table of contents.
"""

import base64
import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


LFS_PATTERNS = ["*.bin", "*.h5", "*.model", "*.npz", "*.onnx", "*.pt", "*.pth", "*.safetensors", "*.zip"]
LFS_FROM_SIZE = 10 * 2**20
ATTRIBUTES = "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LFS_PATTERNS).encode()
DATE = "2017-06-12T00:00:00.000Z"


# --- What the Hub keeps


class HubError(Exception):
    """An answer other than 200; `code` is the X-Error-Code from which the client chooses its exception."""

    def __init__(self, status: int, message: str, *, code: str | None = None, **fields):
        super().__init__(message)
        self.status, self.code, self.body = status, code, {"error": message, **fields}


class CutError(Exception):
    """The body of a request ended early: there is nothing to answer."""


class Account(NamedTuple):
    user: str
    role: str  # "write" or "read", as the Hub calls its tokens


class Request(NamedTuple):
    method: str
    path: str
    status: int | None  # None: cut before an answer


@dataclass(frozen=True)
class Blob:
    """The content of a file, in git itself or, behind a pointer, in large file storage (LFS)."""

    content: bytes = field(repr=False)
    is_lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        lines = [
            "version https://git-lfs.github.com/spec/v1",
            f"oid sha256:{self.sha256}",
            f"size {len(self.content)}",
        ]
        return "\n".join([*lines, ""]).encode()

    @cached_property
    def git_oid(self) -> str:
        stored = self.pointer if self.is_lfs else self.content
        return sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_lfs else self.git_oid

    def lfs_fields(self, name_of_hash: str) -> dict:
        if not self.is_lfs:
            return {}
        size, pointer_size = len(self.content), len(self.pointer)
        return {"lfs": {name_of_hash: self.sha256, "size": size, "pointerSize": pointer_size}}


@dataclass(frozen=True)
class Commit:
    title: str
    files: dict[str, Blob]
    parent: "Commit | None" = field(default=None, repr=False)

    @cached_property
    def oid(self) -> str:
        tree = sorted((path, blob.git_oid) for path, blob in self.files.items())
        return sha1(json.dumps([self.parent and self.parent.oid, self.title, tree]).encode()).hexdigest()

    def history(self) -> Iterator["Commit"]:
        commit = self
        while commit:
            yield commit
            commit = commit.parent


class Repository:
    """Commits reached by name (`refs/heads/main`, `refs/pr/1`, `refs/tags/v1`) and the uploaded large files."""

    def __init__(self, repo_id: str, *, private: bool):
        self.id, self.private, self.gated = repo_id, private, False
        # As on the Hub, a new repository holds the list of what goes to large file storage.
        self.refs = {"refs/heads/main": Commit("initial commit", {".gitattributes": Blob(ATTRIBUTES)})}
        self.large_files: dict[str, bytes] = {}

    @property
    def owner(self) -> str:
        return self.id.split("/")[0]

    def ref(self, revision: str, kinds: tuple[str, ...] = ("refs/heads/", "refs/tags/", "")) -> str:
        """The full name of what `revision` names; a pull request has no shorter name than its full one."""
        names = [kind + revision for kind in kinds]
        found = next((name for name in names if name in self.refs), None)
        if found is None:
            raise HubError(404, f"Invalid rev id: {revision}", code="RevisionNotFound")
        return found

    def commit_at(self, revision: str) -> Commit:
        commits = (commit for head in self.refs.values() for commit in head.history())
        return next((commit for commit in commits if commit.oid == revision), None) or self.refs[self.ref(revision)]

    def new_ref(self, name: str, commit: Commit):
        if name in self.refs:
            raise HubError(409, "Reference already exists")
        self.refs[name] = commit

    def next_pull_request(self) -> int:
        return 1 + sum(name.startswith("refs/pr/") for name in self.refs)

    def changed(self, files: dict[str, Blob], operations: list[dict]) -> dict[str, Blob]:
        """The files after all `operations`; a wrong one raises, and nothing has changed."""
        files = dict(files)
        for operation in operations:
            path = operation["value"]["path"]
            match operation["key"]:
                case "file":
                    files[path] = Blob(base64.b64decode(operation["value"]["content"]))
                case "lfsFile":
                    files[path] = self.large_file(operation["value"]["oid"])
                case "deletedFile":
                    self.delete(files, [path])
                case "deletedFolder":
                    self.delete(files, [name for name in files if name.startswith(path.rstrip("/") + "/")])
        return files

    def large_file(self, oid: str) -> Blob:
        if oid not in self.large_files:
            raise HubError(400, f"Your push was rejected: the LFS object {oid} was never uploaded")
        return Blob(self.large_files[oid], is_lfs=True)

    @staticmethod
    def delete(files: dict[str, Blob], paths: list[str]):
        if not paths or any(path not in files for path in paths):
            raise HubError(404, "A file with this name doesn't exist", code="EntryNotFound")
        for path in paths:
            del files[path]


# --- What the Hub answers


class Conversation(BaseHTTPRequestHandler):
    """One client connection. A method named in ROUTES answers one kind of request with what becomes its JSON."""

    protocol_version = "HTTP/1.1"  # connections are kept, as the client expects
    disable_nagle_algorithm = True  # headers and body leave in two writes: waiting to join them costs 40 ms a request

    @property
    def hub(self) -> "HubServer":
        return self.server.hub

    def respond(self):
        self.address = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(self.address.query).items()}
        try:
            self.body = self.received()
            self.account = self.identify()
            answer = self.route()
            if answer is not None:
                self.reply(200, json.dumps(answer).encode())
        except HubError as error:
            self.reply_with_error(error)
        except CutError:
            self.hub.requests.append(Request(self.command, self.path, None))
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = respond  # noqa: N815

    def log_message(self, *_):
        """Silent: `hub.requests` is the log."""

    def route(self) -> dict | list | None:
        method = "GET" if self.command == "HEAD" else self.command
        for expected, pattern, answer in ROUTES:
            match = re.fullmatch(pattern, self.address.path)
            if match and expected == method:
                # The client quotes the slashes of a revision, so unquoting has to come after the split.
                return answer(self, **{name: unquote(value) for name, value in match.groupdict().items()})
        raise HubError(404, f"This test Hub knows no {self.command} {self.address.path}")

    def received(self) -> bytes:
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(self.hub.bytes_to_accept(self.address.path, size))
        if len(body) < size:
            raise CutError
        return body

    def payload(self) -> dict:
        return json.loads(self.body)

    def reply(self, status: int, body: bytes, headers: dict | None = None):
        self.hub.requests.append(Request(self.command, self.path, status))
        self.send_response(status)
        usual = {"Content-Type": "application/json", "Content-Length": len(body)}
        for name, value in (usual | (headers or {})).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_with_error(self, error: HubError):
        # A HEAD has no body, so the client reads the message from a header.
        headers = {"X-Error-Message": str(error)}
        if error.code:
            headers["X-Error-Code"] = error.code
        self.reply(error.status, json.dumps(error.body).encode(), headers)

    # Who may do what

    def identify(self) -> Account | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.accounts:
            raise HubError(401, "Invalid credentials in Authorization header")
        return self.hub.accounts.get(token)

    def signed_in(self) -> Account:
        if self.account is None:
            raise HubError(401, "Invalid username or password.")
        return self.account

    def owns(self, repository: Repository) -> bool:
        return self.account is not None and self.account.user == repository.owner

    def readable(self, repo: str) -> Repository:
        repository = self.hub.repositories.get(repo)
        if repository and (not repository.private or self.owns(repository)):
            return repository
        # The Hub does not tell a missing repository from a private one, nor a stranger that it might exist.
        if self.account is None:
            raise HubError(401, "Invalid username or password.", code="RepoNotFound")
        raise HubError(404, "Repository not found", code="RepoNotFound")

    def downloadable(self, repo: str) -> Repository:
        repository = self.readable(repo)
        if repository.gated and not self.owns(repository):
            status, remedy = (403, "ask for access") if self.account else (401, "please log in")
            raise HubError(status, f"Access to model {repo} is restricted: {remedy}.", code="GatedRepo")
        return repository

    def writable(self, repo: str, *, pull_request: bool = False) -> Repository:
        """Anyone who may write at all may propose a pull request; the rest is the owner's."""
        repository = self.readable(repo)
        if self.signed_in().role != "write":
            raise HubError(403, "Forbidden: you must use a write token to upload to a repository")
        if not (pull_request or self.owns(repository)):
            raise HubError(403, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")
        return repository

    # Accounts and repositories

    def whoami(self) -> dict:
        user, role = self.signed_in()
        token = {"type": "access_token", "accessToken": {"displayName": "test", "role": role}}
        return {"type": "user", "id": user, "name": user, "fullname": user, "orgs": [], "auth": token}

    def create_repository(self) -> dict:
        wanted, account = self.payload(), self.signed_in()
        namespace = wanted["organization"] or account.user
        if account != (namespace, "write"):
            raise HubError(403, f"You don't have the rights to create a model under the namespace {namespace!r}")
        repo = f"{namespace}/{wanted['name']}"
        url = f"{self.hub.url}/{repo}"
        if repo in self.hub.repositories:
            raise HubError(409, "You already created this model repo", url=url)
        self.hub.create(repo, private=wanted.get("visibility") == "private")
        return {"url": url, "name": repo}

    def validate_card(self) -> dict:
        """The front matter's fences only: YAML itself is not in the standard library."""
        card = self.payload()["content"]
        if not card.startswith("---\n"):
            return {"errors": [], "warnings": [{"message": "empty or missing yaml metadata in repo card"}]}
        if "\n---\n" not in card + "\n":
            message = "the yaml metadata is not closed by a line of ---"
            raise HubError(400, message, errors=[{"message": message}])
        return {"errors": [], "warnings": []}

    # Looking

    def model_info(self, repo: str, revision: str = "main") -> dict:
        repository = self.readable(repo)
        commit = repository.commit_at(revision)
        return {
            "id": repo,
            "author": repository.owner,
            "sha": commit.oid,
            "private": repository.private,
            "gated": "manual" if repository.gated else False,
            "lastModified": DATE,
            "createdAt": DATE,
            "tags": [],
            "siblings": [self.sibling(path, blob) for path, blob in sorted(commit.files.items())],
        }

    def sibling(self, path: str, blob: Blob) -> dict:
        if "blobs" not in self.query:
            return {"rfilename": path}
        return {"rfilename": path, "size": len(blob.content), "blobId": blob.git_oid, **blob.lfs_fields("sha256")}

    def tree(self, repo: str, revision: str, path: str = "") -> list:
        files = self.readable(repo).commit_at(revision).files
        prefix = f"{path}/" if path else ""
        inside = [name for name in all_paths(files) if name.startswith(prefix)]
        if path and not inside:
            raise HubError(404, f"{path} does not exist on {revision}", code="EntryNotFound")
        if self.query.get("recursive") != "true":
            inside = [name for name in inside if "/" not in name.removeprefix(prefix)]
        return [path_info(files, name) for name in inside]

    def paths_info(self, repo: str, revision: str) -> list:
        files = self.readable(repo).commit_at(revision).files
        asked = parse_qs(self.body.decode()).get("paths", [])
        return [path_info(files, name) for name in all_paths(files) if name in asked]

    def list_refs(self, repo: str) -> dict:
        refs = self.readable(repo).refs

        def named(prefix: str) -> list[dict]:
            names = (name for name in refs if name.startswith(prefix))
            return [{"name": ref.removeprefix(prefix), "ref": ref, "targetCommit": refs[ref].oid} for ref in names]

        listed = {"branches": named("refs/heads/"), "tags": named("refs/tags/"), "converts": []}
        return {**listed, "pullRequests": named("refs/pr/")} if "include_prs" in self.query else listed

    def list_commits(self, repo: str, revision: str) -> list:
        head = self.readable(repo).commit_at(revision)
        shared = {"authors": [{"user": repo.split("/")[0]}], "date": DATE, "message": ""}
        return [{"id": commit.oid, "title": commit.title, **shared} for commit in head.history()]

    def download(self, repo: str, revision: str, path: str):
        commit = self.downloadable(repo).commit_at(revision)
        if path not in commit.files:
            raise HubError(404, "Entry not found", code="EntryNotFound")
        blob = commit.files[path]
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
        headers |= {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.etag}"'}
        if blob.is_lfs:
            headers |= {"X-Linked-ETag": f'"{blob.etag}"', "X-Linked-Size": len(blob.content)}
        # No X-Xet-Hash: a client that has hf_xet installed then downloads over plain HTTP all the same.
        self.reply_with_content(blob.content, headers)

    def reply_with_content(self, content: bytes, headers: dict):
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self.reply(200, content, headers)
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first > last:
            return self.reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        headers |= {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        return self.reply(206, content[first : last + 1], headers)

    # Pushing: ask how each file travels, upload the large ones, then publish all of them in one commit

    def preupload(self, repo: str, revision: str) -> dict:
        repository = self.writable(repo, pull_request="create_pr" in self.query)
        present = repository.commit_at(revision).files
        return {"files": [self.upload_mode(file, present.get(file["path"])) for file in self.payload()["files"]]}

    @staticmethod
    def upload_mode(file: dict, present: Blob | None) -> dict:
        by_name = any(fnmatch(file["path"], pattern) for pattern in LFS_PATTERNS)
        is_large = by_name or file["size"] >= LFS_FROM_SIZE or b"\0" in base64.b64decode(file["sample"])
        mode = "lfs" if is_large else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": present and present.etag}

    def lfs_batch(self, repo: str) -> dict:
        wanted = self.payload()
        # The client names no branch when it prepares a pull request: that needs no right to write to one.
        repository = self.writable(repo, pull_request="ref" not in wanted)
        return {"transfer": "basic", "objects": [self.lfs_action(repository, file) for file in wanted["objects"]]}

    def lfs_action(self, repository: Repository, file: dict) -> dict:
        known = {"oid": file["oid"], "size": file["size"]}
        if file["oid"] in repository.large_files:
            return known
        verify = f"{self.hub.url}/{repository.id}.git/info/lfs/objects/verify"
        upload = f"{self.hub.url}{self.hub.upload_address(repository, file['oid'])}"
        return {**known, "actions": {"upload": {"href": upload}, "verify": {"href": verify}}}

    def lfs_upload(self) -> dict:
        """A signed address is its own permission: the client sends no token with it."""
        repository, oid = self.hub.uploads.get(self.address.path, (None, None))
        if repository is None:
            raise HubError(403, "Request has expired")
        if sha256(self.body).hexdigest() != oid:
            raise HubError(400, "The content does not match its SHA-256")
        repository.large_files[oid] = self.body
        return {}

    def lfs_verify(self, repo: str) -> dict:
        file, stored = self.payload(), self.writable(repo, pull_request=True).large_files
        if len(stored.get(file["oid"], b"")) != file["size"]:
            raise HubError(404, f"The LFS object {file['oid']} was never uploaded")
        return {}

    def commit(self, repo: str, revision: str) -> dict:
        is_pull_request = "create_pr" in self.query
        repository = self.writable(repo, pull_request=is_pull_request)
        header, *operations = map(json.loads, self.body.splitlines())
        with self.hub.lock:
            self.hub.raise_if_told_to_fail()
            ref = repository.ref(revision, kinds=("refs/heads/", ""))  # a tag does not move
            head = self.parent(repository, ref, header["value"].get("parentCommit"), is_pull_request)
            commit = Commit(header["value"]["summary"], repository.changed(head.files, operations), head)
            number = repository.next_pull_request()
            repository.refs[f"refs/pr/{number}" if is_pull_request else ref] = commit
        url = f"{self.hub.url}/{repo}"
        published = {"success": True, "commitOid": commit.oid, "commitUrl": f"{url}/commit/{commit.oid}"}
        return {**published, "pullRequestUrl": f"{url}/discussions/{number}"} if is_pull_request else published

    @staticmethod
    def parent(repository: Repository, ref: str, expected: str | None, is_pull_request: bool) -> Commit:
        head = repository.refs[ref]
        if expected is None or head.oid.startswith(expected):
            return head
        if is_pull_request:
            return repository.commit_at(expected)
        raise HubError(412, "A commit has happened since. Please refresh and try again.")

    def create_branch(self, repo: str, revision: str) -> dict:
        repository = self.writable(repo)
        start = repository.commit_at(self.payload().get("startingPoint", "main"))
        repository.new_ref(f"refs/heads/{revision}", start)
        return {}

    def create_tag(self, repo: str, revision: str) -> dict:
        repository = self.writable(repo)
        repository.new_ref(f"refs/tags/{self.payload()['tag']}", repository.commit_at(revision))
        return {}


def all_paths(files: dict[str, Blob]) -> list[str]:
    """Files and the folders above them."""
    parts = [path.split("/") for path in files]
    return sorted({"/".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)})


def path_info(files: dict[str, Blob], path: str) -> dict:
    if path not in files:
        return {"type": "directory", "path": path, "oid": sha1(path.encode()).hexdigest(), "size": 0}
    blob = files[path]
    return {"type": "file", "path": path, "oid": blob.git_oid, "size": len(blob.content), **blob.lfs_fields("oid")}


REPO, REVISION, PATH = r"(?P<repo>[^/]+/[^/]+)", r"(?P<revision>[^/]+)", r"(?P<path>.+)"
MODEL, LFS = f"/api/models/{REPO}", rf"/{REPO}\.git/info/lfs/objects"
ROUTES = [
    ("GET", "/api/whoami-v2", Conversation.whoami),
    ("POST", "/api/repos/create", Conversation.create_repository),
    ("POST", "/api/validate-yaml", Conversation.validate_card),
    ("GET", MODEL, Conversation.model_info),
    ("GET", f"{MODEL}/revision/{REVISION}", Conversation.model_info),
    ("GET", f"{MODEL}/tree/{REVISION}", Conversation.tree),
    ("GET", f"{MODEL}/tree/{REVISION}/{PATH}", Conversation.tree),
    ("POST", f"{MODEL}/paths-info/{REVISION}", Conversation.paths_info),
    ("GET", f"{MODEL}/refs", Conversation.list_refs),
    ("GET", f"{MODEL}/commits/{REVISION}", Conversation.list_commits),
    ("GET", f"/{REPO}/resolve/{REVISION}/{PATH}", Conversation.download),
    ("POST", f"{MODEL}/preupload/{REVISION}", Conversation.preupload),
    ("POST", f"{LFS}/batch", Conversation.lfs_batch),
    ("PUT", "/signed-upload/[^/]+", Conversation.lfs_upload),
    ("POST", f"{LFS}/verify", Conversation.lfs_verify),
    ("POST", f"{MODEL}/commit/{REVISION}", Conversation.commit),
    ("POST", f"{MODEL}/branch/{REVISION}", Conversation.create_branch),
    ("POST", f"{MODEL}/tag/{REVISION}", Conversation.create_tag),
]


# --- The server


class Listener(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request, client_address):
        # A client that goes away is what some tests are about; anything else is a mistake in this file.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class HubServer:
    """The Hub as a context manager, with what a test may look at and the ways in which it can be made to misbehave.

    Args:
        token: The token that may write to `user`'s repositories.
        user: The account, and the namespace of its repositories.

    Attributes:
        url: What HF_ENDPOINT has to be.
        requests: Every request so far, oldest first; clear it to watch what comes next.
    """

    def __init__(self, *, token: str = "hf_test", user: str = "someone"):
        self.token, self.user = token, user
        self.accounts = {token: Account(user, "write")}
        self.repositories: dict[str, Repository] = {}
        self.uploads: dict[str, tuple[Repository, str]] = {}
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self._cut: tuple[int, bool] | None = None
        self._commits_to_fail = 0

    def __enter__(self) -> "HubServer":
        self._listener = Listener(("127.0.0.1", 0), Conversation)
        self._listener.hub = self
        self.url = f"http://127.0.0.1:{self._listener.server_port}"
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown()
        self._listener.server_close()

    def environment(self, home, token: str | None) -> dict[str, str]:
        """The environment of a client process: this Hub and no other, `home` for its cache, None for no token."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))
        }
        inherited.pop("HUGGING_FACE_HUB_TOKEN", None)
        return {
            **inherited,
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0",
            # With hf_xet installed, the client uploads large files to Xet storage whatever the server offers; this
            # variable is the only way to the LFS protocol that it speaks without hf_xet.
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            # A proxy would not find the loopback address of this machine.
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **({} if token is None else {"HF_TOKEN": token}),
        }

    # Looking

    def files(self, repo_id: str, *, revision: str = "main") -> dict[str, bytes]:
        """What is published, with the `.gitattributes` that the Hub puts into every repository."""
        commit = self.repositories[repo_id].commit_at(revision)
        return {path: blob.content for path, blob in commit.files.items()}

    def history(self, repo_id: str, *, revision: str = "main") -> list[str]:
        """The titles of the commits, newest first; the last is the Hub's own `initial commit`."""
        return [commit.title for commit in self.repositories[repo_id].commit_at(revision).history()]

    def downloads(self) -> list[str]:
        """The addresses from which content, not only its headers, was fetched."""
        return [request.path for request in self.requests if request.method == "GET" and "/resolve/" in request.path]

    # Arranging

    def create(self, repo_id: str, *, private: bool = False):
        """A new repository, without a client to ask for it."""
        self.repositories[repo_id] = Repository(repo_id, private=private)

    def add_token(self, token: str, *, user: str, role: str = "write"):
        """Another account, or another token of the same; `role="read"` may look and no more."""
        self.accounts[token] = Account(user, role)

    def gate(self, repo_id: str):
        """Keeps the files, not the description, from everyone but the owner."""
        self.repositories[repo_id].gated = True

    # Misbehaving

    def cut_upload_after(self, n_bytes: int, *, client_may_retry: bool = False):
        """Drops the connection once, when `n_bytes` of a larger upload have arrived.

        The client tries the same address again by itself, a second later. It finds the address expired, so that this
        push fails and the next one gets a new address, unless `client_may_retry`.
        """
        self._cut = (n_bytes, client_may_retry)

    def fail_next_commit(self):
        """Answers the next commit with an internal error, and publishes nothing."""
        self._commits_to_fail += 1

    # For Conversation

    def upload_address(self, repository: Repository, oid: str) -> str:
        path = f"/signed-upload/{secrets.token_hex(16)}"
        self.uploads[path] = (repository, oid)
        return path

    def bytes_to_accept(self, path: str, size: int) -> int:
        """All `size` bytes of a request, unless it is the upload to cut."""
        with self.lock:
            if path not in self.uploads or self._cut is None or size <= self._cut[0]:
                return size
            (n_bytes, client_may_retry), self._cut = self._cut, None
            if not client_may_retry:
                del self.uploads[path]
            return n_bytes

    def raise_if_told_to_fail(self):
        if self._commits_to_fail:
            self._commits_to_fail -= 1
            raise HubError(500, "Internal Error - We're working hard to fix this as soon as possible!")
