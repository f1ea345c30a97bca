"""A small Hugging Face Hub on loopback: the real client pushes to it and loads from it through HF_ENDPOINT.

    with HubServer(token="hf_test", user="someone") as hub:
        subprocess.run([sys.executable, "-c", code], env=hub.environment(tmp_path, hub.token), check=True)
        hub.files("someone/model")  # path -> bytes, as published

It answers the calls that our tests make, which ROUTES lists, and keeps models in memory. Statuses, error codes and
sentences are the Hub's own where the client, or the reader of its message, depends on them.
"""

import base64
import json
import os
import re
import sys
import threading
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


LARGE = ".safetensors"
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"  # as on the Hub, every repository has this file


class HubError(Exception):
    """An answer other than 200; `code` is the X-Error-Code from which the client chooses its exception."""

    def __init__(self, status: int, message: str, *, code: str | None = None, **fields):
        super().__init__(message)
        self.status, self.code, self.body = status, code, {"error": message, **fields}


class Commit(NamedTuple):
    title: str
    files: dict[str, bytes]

    @property
    def oid(self) -> str:
        return sha1(repr(self).encode()).hexdigest()


class Repository:
    """Branches and pull requests (`refs/pr/1`) as lists of commits, oldest first, and the uploaded large files."""

    def __init__(self, *, private: bool):
        self.private = private
        self.branches = {"main": [Commit("initial commit", {".gitattributes": ATTRIBUTES})]}
        self.large_files: dict[str, bytes] = {}

    def history(self, revision: str) -> list[Commit]:
        """The commits up to a branch or a commit."""
        for name, commits in self.branches.items():
            for number, commit in enumerate(commits, start=1):
                if revision in (name, commit.oid):
                    return commits if revision == name else commits[:number]
        raise HubError(404, f"Invalid rev id: {revision}", code="RevisionNotFound")


class Conversation(BaseHTTPRequestHandler):
    """One client connection. A method named in ROUTES answers one kind of request with what becomes its JSON."""

    protocol_version = "HTTP/1.1"  # connections are kept, as the client expects
    disable_nagle_algorithm = True  # headers and body leave in two writes: waiting to join them costs 40 ms a request

    @property
    def hub(self) -> "HubServer":
        return self.server.hub

    @property
    def payload(self) -> dict:
        return json.loads(self.body)

    def respond(self):
        self.address = urlsplit(self.path)
        self.query = parse_qs(self.address.query)
        try:
            size = int(self.headers.get("Content-Length", 0))
            if self.command == "PUT" and self.hub.cut_after:
                self.rfile.read(self.hub.cut_after)
                self.hub.cut_after, self.hub.is_expired, self.close_connection = 0, True, True
                return
            self.body = self.rfile.read(size)
            self.role = self.identify()
            answer = self.route()
            if answer is not None:
                self.reply(200, json.dumps(answer).encode())
        except HubError as error:
            # A HEAD has no body, so the client reads the message from a header.
            headers = {"X-Error-Message": str(error), **({"X-Error-Code": error.code} if error.code else {})}
            self.reply(error.status, json.dumps(error.body).encode(), headers)

    do_GET = do_HEAD = do_POST = do_PUT = respond  # noqa: N815

    def log_message(self, *_):
        """Silent."""

    def route(self) -> dict | list | None:
        method = "GET" if self.command == "HEAD" else self.command
        for expected, pattern, answer in ROUTES:
            match = re.fullmatch(pattern, self.address.path)
            if match and expected == method:
                # The client quotes the slashes of a revision, so unquoting has to come after the split.
                return answer(self, **{name: unquote(value) for name, value in match.groupdict().items()})
        raise HubError(404, f"This test Hub knows no {self.command} {self.address.path}")

    def reply(self, status: int, body: bytes, headers: dict | None = None):
        self.send_response(status)
        for name, value in ({"Content-Length": len(body)} | (headers or {})).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # --- who may do what

    def identify(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.roles:
            raise HubError(401, "Invalid credentials in Authorization header")
        return self.hub.roles.get(token)

    def readable(self, repo: str) -> Repository:
        repository = self.hub.repositories.get(repo)
        if repository and (not repository.private or self.role):
            return repository
        # The Hub does not tell a missing repository from a private one, nor a stranger that it might exist.
        if self.role is None:
            raise HubError(401, "Invalid username or password.", code="RepoNotFound")
        raise HubError(404, "Repository not found", code="RepoNotFound")

    def require_writer(self):
        if self.role is None:
            raise HubError(401, "Invalid username or password.")
        if self.role != "write":
            raise HubError(403, "Forbidden: you must use a write token to upload to a repository")

    # --- looking

    def model_info(self, repo: str, revision: str = "main") -> dict:
        commit = self.readable(repo).history(revision)[-1]
        return {"id": repo, "sha": commit.oid, "siblings": [{"rfilename": path} for path in sorted(commit.files)]}

    def tree(self, repo: str, revision: str, path: str = "") -> list:
        files = self.readable(repo).history(revision)[-1].files
        names = [name for name in sorted(files) if not path or name.startswith(f"{path}/")]
        if not names:
            raise HubError(404, f"{path} does not exist on {revision}", code="EntryNotFound")
        return [{"type": "file", "path": name, "oid": "", "size": len(files[name])} for name in names]

    def download(self, repo: str, revision: str, path: str):
        commit = self.readable(repo).history(revision)[-1]
        if path not in commit.files:
            raise HubError(404, "Entry not found", code="EntryNotFound")
        content = commit.files[path]
        # No X-Xet-Hash: a client that has hf_xet installed then downloads over plain HTTP all the same.
        self.reply(200, content, {"X-Repo-Commit": commit.oid, "ETag": f'"{sha256(content).hexdigest()}"'})

    # --- pushing: ask how each file travels, upload the large ones, then publish all of them in one commit

    def create_repository(self) -> dict:
        self.require_writer()
        wanted = self.payload
        repo = f"{wanted.get('organization') or self.hub.user}/{wanted['name']}"
        url = f"{self.hub.url}/{repo}"
        if repo in self.hub.repositories:
            raise HubError(409, "You already created this model repo", url=url)
        self.hub.repositories[repo] = Repository(private=wanted.get("visibility") == "private")
        return {"url": url, "name": repo}

    def validate_card(self) -> dict:
        return {"errors": [], "warnings": []}

    def create_branch(self, repo: str, revision: str) -> dict:
        self.require_writer()
        branches = self.readable(repo).branches
        if revision in branches:
            raise HubError(409, "Reference already exists")
        branches[revision] = list(branches["main"])
        return {}

    def preupload(self, repo: str, revision: str) -> dict:
        self.require_writer()
        self.readable(repo).history(revision)
        modes = {file["path"]: "lfs" if file["path"].endswith(LARGE) else "regular" for file in self.payload["files"]}
        return {"files": [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]}

    def lfs_batch(self, repo: str) -> dict:
        self.require_writer()
        stored = self.readable(repo).large_files
        return {
            "transfer": "basic",
            "objects": [self.lfs_object(repo, file, stored) for file in self.payload["objects"]],
        }

    def lfs_object(self, repo: str, file: dict, stored: dict[str, bytes]) -> dict:
        if file["oid"] in stored:
            return file
        # A signed address is its own permission: the client sends no token with it.
        return {**file, "actions": {"upload": {"href": f"{self.hub.url}/signed-upload/{repo}/{file['oid']}"}}}

    def lfs_upload(self, repo: str, oid: str) -> dict:
        if self.hub.is_expired:
            self.hub.is_expired = False
            raise HubError(403, "Request has expired")
        if sha256(self.body).hexdigest() != oid:
            raise HubError(400, "The content does not match its SHA-256")
        self.hub.repositories[repo].large_files[oid] = self.body
        return {}

    def commit(self, repo: str, revision: str) -> dict:
        self.require_writer()
        if self.hub.commits_to_fail:
            self.hub.commits_to_fail -= 1
            raise HubError(500, "Internal Error - We're working hard to fix this as soon as possible!")
        repository = self.readable(repo)
        header, *operations = map(json.loads, self.body.splitlines())
        history = repository.history(revision)
        files = dict(history[-1].files)
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = repository.large_files[value["oid"]]
            else:
                raise HubError(400, f"This test Hub knows no operation {operation['key']}")
        commit = Commit(header["value"]["summary"], files)
        url = f"{self.hub.url}/{repo}"
        published = {"success": True, "commitOid": commit.oid, "commitUrl": f"{url}/commit/{commit.oid}"}
        if "create_pr" not in self.query:
            history.append(commit)
            return published
        number = 1 + sum(name.startswith("refs/pr/") for name in repository.branches)
        repository.branches[f"refs/pr/{number}"] = [*history, commit]
        return {**published, "pullRequestUrl": f"{url}/discussions/{number}"}


REPO, REVISION, PATH = r"(?P<repo>[^/]+/[^/]+)", r"(?P<revision>[^/]+)", r"(?P<path>.+)"
MODEL = f"/api/models/{REPO}"
ROUTES = [
    ("GET", MODEL, Conversation.model_info),
    ("GET", f"{MODEL}/revision/{REVISION}", Conversation.model_info),
    ("GET", f"{MODEL}/tree/{REVISION}", Conversation.tree),
    ("GET", f"{MODEL}/tree/{REVISION}/{PATH}", Conversation.tree),
    ("GET", f"/{REPO}/resolve/{REVISION}/{PATH}", Conversation.download),
    ("POST", "/api/repos/create", Conversation.create_repository),
    ("POST", "/api/validate-yaml", Conversation.validate_card),
    ("POST", f"{MODEL}/branch/{REVISION}", Conversation.create_branch),
    ("POST", f"{MODEL}/preupload/{REVISION}", Conversation.preupload),
    ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", Conversation.lfs_batch),
    ("PUT", f"/signed-upload/{REPO}/(?P<oid>[^/]+)", Conversation.lfs_upload),
    ("POST", f"{MODEL}/commit/{REVISION}", Conversation.commit),
]


class Listener(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request, client_address):
        # A client that goes away is what some tests are about; anything else is a mistake in this file.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class HubServer:
    """The Hub as a context manager, with what a test may look at and the ways in which it can be made to misbehave.

    Args:
        token: The token that may write.
        user: The account, and the namespace of its repositories.

    Attributes:
        url: What HF_ENDPOINT has to be.
    """

    def __init__(self, *, token: str = "hf_test", user: str = "someone"):
        self.token, self.user, self.roles = token, user, {token: "write"}
        self.repositories: dict[str, Repository] = {}
        self.commits_to_fail = 0
        self.cut_after, self.is_expired = 0, False

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
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "TRANSFORMERS_", "HUGGING_FACE_"))
        }
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

    def files(self, repo_id: str, *, revision: str = "main") -> dict[str, bytes]:
        """What is published, with the `.gitattributes` that the Hub puts into every repository."""
        return self.repositories[repo_id].history(revision)[-1].files

    def history(self, repo_id: str) -> list[str]:
        """The titles of the commits of the main branch, oldest first."""
        return [commit.title for commit in self.repositories[repo_id].branches["main"]]

    def add_token(self, token: str, *, role: str = "write"):
        """Another token; `role="read"` may look and no more."""
        self.roles[token] = role

    def cut_upload_after(self, n_bytes: int):
        """Drops the connection of the next upload when `n_bytes` have arrived.

        The client tries the same address again by itself, a second later. It finds the address expired, so that this
        push fails.
        """
        self.cut_after = n_bytes

    def fail_next_commit(self):
        """Answers the next commit with an internal error, and publishes nothing."""
        self.commits_to_fail += 1
