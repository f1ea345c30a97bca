"""Every call that writes fails once, or is the last one of its process: the old result or the new one is whole."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import recipe  # noqa: F401 (a fixture)
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.hub.loading import load_model
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.scripts import convert_marian, export_ctranslate2, translate
from vanilla_transformer.training import train
from vanilla_transformer.training.run_folder.checkpoints import complete_checkpoints


class Faults:
    """Counts the calls that write below a folder, and makes one of them fail or the last one of the process.

    Args:
        folder: The folder.
        number: The number of the call, from 1.
        die: Whether the process ends at that call. By default the disk is full.
    """

    def __init__(self, folder: Path, number: int, die: bool = False):
        self.folder, self.number, self.die, self.calls = folder, number, die, 0

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.number:
            if self.die:
                os._exit(9)
            raise OSError(errno.ENOSPC, "No space left on device")

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real_open, real_os_open, faults = io.open, os.open, self

        def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wxa+") or not faults._is_below(file):
                return real_open(file, mode, *args, **options)
            faults.count()
            return Writes(real_open(file, mode, *args, **options), faults)

        def open_descriptor(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and faults._is_below(path):
                faults.count()
            return real_os_open(path, flags, *args, **options)

        patch.setattr(builtins, "open", open_file)
        patch.setattr(io, "open", open_file)
        patch.setattr(os, "open", open_descriptor)
        for name in ("replace", "fsync"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Callable) -> Callable:
        def call(*args: Any, **options: Any) -> Any:
            self.count()
            return real(*args, **options)

        return call

    def _is_below(self, file: Any) -> bool:
        return isinstance(file, int) or self.folder in Path(os.fsdecode(file)).parents


class Writes:
    """A file whose writes are counted."""

    def __init__(self, file: Any, faults: Faults):
        self.file, self.faults = file, faults

    def write(self, content: Any) -> int:
        self.faults.count()
        return self.file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "Writes":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def __iter__(self) -> Iterator:
        return iter(self.file)


def succeeds(command: Callable[[], None], faults: Faults) -> bool:
    """Runs a command with faults; returns whether it succeeded. Any error but a sentence is raised."""
    if faults.die:
        child = os.fork()
        if child == 0:
            faults.install(pytest.MonkeyPatch())
            try:
                command()
            finally:
                os._exit(0 if faults.calls < faults.number else 1)
        return os.waitpid(child, 0)[1] == 0
    with pytest.MonkeyPatch.context() as patch:
        faults.install(patch)
        try:
            command()
        except SystemExit as end:
            if not isinstance(end.code, str):
                raise
            return False
    return faults.calls < faults.number


def content(path: Path) -> dict[str, bytes] | None:
    """Returns all files of a result."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()} or None


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(["The cat sleeps."], vocab_size=268, min_frequency=1, show_progress=False)
    torch.manual_seed(3)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=len(tokenizer), max_position_embeddings=32, **sizes
    )
    VanillaTransformerForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "lines.en").write_text("The cat sleeps.\nThe cat\nsleeps\n")
    return folder


# The command, its options, and one that gives another result.
COMMANDS = {
    "translate": (translate, ["--input", "MODEL/lines.en", "--max_extra_tokens", "1", "--output"], ["--scores"]),
    "export": (export_ctranslate2, ["--output_dir"], ["--quantization", "int8"]),
    "convert": (convert_marian, ["--to", "marian", "--output_dir"], ["--dtype", "float16"]),
}


@pytest.mark.parametrize("die", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["fails", "dies"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "export" else name for name in COMMANDS]
)
def test_the_old_result_or_the_new_one_is_whole(model, tmp_path, capsys, name, die):
    if name == "export":
        pytest.importorskip("ctranslate2")
    module, words, other = COMMANDS[name]
    words = ["--model", str(model), *(word.replace("MODEL", str(model)) for word in words)]
    module.main([*words, str(tmp_path / "new")])
    new = content(tmp_path / "new")
    out = tmp_path / "work" / "out"
    module.main([*words, str(out), *other])
    old = content(out)
    assert old != new
    number = 1
    while not succeeds(lambda: module.main([*words, str(out), "--overwrite"]), Faults(tmp_path / "work", number, die)):
        assert content(out) in (old, new), f"call {number}"
        if content(out) == new:  # the next fault again has an old result to spare
            module.main([*words, str(out), *other, "--overwrite"])
        number += 1
    assert number > 5
    assert content(out) == new
    assert {path.name for path in out.parent.iterdir()} == {"out"}


@pytest.mark.parametrize("die", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["fails", "dies"])
def test_shards_continue_after_any_failed_write(model, tmp_path, capsys, die):
    words = ["--model", str(model), "--input", str(model / "lines.en"), "--max_extra_tokens", "1"]
    translate.main([*words, "--output", str(tmp_path / "plain")])
    expected, number, finished = (tmp_path / "plain").read_bytes(), 1, False
    while not finished:
        out = tmp_path / "work" / f"out{number}"
        command = [*words, "--shards", "2", "--output", str(out)]
        faults = Faults(tmp_path / "work", number, die)
        finished = succeeds(lambda command=command: translate.main(command), faults)
        if (out / "translations.txt").exists():
            assert (out / "translations.txt").read_bytes() == expected, f"call {number}"
        if not finished:
            translate.main(command)
        assert content(out).keys() == {"manifest.json", "translations.txt"}, f"call {number}"
        assert (out / "translations.txt").read_bytes() == expected, f"call {number}"
        number += 1
    assert number > 20


@pytest.mark.slow
@pytest.mark.parametrize("die", [False, True], ids=["fails", "dies"])
def test_a_training_run_survives_any_failed_write(recipe, tmp_path, capsys, die):  # noqa: F811
    keys = {"max_steps": 2, "save_steps": 1, "save_total_limit": 1, "eval_strategy": "no", "report_to": "none"}
    keys["validation_files"] = []
    train.main(recipe(**keys, output_dir=str(tmp_path / "whole")))
    expected = load_file(tmp_path / "whole" / "model" / "model.safetensors")
    number, finished = 1, False
    while not finished:
        run = tmp_path / f"run{number}"
        command = recipe(**keys, output_dir=str(run))
        finished = succeeds(lambda command=command: train.main(command), Faults(run, number, die))
        for path in (*complete_checkpoints(run), *([run / "model"] if (run / "model").exists() else [])):
            load_model(path)  # what is there is whole
        if not finished:
            resume = ["--resume_from_checkpoint", "last"] if complete_checkpoints(run) else []
            train.main([*command, *resume])
        found = load_file(run / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items()), f"call {number}"
        assert not [path for path in run.iterdir() if path.name.endswith((".new", ".old", ".lock"))], f"call {number}"
        number += 1
    assert number > 20
