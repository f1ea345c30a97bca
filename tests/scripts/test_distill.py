"""A teacher's translations replace the targets: the best ones, all of them, or those closest to the originals."""

import json
import shutil

import pytest
from sacrebleu.metrics import BLEU

from vanilla_transformer import Translator
from vanilla_transformer.safe_files.atomic_writes import one_line
from vanilla_transformer.scripts import distill


PAIRS = [
    ("The cat sleeps.", "Die Katze schläft."),
    ("A dog runs in the garden.", "Ein Hund läuft im Garten."),
    ("", "Ein Hund."),
    ("A dog runs.", "Ein Hund läuft."),
    ("The dog sleeps in the garden.", "Der Hund schläft im Garten."),
]
KEPT = [pair for pair in PAIRS if pair[0]]
QUICK = ["--device", "cpu", "--max_extra_tokens", "3", "--num_beams", "3"]


@pytest.fixture
def command(model_folder, tmp_path):
    """Returns the words of a command line on the pairs above."""
    for side, language in enumerate(["en", "de"]):
        (tmp_path / f"pairs.{language}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    where = ["--train_files", str(tmp_path / "pairs"), "--shard_size", "2", "--model", str(model_folder)]
    return lambda name, *words: [*where, *words, "--output_dir", str(tmp_path / name), *QUICK]


def written(folder) -> list[tuple[str, str]]:
    texts = [(folder / f"train.{language}").read_bytes().decode() for language in ("en", "de")]
    return list(zip(*(text.removesuffix("\n").split("\n") for text in texts), strict=True))


def n_best_of(models, number: int) -> list[list[str]]:
    translator = Translator.from_pretrained(models, device="cpu")
    results = translator.translate([source for source, _ in KEPT], n_best=number, num_beams=3, max_extra_tokens=3)
    return [[one_line(each.text) for each in n_best] for n_best in results]


def test_the_teachers_translations_replace_the_targets(command, model_folder, tmp_path, capsys):
    distill.main(command("best"))
    best = [n_best[0] for n_best in n_best_of(model_folder, 1)]
    assert written(tmp_path / "best") == [(source, text) for (source, _), text in zip(KEPT, best, strict=True)]
    report = json.loads((tmp_path / "best" / "report.json").read_text())
    expected = BLEU().corpus_score(best, [[target for _, target in KEPT]]).score
    assert report["bleu_with_originals"]["score"] == pytest.approx(expected)
    assert report["cleaning"]["kept"] == report["texts"] == 4
    assert "BLEU against the original targets" in capsys.readouterr().out


def test_a_reverse_model_chooses_among_the_candidates(command, model_folder, tmp_path):
    reverse = shutil.copytree(model_folder, tmp_path / "reverse")
    config = json.loads((reverse / "config.json").read_text())
    (reverse / "config.json").write_text(json.dumps({**config, "source_lang": "de", "target_lang": "en"}))
    words = ["--reverse_model", str(reverse), "--reverse_weight", "50", "--candidates", "3"]
    distill.main(command("chosen", *words))
    scored = {}
    scorer = Translator.from_pretrained(reverse, device="cpu")
    for (source, _), texts in zip(KEPT, n_best_of(model_folder, 3), strict=True):
        scores = scorer.score([(text, source) for text in texts])
        scored[source] = dict(zip(texts, (each.log_probability for each in scores), strict=True))
    chosen = written(tmp_path / "chosen")
    assert [scored[source][text] for source, text in chosen] == [max(each.values()) for each in scored.values()]
    assert [text for _, text in chosen] != [n_best[0] for n_best in n_best_of(model_folder, 1)]
    settings = json.loads((tmp_path / "chosen" / "report.json").read_text())["settings"]
    assert settings["reranking"]["candidates"] == 3
    with pytest.raises(SystemExit, match="need --reverse_model"):
        distill.main(command("other", "--candidates", "3"))
    with pytest.raises(SystemExit, match="the reverse model translates en"):
        distill.main(command("other", "--reverse_model", str(model_folder), "--candidates", "3"))


def test_n_best_and_the_closest_of_them(command, model_folder, tmp_path):
    lists = n_best_of(model_folder, 3)
    distill.main(command("all", "--n_best", "3"))
    assert [target for _, target in written(tmp_path / "all")] == [text for n_best in lists for text in n_best]
    distill.main(command("closest", "--n_best", "3", "--closest"))
    bleu = BLEU(effective_order=True)
    closest = [
        max(n_best, key=lambda text, target=target: bleu.sentence_score(text, [target]).score)
        for (_, target), n_best in zip(KEPT, lists, strict=True)
    ]
    assert [target for _, target in written(tmp_path / "closest")] == closest


def test_an_ensemble_teaches_and_a_killed_run_continues(command, model_folder, tmp_path, monkeypatch):
    teachers = [str(shutil.copytree(model_folder, tmp_path / name)) for name in ("a", "b")]
    distill.main(command("whole", "--model", *teachers))
    assert [target for _, target in written(tmp_path / "whole")] == [best for (best,) in n_best_of(teachers, 1)]

    def killed(self, texts, **options):
        raise KeyboardInterrupt

    translate = Translator.translate
    for patched in (killed, translate):  # the first start ends before its first part
        monkeypatch.setattr(Translator, "translate", patched)
        words = command("killed", "--model", *teachers)
        if patched is killed:
            with pytest.raises(SystemExit):
                distill.main(words)
        else:
            distill.main(words)
    for name in ("train.en", "train.de", "report.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--closest"], "set --n_best to 2 or more"),
        (["--n_best", "4"], "n_best=4 is more than num_beams=3 can find"),
        (["--model", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_get_a_sentence(command, words, message):
    with pytest.raises(SystemExit, match=message):
        distill.main(command("new", *words))
