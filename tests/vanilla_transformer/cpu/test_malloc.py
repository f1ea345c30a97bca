"""glibc keeps what is freed."""

import json
import subprocess
import sys

import pytest

from vanilla_transformer.cpu import malloc


# In a process of its own, for a setting of malloc can't be taken back, and without the package, for torch takes its
# time. Large blocks are freed and asked for again; page faults are counted by the system, not by a clock.
FAULTS = """
import ctypes, json, resource, runpy, sys
kept = sys.argv[1] == "kept" and runpy.run_path(sys.argv[2])["keep_freed_memory"]()
libc = ctypes.CDLL(None)
libc.prctl(41, 1, 0, 0, 0)  # no huge pages, of which a few would do
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
size = 24 * 2**20
def round():
    blocks = [libc.malloc(size) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks:
        libc.free(block)
round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    round()
print(json.dumps([kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's setting")
def test_memory_freed_by_one_update_serves_the_next():
    def faults(how: str) -> tuple[bool, int]:
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, how, malloc.__file__], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    (took, with_it), (_, without) = faults("kept"), faults("returned")
    if not took:
        pytest.skip("another C library")
    assert without > 10_000  # 8 blocks of 6,144 pages, four times
    assert with_it < without / 100
