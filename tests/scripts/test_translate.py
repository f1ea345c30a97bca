"""Lines in, lines out: as many, in order, whatever they hold and however the run ends."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial as bind
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.scripts import translate


LINES = [
    "The cat sleeps.",
    "",
    "   ",
    "A dog runs in the garden.",
    "🙂🙃🙂",
    "مرحبا بالعالم",
    "null\x00byte",
    "carriage\rreturn and \x85 and \u2028 are not ends of lines",
    "the " * 40,
    "last",
]
QUICK = ["--device", "cpu", "--max_extra_tokens", "3"]


def expected(folder, lines=LINES, **options) -> list[str]:
    texts = Translator.from_pretrained(folder, device="cpu")(lines, max_extra_tokens=3, **options)
    return [re.sub(r"[\r\n]+", " ", text) for text in texts]


def write(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def read(path: Path) -> list[str]:
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def test_files_in_file_out(model_folder, tmp_path):
    write(tmp_path / "a", LINES[:4])
    (tmp_path / "b.gz").write_bytes(gzip.compress("".join(f"{line}\r\n" for line in LINES[4:]).encode()))
    output = tmp_path / "new" / "out"
    files = [str(tmp_path / "a"), str(tmp_path / "b.gz")]
    translate.main(["--model", str(model_folder), "--input", *files, "--output", str(output), *QUICK])
    assert read(output) == expected(model_folder)
    assert [line == "" for line in read(output)][:4] == [False, True, True, False]
    assert [path.name for path in output.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("window", ["1", "3", "100"])
def test_standard_input_and_output(model_folder, monkeypatch, capsys, window):
    text = "".join(f"{line}\n" for line in LINES).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    translate.main(["--model", str(model_folder), "--window", window, *QUICK])
    assert capsys.readouterr().out.removesuffix("\n").split("\n") == expected(model_folder)


@pytest.mark.parametrize(
    ("backend", "quantization"), [("torch", "float32"), ("ctranslate2", "float32"), ("ctranslate2", "int8")]
)
def test_backends_and_types(model_folder, tmp_path, capsys, backend, quantization):
    if backend == "ctranslate2":
        pytest.importorskip("ctranslate2")
    folder = shutil.copytree(model_folder, tmp_path / "model")  # which gets its conversions
    options = {"backend": backend, "quantization": quantization}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    lines = write(tmp_path / "in", LINES[:4])
    translate.main(["--model", str(folder), "--input", lines, *words, *QUICK])
    found = capsys.readouterr().out.removesuffix("\n").split("\n")
    translator = Translator.from_pretrained(folder, device="cpu", **options)
    assert found == [re.sub(r"[\r\n]+", " ", text) for text in translator(LINES[:4], max_extra_tokens=3)]


def test_n_best_lines_with_their_scores(model_folder, tmp_path, capsys):
    lines = write(tmp_path / "in", LINES[:4])
    translate.main(["--model", str(model_folder), "--input", lines, "--n_best", "3", *QUICK])
    rows = [line.split("\t", 1) for line in capsys.readouterr().out.removesuffix("\n").split("\n")]
    assert len(rows) == 12
    assert [text for _, text in rows[::3]] == expected(model_folder, LINES[:4])
    scores = [float(number) for number, _ in rows]
    assert all(scores[row : row + 3] == sorted(scores[row : row + 3], reverse=True) for row in range(0, 12, 3))


def test_confidence_comes_before_the_translation_and_into_tables(model_folder, tmp_path, caplog):
    translator = Translator.from_pretrained(model_folder, device="cpu")
    (best,) = next(translator.translate(LINES[:1], max_extra_tokens=3, confidence=True))
    source, output = write(tmp_path / "in", LINES[:2]), tmp_path / "out"
    command = ["--model", str(model_folder), *QUICK, "--confidence", "--output", str(output), "--input"]
    translate.main([*command, source, "--scores"])
    assert read(output) == [f"{best.score:.6f}\t{best.confidence:.4f}\t{best.text}", "0.000000\t1.0000\t"]
    shutil.copy(output, f"{output}.partial")
    output.unlink()
    translate.main([*command, source, "--scores", "--resume"])
    assert read(output)[0].endswith(best.text)
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": LINES[0]}) + "\n")
    output.unlink()
    translate.main([*command, str(tmp_path / "in.jsonl"), "--shards", "1"])
    row = json.loads((output / "translations.jsonl").read_text())
    assert row == {
        "text": LINES[0],
        "translation": best.text,
        "translation_confidence": pytest.approx(best.confidence, abs=1e-5),
    }
    assert "The confidence is uncalibrated" in caplog.text


def test_a_prefix_and_greedy_search(model_folder, tmp_path, capsys):
    lines = write(tmp_path / "in", ["The cat sleeps."])
    translate.main(
        ["--model", str(model_folder), "--input", lines, "--prefix", "Ein Hund", "--num_beams", "1", *QUICK]
    )
    found = capsys.readouterr().out.removesuffix("\n")
    assert found == expected(model_folder, ["The cat sleeps."], prefix="Ein Hund", num_beams=1)[0]
    assert found.startswith("Ein Hund")


def test_an_output_that_is_there_is_not_replaced_unasked(model_folder, tmp_path):
    lines, output = write(tmp_path / "in", ["The cat sleeps."]), tmp_path / "out"
    output.write_text("precious\n")
    arguments = ["--model", str(model_folder), "--input", lines, "--output", str(output), *QUICK]
    with pytest.raises(SystemExit, match="is already there"):
        translate.main(arguments)
    assert output.read_text() == "precious\n"
    translate.main([*arguments, "--overwrite"])
    assert read(output) == expected(model_folder, ["The cat sleeps."])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "missing.en"], "There is no file 'missing.en'"),
        (["--n_best", "9"], "n_best=9 is more than num_beams=4 can find"),
        (["--model", "no/such/folder"], "no/such/folder"),
        (["--window", "0"], "window=0 must be at least 1"),
        (["--output", "x.gz"], "x.gz: this output is not compressed. Leave out .gz"),
        (["--input", "film.srt"], "film.srt is a file of subtitles and not lines of text: .* --format lines"),
        (["--input", "a.txt", "thesis.PDF"], "thesis.PDF is a document and not lines"),
        (["--input", "app.po.gz", "--shards", "2"], "app.po.gz is a translation file and not lines"),
        (["--text", "a", "--input", "b"], "Give either texts or --input"),
    ],
)
def test_mistakes_get_a_sentence(model_folder, monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    with pytest.raises(SystemExit, match=message):
        translate.main(["--model", str(model_folder), *QUICK, *arguments])


def test_words_in_front_of_all_options_are_texts(model_folder, capsys):
    texts = ["The cat sleeps.", "A dog."]
    translate.main([*texts, "--model", str(model_folder), *QUICK])
    assert capsys.readouterr().out.splitlines() == expected(model_folder, texts)
    with pytest.raises(SystemExit, match=r"There is no recipe 'mine.yaml'"):
        translate.main(["mine.yaml", "--model", str(model_folder)])


def test_a_document_is_translated_line_by_line_if_that_is_asked_for(model_folder, tmp_path, capsys):
    path = write(tmp_path / "film.srt", ["The cat sleeps."])
    translate.main(["--model", str(model_folder), "--input", path, "--format", "lines", *QUICK])
    assert capsys.readouterr().out.splitlines() == expected(model_folder, ["The cat sleeps."])


def test_text_that_is_not_utf8_is_named_by_its_line(model_folder, tmp_path, capsys):
    (tmp_path / "in").write_bytes(b"The cat\nsleeps \xff\n")
    with pytest.raises(SystemExit, match="line 2: byte 8 is not UTF-8"):
        translate.main(["--model", str(model_folder), "--input", str(tmp_path / "in"), "--window", "1", *QUICK])
    assert capsys.readouterr().out.removesuffix("\n") == expected(model_folder, ["The cat"])[0]


def start(model_folder, *arguments) -> subprocess.Popen:
    command = [sys.executable, "-m", "vanilla_transformer.scripts.translate", "--model", str(model_folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # A test run that was started in the background ignores Ctrl-C, and its children would inherit that.
    heed = bind(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen([*command, *QUICK, *arguments], **pipes, env=environment, cwd="/", preexec_fn=heed)


@pytest.mark.parametrize(("to_file", "number"), [(False, signal.SIGTERM), (True, signal.SIGINT)])
def test_ctrl_c_and_sigterm_leave_whole_lines(model_folder, tmp_path, to_file, number):
    output = tmp_path / "out"
    process = start(model_folder, "--window", "2", *(["--output", str(output)] if to_file else []))
    process.stdin.write(b"The cat sleeps.\n" * 5)
    process.stdin.flush()
    partial = tmp_path / "out.partial"
    if to_file:
        while not (partial.is_file() and partial.read_bytes().count(b"\n") == 4) and process.poll() is None:
            pass
        first = b""
    else:
        first = b"".join(process.stdout.readline() for _ in range(4))  # the fifth waits for its window
    process.send_signal(number)
    rest, errors = process.communicate()
    written = partial.read_bytes() if to_file else first + rest
    assert written.decode() == (expected(model_folder, ["The cat sleeps."])[0] + "\n") * 4
    assert process.returncode == 128 + number
    assert b"has the lines translated so far" in errors
    assert b"Traceback" not in errors
    assert not output.exists()


def test_a_reader_that_leaves_is_no_error(model_folder):
    process = start(model_folder, "--window", "1")
    process.stdin.write(b"The cat sleeps.\n" * 50)
    process.stdin.flush()
    assert process.stdout.readline()
    process.stdout.close()
    process.stdin.close()
    errors = process.stderr.read()
    assert process.wait() == 0
    assert b"Error" not in errors


# --- resuming ---


class Interrupted:
    """A file in place of standard input that is interrupted after some lines."""

    def __init__(self, lines: list[str], number: int):
        self.buffer = self._read(lines, number)

    def _read(self, lines: list[str], number: int):
        for line in lines[:number]:
            yield f"{line}\n".encode()
        raise KeyboardInterrupt

    def isatty(self) -> bool:
        return False


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_says_what_to_do_and_shows_the_remaining_time(model_folder, tmp_path, monkeypatch):
    screen = Terminal(io.BytesIO(), write_through=True)
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"The cat sleeps.\n")))
    monkeypatch.setattr(sys, "stderr", screen)
    translate.main(["--model", str(model_folder), *QUICK])
    assert b"Type a text and press Enter; Ctrl-D ends." in screen.buffer.getvalue()

    totals = []
    plain = Translator.translate
    monkeypatch.setattr(
        Translator, "translate", lambda self, texts, **keys: totals.append(len(texts)) or plain(self, texts, **keys)
    )
    source = write(tmp_path / "in", LINES)
    translate.main(["--model", str(model_folder), "--input", source, "--output", str(tmp_path / "out"), *QUICK])
    assert totals == [len(LINES)]
    assert read(tmp_path / "out") == expected(model_folder)


@pytest.mark.parametrize("options", [[], ["--n_best", "2"]])
def test_an_interrupted_translation_goes_on_where_it_stopped(model_folder, tmp_path, monkeypatch, capsys, options):
    source, output, partial = write(tmp_path / "in", LINES), tmp_path / "out", tmp_path / "out.partial"
    arguments = ["--model", str(model_folder), "--window", "2", "--output", str(output), *options, *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", Interrupted(LINES, 7))
        with pytest.raises(SystemExit, match="130"):
            translate.main(arguments)
    assert "out.partial has the lines translated so far; the same command with --resume" in capsys.readouterr().err
    per_line = 2 if options else 1
    assert partial.read_bytes().count(b"\n") == 6 * per_line
    with partial.open("ab") as file:
        file.write(b"half a li")
    arguments += ["--input", source]
    translate.main([*arguments, "--resume"])
    assert "resumed after line 6" in capsys.readouterr().err
    resumed = output.read_bytes()
    translate.main([*arguments, "--overwrite"])
    assert resumed == output.read_bytes()
    assert not partial.exists()


def test_resuming_another_translation_is_refused(model_folder, tmp_path, capsys):
    source, output, partial = write(tmp_path / "in", LINES), tmp_path / "out", tmp_path / "out.partial"
    arguments = ["--model", str(model_folder), "--input", source, "--output", str(output), "--resume", *QUICK]
    lines = expected(model_folder)
    for content in ("".join(f"{line}\n" for line in [*lines[:3], "another text"]), "x\n" * 20):
        partial.write_text(content)
        with pytest.raises(SystemExit, match=r"was not made by this command: its last lines are not the translations"):
            translate.main(arguments)
        assert partial.read_text() == content
    partial.unlink()
    translate.main(arguments)  # nothing to resume: it starts at the first line
    assert read(output) == lines
    with pytest.raises(SystemExit, match="give the --output of the interrupted run"):
        translate.main(["--model", str(model_folder), "--resume"])


def test_a_partial_file_that_is_not_there_is_not_mentioned(model_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Interrupted(LINES, 1))
    with pytest.raises(SystemExit, match="130"):
        translate.main(["--model", str(model_folder), "--output", str(tmp_path / "out"), *QUICK])
    assert "partial" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# --- streams and outputs that are not there ---


def test_closed_and_full_streams_get_a_sentence(model_folder, tmp_path, monkeypatch):
    lines = write(tmp_path / "in", ["The cat sleeps."])
    arguments = ["--model", str(model_folder), *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        with pytest.raises(SystemExit, match="Standard input is closed: give --input"):
            translate.main(arguments)
        patch.setattr(sys, "stdout", None)
        patch.setattr(sys, "stderr", None)
        with pytest.raises(SystemExit, match="Standard output is closed: give --output"):
            translate.main([*arguments, "--input", lines])
        translate.main([*arguments, "--input", lines, "--output", str(tmp_path / "out")])
    assert read(tmp_path / "out") == expected(model_folder, ["The cat sleeps."])
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            with pytest.raises(SystemExit, match="No space left on device"):
                translate.main([*arguments, "--input", lines])


def test_standard_output_is_utf8_in_every_locale(model_folder, monkeypatch):
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: iter([[Hypothesis("Grüße 🙂")]]))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    translate.main(["Hi.", "--model", str(model_folder)])
    assert sys.stdout.buffer.getvalue().decode() == "Grüße 🙂\n"


def test_an_output_that_can_not_be_written_is_refused_before_the_work(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "from_pretrained", lambda *_, **__: pytest.fail("the work began"))
    lines = write(tmp_path / "in", ["The cat sleeps."])
    arguments = ["--model", str(model_folder), "--input", lines, "--overwrite", "--output"]
    with pytest.raises(SystemExit, match="is a folder: give the name of a file"):
        translate.main([*arguments, str(tmp_path)])
    with pytest.raises(SystemExit, match=r"in/out can't be written \(its folder is a file\)"):
        translate.main([*arguments, f"{lines}/out"])


def test_a_long_line_is_cut_with_a_warning_or_translated_in_chunks(model_folder, tmp_path, capsys, monkeypatch):
    warnings = []
    monkeypatch.setattr("vanilla_transformer.translation.translator.logger.warning", warnings.append)
    lines = write(tmp_path / "in", ["The cat sleeps.", "The cat sleeps. A dog runs in the garden. The cat sleeps."])
    arguments = ["--model", str(model_folder), "--input", lines, "--max_source_tokens", "16", *QUICK]
    translate.main(arguments)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert [warning.split(" tokens")[0] for warning in warnings] == ["Text 2 has 21"]
    assert "max_source_tokens is 16: the rest is cut off" in warnings[0]
    translate.main([*arguments, "--long_texts", "chunk"])
    cat, dog = expected(model_folder, ["The cat sleeps.", "A dog runs in the garden."])
    assert capsys.readouterr().out.splitlines() == [cat, f"{cat} {dog} {cat}"]
    assert len(warnings) == 1


# --- shards ---


@pytest.mark.parametrize("options", [[], ["--processes", "2"]])
def test_shards_give_the_same_lines(model_folder, tmp_path, capsys, options):
    words = ["--model", str(model_folder), "--input", write(tmp_path / "in", LINES), *QUICK]
    translate.main([*words, "--output", str(tmp_path / "plain")])
    sharded = [*words, *options, "--output", f"{tmp_path}/out/", "--shards", "4"]
    translate.main(sharded)
    assert (tmp_path / "out" / "translations.txt").read_bytes() == (tmp_path / "plain").read_bytes()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.json", "translations.txt"}
    assert "10 rows in" in capsys.readouterr().err
    before = (tmp_path / "out" / "translations.txt").stat()
    translate.main(sharded)  # nothing is left to do
    assert (tmp_path / "out" / "translations.txt").stat() == before
    with pytest.raises(SystemExit, match="was begun with prefix=None, not 'Ein': continue it with the same options"):
        translate.main([*sharded, "--prefix", "Ein"])


def test_jobs_of_an_array_translate_their_shards_and_the_last_command_joins(model_folder, tmp_path, capsys):
    words = ["--model", str(model_folder), "--input", write(tmp_path / "in", LINES), *QUICK]
    translate.main([*words, "--output", f"{tmp_path}/plain"])
    sharded = [*words, "--output", f"{tmp_path}/out/", "--shards", "4"]
    translate.main([*sharded, "--only_shards", "0-1", "3"])
    assert "shards 0-1 3 are done; the same command without --only_shards joins" in capsys.readouterr().err
    finished = sorted(path.name for path in (tmp_path / "out").glob("shard-*"))
    assert finished == [f"shard-{number:05d}-of-00004.txt" for number in (0, 1, 3)]
    translate.main(sharded)
    assert (tmp_path / "out" / "translations.txt").read_bytes() == (tmp_path / "plain").read_bytes()


def test_another_input_or_model_does_not_continue_shards(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    words = ["--model", str(folder), "--input", write(tmp_path / "in", LINES[:4]), *QUICK, "--shards", "2"]
    translate.main([*words, "--output", str(tmp_path / "out")])
    write(tmp_path / "in", LINES[:3])
    with pytest.raises(SystemExit, match="begun with content of the input="):
        translate.main([*words, "--output", str(tmp_path / "out")])
    write(tmp_path / "in", LINES[:4])
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "num_beams": 2}))
    with pytest.raises(SystemExit, match="begun with content of the model="):
        translate.main([*words, "--output", str(tmp_path / "out")])


def test_tables_get_a_column(model_folder, tmp_path):
    rows = [{"id": number, "en": line} for number, line in enumerate(LINES)]
    write(tmp_path / "in.jsonl", [json.dumps(row) for row in rows])
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    translations = Translator.from_pretrained(model_folder, device="cpu")(LINES, max_extra_tokens=3)
    expected = [{**row, "de": text} for row, text in zip(rows, translations, strict=True)]
    for name in ("in.jsonl", "in.parquet"):
        words = ["--model", str(model_folder), "--input", str(tmp_path / name), "--output", f"{tmp_path}/{name}.out"]
        columns = ["--text_column", "en", "--translation_column", "de"]
        translate.main([*words, *columns, "--shards", "3", *QUICK])
    found = (tmp_path / "in.jsonl.out" / "translations.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in found] == expected
    assert pq.read_table(tmp_path / "in.parquet.out" / "translations.parquet").to_pylist() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shards", "0"], "shards=0 must be at least 1"),
        (["--shards", "2"], "--shards needs --input, files that can be read again, and --output, a folder"),
        (["--shards", "2", "--input", "IN", "--output", "new", "--overwrite"], "leave out --overwrite: the same comm"),
        (["--shards", "2", "--input", "IN", "--output", "IN"], "in is a file: with --shards, give the name of a fol"),
        (["--shards", "2", "--input", "IN", "--output", "FOLDER"], "holds in, but no manifest.json: choose another"),
        (
            ["--shards", "4", "--only_shards", "2-4", "--input", "IN", "--output", "NEW"],
            "'2-4' must be a number",
        ),
        (
            ["--shards", "4", "--only_shards", "2-1", "--input", "IN", "--output", "NEW"],
            "all shards, which are 0-3",
        ),
        (["--only_shards", "2"], "--only_shards names some of the shards: add --shards"),
        (["--processes", "2"], "Several processes translate in shards: add --shards"),
        (["--text_column", "en"], "--text_column is for tables, which are translated in shards: add --shards 1"),
        (["--input", "in.parquet"], r"in.parquet is a table \(Parquet\), which is translated in shards: add --shards"),
        (["--shards", "2", "--input", "IN", "--output", "NEW", "--n_best", "9"], "n_best=9 is more than num_beams=4"),
    ],
)
def test_mistakes_with_shards_get_a_sentence(model_folder, tmp_path, arguments, message):
    (tmp_path / "folder").mkdir()
    places = {"IN": write(tmp_path / "folder" / "in", ["a"]), "FOLDER": f"{tmp_path}/folder", "NEW": f"{tmp_path}/new"}
    with pytest.raises(SystemExit, match=message):
        translate.main(["--model", str(model_folder), *QUICK, *(places.get(word, word) for word in arguments)])
    assert not (tmp_path / "new").exists()  # a corrected command can begin


def test_ctrl_c_keeps_the_finished_shards(model_folder, tmp_path, monkeypatch, capsys):
    original, calls = Translator.translate, []

    def stops(self, texts, **options):
        calls.append(1)
        if len(calls) == 4:  # the first call checks the options
            raise KeyboardInterrupt
        return original(self, texts, **options)

    words = ["--model", str(model_folder), "--input", write(tmp_path / "in", LINES), *QUICK, "--shards", "5"]
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", stops)
        with pytest.raises(SystemExit):
            translate.main([*words, "--output", str(tmp_path / "out")])
    assert "keeps the finished shards; the same command continues" in capsys.readouterr().err
    assert len(list((tmp_path / "out").glob("shard-*"))) == 2
    translate.main([*words, "--output", str(tmp_path / "out")])
    assert read(tmp_path / "out" / "translations.txt") == expected(model_folder)


# --- the bundled family ---


def test_without_model_and_language_every_translation_names_its_language(capsys):
    translate.main(["Where is the station?", "I am hungry."])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [language for language, _ in lines] == ["de", "fr", "es", "zh"] * 2
    everyday = Translator.from_pretrained("everyday")
    assert lines[5][1] == everyday("I am hungry.", target_lang="fr")


def test_one_language_has_one_line_for_each_line(capsys, monkeypatch):
    monkeypatch.setattr(translate, "on_terminal", lambda stream: True)
    translate.main(["Wo ist der Bahnhof?", "--target_lang", "en"])
    out, err = capsys.readouterr()
    assert out == Translator.from_pretrained("everyday")("Wo ist der Bahnhof?", target_lang="en") + "\n"
    assert "everyday sentences" in err


def test_a_run_into_several_languages_is_resumed(tmp_path):
    (tmp_path / "in").write_text("One.\nTwo.\nThree.\n")
    command = ["--input", str(tmp_path / "in"), "--target_lang", "zh", "de"]
    translate.main([*command, "--output", str(tmp_path / "whole")])
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    assert len(lines) == 3 * 2
    (tmp_path / "out.partial").write_text("".join(lines[:2]))
    translate.main([*command, "--output", str(tmp_path / "out"), "--resume"])
    assert (tmp_path / "out").read_text() == "".join(lines)


def test_shards_of_a_family_are_translated_by_one_of_its_models(tmp_path):
    (tmp_path / "in").write_text("One.\nTwo.\n")
    command = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--shards", "1"]
    translate.main([*command, "--target_lang", "fr"])
    expected = Translator.from_pretrained("everyday")(["One.", "Two."], target_lang="fr")
    assert (tmp_path / "out" / "translations.txt").read_text().splitlines() == expected
    with pytest.raises(SystemExit, match="--shards translates into one language"):
        translate.main([*command, "--target_lang", "fr", "de"])
    with pytest.raises(SystemExit, match=r"everyday translates en-de, .*: give target_lang"):
        translate.main(command)


def test_the_command_says_what_it_found_assumed_or_left_unchanged(capsys, monkeypatch):
    def run(*words):
        translate.main(["--model", "everyday", *words])
        out, err = capsys.readouterr()
        return out, [line for line in err.splitlines() if "language" in line]

    german = "Wo ist der Bahnhof?"
    out, notes = run(german, german)
    assert (out.split("\t")[0], len(out.splitlines()), notes) == ("en", 2, [])  # German is into English alone
    monkeypatch.setattr(translate, "on_terminal", lambda stream: stream is sys.stderr)
    assert run(german, german)[1] == ["Source language: German."]
    assert run("--target_lang", "de", "Hotel")[1] == [
        "The text does not tell its language: English is assumed (--source_lang sets it)."
    ]
    unchanged = "The text is in the target language already: it comes back unchanged."
    assert run("--target_lang", "de", german) == (f"{german}\n", [unchanged])
    assert run("--target_lang", "en", "Hotel", "--source_lang", "en") == ("Hotel\n", [unchanged])
    with pytest.raises(SystemExit, match="--resume needs --target_lang"):
        run("--input", "a", "--output", "b", "--resume")
