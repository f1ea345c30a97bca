"""A forked process translates and loads, whatever the other threads of its parent were doing."""

import subprocess
import sys
import textwrap

import pytest

from vanilla_transformer.hub.saved_files import CAPTIONS


# Another thread is inside `work` when the process forks, and stays there until the fork or for a second: a fork that
# waits for it would wait for ever otherwise.
FORK = """
import os, signal, threading
from vanilla_transformer import Translator

inside, forked = threading.Event(), threading.Event()
def stay():
    inside.set()
    forked.wait(timeout=1)

{setup}
thread = threading.Thread(target=work)
thread.start()
assert inside.wait(timeout=60)
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if check() else 1)
forked.set()
thread.join()
print(os.waitpid(child, 0)[1])
"""
TOKENIZING = """
translator = Translator.from_pretrained({model!r}, device="cpu")
expected, tokenizer = translator("A dog runs."), translator.tokenizer
class Slow:
    def __getattr__(self, name):
        return getattr(tokenizer, name)
    def __call__(self, *args, **options):
        stay()
        return tokenizer(*args, **options)
slow = Translator.from_backend(translator.backend, Slow(), translator.target_tokenizer)
def work():
    slow("A cat.")
def check():
    return translator("A dog runs.") == expected
"""
LOADING = """
from contextlib import contextmanager
from transformers import initialization
from vanilla_transformer.hub.loading import load_model
no_tie_weights = initialization.no_tie_weights
@contextmanager
def slow():
    with no_tie_weights():
        if threading.current_thread() is not threading.main_thread():
            stay()
        yield
initialization.no_tie_weights = slow
def work():
    load_model({model!r})
def check():
    return load_model({model!r}).lm_head.weight is not None
"""
FILE_LOCK = """
import tempfile
from vanilla_transformer.safe_files.file_locks import lock
folder = tempfile.TemporaryDirectory()
def work():
    with lock(f"{folder.name}/lock"):
        stay()
def check():
    with lock(f"{folder.name}/lock", wait=True):
        return True
"""
BOTH = """
import tempfile
from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.safe_files.file_locks import lock
folder = tempfile.TemporaryDirectory()
def work():
    with LOADING:
        stay()
        with lock(f"{folder.name}/lock"):
            pass
def check():
    with LOADING, lock(f"{folder.name}/lock"):
        return True
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize(
    "setup", [TOKENIZING, LOADING, FILE_LOCK, BOTH], ids=["tokenizing", "loading", "file lock", "both"]
)
def test_a_fork_beside_a_thread_at_work_leaves_a_child_that_works(setup):
    code = FORK.format(setup=textwrap.dedent(setup).replace("{model!r}", repr(CAPTIONS)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "0\n", done.stderr
