"""Engines without torch never look at it: another thread may be importing it."""

import os
import subprocess
import sys

from vanilla_transformer import Translator
from vanilla_transformer.engines.hardware import number_of_threads, set_number_of_threads
from vanilla_transformer.hub.saved_files import CAPTIONS


# The import of torch stops in the middle until the main thread has loaded a model and translated.
WHILE_TORCH_IS_IMPORTED = f"""
import importlib.util, sys, threading

begun, translated = threading.Event(), threading.Event()

class Stops:
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        exec_module = spec.loader.exec_module
        def stop(module):
            begun.set()
            assert translated.wait(timeout=100)
            exec_module(module)
        spec.loader.exec_module = stop
        return spec

from vanilla_transformer import Translator
sys.meta_path.insert(0, Stops())
threading.Thread(target=lambda: __import__("torch")).start()
assert begun.wait(timeout=100)
try:
    translator = Translator.from_pretrained({CAPTIONS!r}, device="cpu")
    translator.backend.set_seed(1)
    print(translator("A dog runs."), len(list(translator.score([("A dog runs.", "Ein Hund rennt.")]))))
finally:
    translated.set()
"""


def test_a_translation_does_not_look_at_a_torch_that_another_thread_imports():
    expected = Translator.from_pretrained(CAPTIONS, device="cpu")("A dog runs.")
    done = subprocess.run([sys.executable, "-c", WHILE_TORCH_IS_IMPORTED], capture_output=True, text=True, timeout=300)
    assert done.stdout == f"{expected} 1\n", done.stderr


def test_threads_are_those_of_openmp_or_one_for_each_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    for given, number in (("3", 3), ("0", 8), ("three", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert number_of_threads() == number
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert number_of_threads() == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # so that the value below ends with this test
    set_number_of_threads(5)
    assert number_of_threads() == 5
