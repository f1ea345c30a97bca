import json
import shutil
import subprocess
import sys

import pytest
from sacrebleu.metrics import BLEU
from transformers import GenerationConfig

from vanilla_transformer import Translator
from vanilla_transformer.scripts import evaluate_bleu
from vanilla_transformer.training.evaluation.metrics import measure


SOURCES = ["The cat sleeps.", "A dog runs in the garden.", "", "The cat runs in the garden and the dog sleeps."]
REFERENCES = [
    "Die Katze schläft.",
    "Ein Hund läuft im Garten.",
    "Ja.",
    "Die Katze läuft im Garten und der Hund schläft.",
]
HYPOTHESES = ["Die Katze schläft.", "Ein Hund läuft in Garten.", "", "Die Katze läuft im Garten und der Hund schlief."]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def run(tmp_path):
    """Runs the script on four sentences, and returns its results.json and the folder."""
    write(tmp_path / "test.en", SOURCES)
    write(tmp_path / "test.de", REFERENCES)
    write(tmp_path / "out.de", HYPOTHESES)

    def call(*arguments, output="evaluation"):
        folder = tmp_path / output
        languages = ["--source_lang", "en", "--target_lang", "de"]
        files = ["--test_files", str(tmp_path / "test"), "--output_dir", str(folder)]
        evaluate_bleu.main([*files, *languages, *arguments])
        return json.loads((folder / "results.json").read_text(encoding="utf-8")), folder

    return call


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


# --- a model ---


def test_a_model_is_decoded_as_in_the_paper(run, model_folder):
    results, folder = run("--model", str(model_folder))
    expected = Translator.from_pretrained(model_folder)(SOURCES)
    assert len(set(expected)) > 1
    assert lines_of(folder / "hypotheses.txt") == [text.replace("\n", " ") for text in expected]
    assert results["sacrebleu"] == measure(expected, REFERENCES)["sacrebleu"]._asdict()
    assert results["model"] == str(model_folder)
    paper = {"num_beams": 4, "length_penalty": 0.6, "penalty": "gnmt", "max_extra_tokens": 50}
    assert results["decoding"] == paper
    loading = {"backend": "torch", "quantization": "float32", "max_tokens": 2048, "revision": "main"}
    assert results["loading"].items() >= loading.items()
    assert results["versions"]["sacrebleu"]
    assert "hypotheses" not in results


def test_a_model_is_decoded_as_its_own_settings_say(run, model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    settings = GenerationConfig.from_pretrained(folder)
    settings.update(num_beams=2, length_penalty=1.5)
    settings.save_pretrained(folder)
    results, written = run("--model", str(folder), "--length_penalty", "0.1")
    expected = Translator.from_pretrained(model_folder)(SOURCES, num_beams=2, length_penalty=0.1)
    assert lines_of(written / "hypotheses.txt") == [text.replace("\n", " ") for text in expected]
    assert (results["decoding"]["num_beams"], results["decoding"]["length_penalty"]) == (2, 0.1)


def test_options_reach_the_search(run, model_folder):
    options = ["--num_beams", "2", "--length_penalty", "0.2", "--max_extra_tokens", "2", "--penalty", "length"]
    results, folder = run("--model", str(model_folder), *options)
    same = {"num_beams": 2, "length_penalty": 0.2, "max_extra_tokens": 2, "penalty": "length"}
    expected = Translator.from_pretrained(model_folder)(SOURCES, **same)
    assert lines_of(folder / "hypotheses.txt") == [text.replace("\n", " ") for text in expected]
    assert results["decoding"].items() >= same.items()


def test_a_line_break_in_a_translation_takes_no_line(run, model_folder, monkeypatch):
    monkeypatch.setattr(Translator, "__call__", lambda self, texts, **_: ["one\ntwo\r\nthree"] * len(texts))
    _, folder = run("--model", str(model_folder))
    assert lines_of(folder / "hypotheses.txt") == ["one two three"] * len(SOURCES)


# --- translations that are there ---


@pytest.mark.parametrize("option", [("--num_beams", "5"), ("--backend", "ctranslate2")])
def test_options_that_would_do_nothing_are_refused(run, tmp_path, option):
    with pytest.raises(SystemExit, match="have no effect on translations from files"):
        run("--hypotheses", str(tmp_path / "out.de"), *option)


def test_figures_are_those_of_sacrebleu_s_command(run, tmp_path, capsys):
    results, folder = run("--hypotheses", str(tmp_path / "out.de"))
    command = [sys.executable, "-m", "sacrebleu", "test.de", "-i", "out.de", "-w", "12", "-m", "bleu", "chrf", "ter"]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout)
    for name, expected in zip(("sacrebleu", "chrf", "ter"), printed, strict=True):
        assert round(results[name]["score"], 12) == expected["score"]
        assert results[name]["signature"] == expected["signature"]
    assert lines_of(folder / "hypotheses.txt") == HYPOTHESES
    assert results["decoding"] is None
    assert results["sentences"] == sum(bucket["sentences"] for bucket in results["by_source_length"]) == 4
    screen = capsys.readouterr().out
    for name, found in measure(HYPOTHESES, REFERENCES).items():
        assert results[name] == found._asdict()
        assert any(line.split() == [name, f"{found.score:.2f}", found.signature] for line in screen.splitlines())


def test_text_that_is_tokenised_already(run, tmp_path):
    results, _ = run("--hypotheses", str(tmp_path / "out.de"), "--tokenized", "--lowercase")
    expected = measure(HYPOTHESES, REFERENCES, tokenized=True, lowercase=True)
    assert {name: results[name] for name in expected} == {name: found._asdict() for name, found in expected.items()}


def test_the_picture_is_beside(run, tmp_path):
    pytest.importorskip("matplotlib")
    _, folder = run("--hypotheses", str(tmp_path / "out.de"), "--length_bounds", "4", "8")
    assert sorted(path.name for path in folder.iterdir()) == ["bleu_by_length.png", "hypotheses.txt", "results.json"]


def test_without_matplotlib_there_is_all_but_the_picture(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    results, folder = run("--hypotheses", str(tmp_path / "out.de"))
    assert results["sacrebleu"]["score"] > 0
    assert not (folder / "bleu_by_length.png").exists()


def test_the_demo_corpus(tmp_path):
    references = write(tmp_path / "out.de", ["Die Katze schläft."] * 1000)
    evaluate_bleu.main(["--dataset", "demo", "--hypotheses", references, "--output_dir", str(tmp_path / "x")])
    results = json.loads((tmp_path / "x" / "results.json").read_text())
    assert results["corpus"] == {
        **{"dataset": "demo", "dataset_config": None, "test_split": "test", "source_lang": "en", "target_lang": "de"}
    }


# --- languages ---


def test_languages_come_from_the_model(run, model_folder, tmp_path):
    given, _ = run("--model", str(model_folder), output="given")
    files = ["--test_files", str(tmp_path / "test"), "--output_dir", str(tmp_path / "x")]
    evaluate_bleu.main(["--model", str(model_folder), *files])
    assert json.loads((tmp_path / "x" / "results.json").read_text(encoding="utf-8")) == given
    with pytest.raises(SystemExit, match=r"languages of the corpus are not known \(\?-\?\): set source_lang"):
        evaluate_bleu.main(["--hypotheses", str(tmp_path / "out.de"), *files, "--overwrite"])


def test_a_model_files_and_options_must_not_contradict_each_other(run, model_folder, tmp_path):
    with pytest.raises(SystemExit, match=r"target_lang is 'fr', but .* translates en-de: leave out target_lang"):
        run("--model", str(model_folder), "--target_lang", "fr")
    french = write(tmp_path / "out.fr", HYPOTHESES)
    with pytest.raises(SystemExit, match=r"out\.fr is 'fr' by its name, but 'de' is needed"):
        run("--hypotheses", french)
    files = [write(tmp_path / "a.cs", SOURCES), write(tmp_path / "a.fr", REFERENCES)]
    with pytest.raises(SystemExit, match=r"a\.cs is 'cs' by its name, but 'en' is needed"):
        run("--model", str(model_folder), "--test_files", *files)


# --- two systems ---


def test_a_system_is_compared_with_a_better_one_and_itself(run, tmp_path, capsys):
    out, perfect = str(tmp_path / "out.de"), str(tmp_path / "test.de")
    options = ["--hypotheses", out, "--bootstrap_samples", "50"]
    results, folder = run(*options, "--baseline_hypotheses", out, output="same")
    assert {found["p_value"] for found in results["against_baseline"].values()} == {1.0}
    results, folder = run(*options, "--baseline_hypotheses", perfect, output="better")
    assert results["against_baseline"]["sacrebleu"]["baseline"] == pytest.approx(100)
    assert results["against_baseline"]["sacrebleu"]["system"] == results["sacrebleu"]["score"]
    assert lines_of(folder / "baseline_hypotheses.txt") == REFERENCES
    assert "paired bootstrap" in capsys.readouterr().out


def test_a_baseline_model(run, tmp_path, model_folder):
    options = ["--hypotheses", str(tmp_path / "out.de"), "--bootstrap_samples", "20"]
    results, folder = run(*options, "--baseline_model", str(model_folder))
    translated = Translator.from_pretrained(model_folder)(SOURCES)
    assert lines_of(folder / "baseline_hypotheses.txt") == [text.replace("\n", " ") for text in translated]
    assert results["baseline_model"] == str(model_folder)
    assert results["baseline_decoding"]["num_beams"] == 4
    assert results["decoding"] is None


# --- nothing is lost ---


def test_nothing_is_overwritten_unasked_or_left_half_done(run, tmp_path, model_folder):
    out = ["--hypotheses", str(tmp_path / "out.de")]
    _, folder = run(*out)
    before = (folder / "results.json").read_bytes()
    with pytest.raises(SystemExit, match=r"already there.*--overwrite"):
        run(*out, "--tokenized")
    assert (folder / "results.json").read_bytes() == before
    run(*out, "--tokenized", "--overwrite")
    assert (folder / "results.json").read_bytes() != before
    with pytest.raises(SystemExit, match="no part of an older result"):
        evaluate_bleu.main([*out, "--dataset", "demo", "--output_dir", str(model_folder), "--overwrite"])
    assert (model_folder / "model.safetensors").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation", "out.de", "test.de", "test.en"]


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either --model or --hypotheses"),
        (["--model", "m", "--hypotheses", "h"], "either --model or --hypotheses"),
        (["--hypotheses", "nowhere.de"], "There is no file 'nowhere.de': check the path"),
        (["--model", "no/such/model"], "no/such/model can't be loaded"),
        (["--hypotheses", "h", "--baseline_model", "m", "--baseline_hypotheses", "h"], "there is one comparison"),
        (["--hypotheses", "h", "--bootstrap_samples", "0"], "--bootstrap_samples 0: give at least 1"),
        (["--hypotheses", "h", "--length_bounds", "9", "5"], r"--length_bounds \[9, 5\]: give ascending numbers"),
        (["--hypotheses", "h", "--length_bounds", "0", "5"], r"--length_bounds \[0, 5\]: give ascending numbers"),
        (["--model", "m", "--streaming"], "streaming is for training, and a test set is read at once"),
        (["--model", "m", "--num_beams", "0"], "num_beams=0 must be a whole number of 1"),
        (["--model", "m", "--max_extra_tokens", "-1"], "max_extra_tokens=-1 must be a whole number of 0 or more"),
    ],
)
def test_a_mistake_ends_in_one_sentence(run, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=message):
        run(*arguments)
    assert not (tmp_path / "evaluation").exists()


def test_files_of_different_lengths(run, tmp_path):
    short = write(tmp_path / "short.de", HYPOTHESES[:2])
    with pytest.raises(SystemExit, match=r"There are 2 lines in .*short.de but 4 references"):
        run("--hypotheses", short)
    with pytest.raises(SystemExit, match=r"There are 2 lines in .*short.de but 4 references"):
        run("--hypotheses", str(tmp_path / "out.de"), "--baseline_hypotheses", short)


def test_a_corpus_without_test_set(run, tmp_path):
    out = ["--hypotheses", str(tmp_path / "out.de"), "--output_dir", str(tmp_path / "x")]
    with pytest.raises(SystemExit, match="set test_files"):
        evaluate_bleu.main([*out, "--train_files", str(tmp_path / "test"), "--source_lang=en", "--target_lang=de"])


def test_lengths_and_repeated_words_are_reported():
    hypotheses, references = ["ein Hund Hund läuft", "die die die Katze"], ["ein Hund läuft", "die Katze"]
    found = evaluate_bleu.lengths(hypotheses, references)
    assert found == {"ratio": 8 / 5, "repeated_words": 3 / 8, "repeated_words_of_references": 0.0}
    assert evaluate_bleu.lengths([""], [""])["repeated_words"] == 0.0


# --- several test sets and references ---


def test_several_test_sets_and_references(run, model_folder, tmp_path, capsys):
    second = write(tmp_path / "second.de", HYPOTHESES)
    write(tmp_path / "news.en", SOURCES[:2])
    write(tmp_path / "news.de", REFERENCES[:2])
    sets = ["--test_sets", f"news={tmp_path / 'news'}", "--references", f"test={second}"]
    files = ["--test_files", str(tmp_path / "test"), "--output_dir", str(tmp_path / "evaluation")]
    evaluate_bleu.main(["--model", str(model_folder), *files, *sets])
    assert "=== test ===" in capsys.readouterr().out
    results = {
        name: json.loads((tmp_path / "evaluation" / name / "results.json").read_text()) for name in ("test", "news")
    }
    assert results["test"]["sacrebleu"]["signature"].startswith("nrefs:2|")
    assert results["news"]["sacrebleu"]["signature"].startswith("nrefs:1|")
    assert results["news"]["corpus"]["test_set"] == "news"
    assert results["news"]["sentences"] == 2
    translations = lines_of(tmp_path / "evaluation" / "test" / "hypotheses.txt")
    expected = BLEU().corpus_score(translations, [REFERENCES, HYPOTHESES]).score
    assert results["test"]["sacrebleu"]["score"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--test_sets", "data/news"], "test_sets has 'data/news': write NAME=FILE"),
        (["--test_sets", "test=data/news"], "test_sets has the name 'test': choose another"),
        (["--references", "news=x.de"], "references are given for 'news', which is not a test set"),
    ],
)
def test_test_sets_have_names(run, tmp_path, options, message):
    with pytest.raises(SystemExit, match=message):
        run("--hypotheses", str(tmp_path / "out.de"), *options)


def test_a_file_of_translations_belongs_to_one_test_set(run, tmp_path):
    write(tmp_path / "news.en", SOURCES[:2])
    write(tmp_path / "news.de", REFERENCES[:2])
    with pytest.raises(SystemExit, match="belong to one test set"):
        run("--hypotheses", str(tmp_path / "out.de"), "--test_sets", f"news={tmp_path / 'news'}")
