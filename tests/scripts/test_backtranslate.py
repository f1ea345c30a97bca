"""Text in one language becomes pairs: in both directions, with each engine, the same after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.safe_files.atomic_writes import one_line
from vanilla_transformer.scripts import backtranslate


LINES = ["The cat sleeps.", "A dog runs.", "", "A dog runs.", "The dog sleeps in the garden.", "A cat."] * 3
QUICK = ["--device", "cpu", "--max_extra_tokens", "3"]


@pytest.fixture
def command(model_folder, tmp_path):
    """Returns the words of a command line on the text above. The model records the reverse languages."""
    folder = shutil.copytree(model_folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "source_lang": "de", "target_lang": "en"}))
    (tmp_path / "text.de").write_text("".join(f"{line}\n" for line in LINES))
    where = ["--model", str(folder), "--input", str(tmp_path / "text.de"), "--shard_size", "4"]
    return lambda name, *words: [*where, "--output_dir", str(tmp_path / name), *QUICK, *words]


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def test_back_translation_writes_cleaned_tagged_pairs(command, tmp_path, capsys):
    words = ["--num_beams", "2", "--tag", "<BT>", "--drop_duplicates", "true"]
    with pytest.raises(SystemExit, match=r"(?s)left no pair: relax.*keeps the translations.*over 1 words"):
        backtranslate.main(command("back", *words, "--max_words", "1"))
    backtranslate.main(command("back", *words))
    kept = list(dict.fromkeys(line for line in LINES if line))
    assert lines_of(tmp_path / "back" / "train.de") == kept
    translations = Translator.from_pretrained(tmp_path / "model", device="cpu")(kept, num_beams=2, max_extra_tokens=3)
    sources = lines_of(tmp_path / "back" / "train.en")
    assert sources == [f"<BT> {one_line(text)}" for text in translations]
    report = json.loads((tmp_path / "back" / "report.json").read_text())
    assert report["cleaning"] == {"loaded": 18, "empty side": 3, "duplicate": 11, "kept": 4}
    assert report["texts"] == 18
    assert "pairs loaded" in capsys.readouterr().out
    assert not (tmp_path / "back.shards").exists()
    with pytest.raises(SystemExit, match="is already there"):
        backtranslate.main(command("back", *words))


@pytest.mark.parametrize("backend", ["torch", "ctranslate2"])
def test_samples_repeat_with_their_seed_also_after_a_kill(command, tmp_path, monkeypatch, backend):
    if backend == "ctranslate2":
        pytest.importorskip("ctranslate2")
    words = ["--direction", "forward", "--sample", "--top_k", "20", "--backend", backend]
    backtranslate.main(command("whole", *words))
    assert lines_of(tmp_path / "whole" / "train.de") == [line for line in LINES if line]

    translate, calls = Translator.translate, []

    def dies(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return translate(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", dies)
        with pytest.raises(SystemExit):
            backtranslate.main(command("killed", *words))
    assert not (tmp_path / "killed").exists()
    backtranslate.main(command("killed", *words))
    for name in ("train.en", "train.de", "report.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    backtranslate.main(command("other", *words, "--seed", "2"))
    assert lines_of(tmp_path / "other" / "train.en") != lines_of(tmp_path / "whole" / "train.en")


def test_real_pairs_are_repeated_to_the_ratio(command, tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"real.{language}").write_text("".join(f"{language} {number}\n" for number in range(4)))
    backtranslate.main(
        command("mixed", "--num_beams", "1", "--tag", "<BT>", "--real_files", str(tmp_path / "real"), "--ratio", "0.4")
    )
    sources = lines_of(tmp_path / "mixed" / "train.en")
    real = [line for line in sources if not line.startswith("<BT>")]
    assert len(sources) == len(real) + 15
    assert len(real) == 6  # 0.4 times 15
    assert {real.count(f"en {number}") for number in range(4)} == {1, 2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--top_k", "5"], "are for samples: add --sample"),
        (["--sample", "--num_beams", "4"], "--num_beams 4 is for searches"),
        (["--ratio", "2"], "needs --real_files"),
        (["--source_lang", "en", "--target_lang", "en"], "give two languages"),
        (
            ["--source_lang", "fr"],
            r"translates de-en\. With --direction back it makes pairs for en-de, not for fr-",
        ),
        (["--direction", "forward", "--target_lang", "de"], "makes pairs for de-en, not for .-de: choose another"),
        (["--shard_size", "0"], "shard_size=0 must be at least 1"),
        (["--input", "nowhere.de"], "There is no file 'nowhere.de'"),
    ],
)
def test_mistakes_get_a_sentence(command, words, message):
    with pytest.raises(SystemExit, match=message):
        backtranslate.main(command("new", *words))


@pytest.mark.slow
def test_several_processes_write_the_same_pairs(command, tmp_path):
    backtranslate.main(command("whole", "--sample"))
    backtranslate.main(command("two", "--sample", "--processes", "2"))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    module = "vanilla_transformer.scripts.backtranslate"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*launcher, module, *command("launched", "--sample")], check=True, env=environment, cwd="/")
    for name in ("train.en", "train.de", "report.json"):
        expected = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "launched" / name).read_bytes() == expected
    assert not list(tmp_path.glob("*.shards"))


@pytest.mark.slow
def test_a_process_that_is_killed_continues(command, tmp_path):
    backtranslate.main(command("whole", "--sample"))
    words = [sys.executable, "-m", "vanilla_transformer.scripts.backtranslate", *command("killed", "--sample")]
    process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd="/")
    while process.poll() is None and not list((tmp_path / "killed.shards").glob("shard-00001*.txt")):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not (tmp_path / "killed").exists():
        backtranslate.main(command("killed", "--sample"))
    for name in ("train.en", "train.de", "report.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
