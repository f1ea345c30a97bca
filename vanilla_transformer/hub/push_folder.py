"""Pushes a folder to the Hub in one commit."""

from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # of the client's own transport, which a lost connection raises
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)

from .check_export import require_whole


def push(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = True,
    revision: str | None = None,
    create_pr: bool = False,
    token: str | None = None,
    message: str = "Upload model",
) -> str:
    """Publishes a folder as a model on the Hub and returns the URL of the commit.

    All files arrive in one commit, so a failed push publishes nothing. A second try does not upload files again that
    have already arrived.

    Args:
        folder: The exported folder.
        repo_id: Its name on the Hub, `user/model`. The repository is created if it does not exist.
        private: Whether a new repository is private.
        revision: The branch to push to, created if it does not exist; `main` by default.
        create_pr: Whether to open a pull request instead of a commit on the branch.
        token: An access token with write permission; by default that of `hf auth login` or `HF_TOKEN`.
        message: The commit message.
    """
    require_whole(folder)
    api = HfApi(token=token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None and not create_pr:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        # upload_folder may make several commits.
        done = api.create_commit(
            repo_id,
            operations=[CommitOperationAdd(str(path.relative_to(folder)), path) for path in files_of(folder)],
            revision=revision,
            create_pr=create_pr,
            commit_message=message,
        )
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is not a valid repository name: {error}") from error
    except (OSError, HTTPError, RuntimeError) as error:  # a RuntimeError is an upload that finally failed
        raise ValueError(f"{folder} was not pushed to {repo_id}: {_why(error)}") from error
    return done.pr_url if create_pr else done.commit_url


def files_of(folder: str | Path) -> list[Path]:
    """The files that are pushed: all except hidden ones."""
    folder = Path(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _why(error: Exception) -> str:
    """Why a push failed, and what the user can do about it."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return "the Hub needs a valid token. Run `hf auth login`, or set HF_TOKEN, with a token that can write."
    if status == 403:
        return "the token can't write there. Use a token with write permission, or another name."
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set. Unset it to reach the Hub."
    if status is None:
        return f"the Hub was not reached or the connection broke ({error}). Push again: nothing is sent twice."
    return str(error)
