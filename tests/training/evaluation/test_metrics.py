"""Every figure against an oracle: sacreBLEU's own command, a plain multi-bleu, or a sum done by hand."""

import json
import logging
import math
import random
import subprocess
import sys
from collections import Counter

import pytest

from vanilla_transformer.training.evaluation import metrics
from vanilla_transformer.training.evaluation.metrics import (
    COMPOUND_BLEUS,
    bleu,
    bleu_by_length,
    course_bleu,
    measure,
    measures,
    paired_bootstrap,
    require_measures,
    split_compounds,
)


WORDS = [
    "die",
    "Katze",
    "schläft",
    "E-Mail-Adresse",
    "a-b-c",
    "–",
    "„gut“,",
    "z.B.",
    "3,5",
    "Straße.",
    "x\u00a0y",
    "-",
]


def sentences(number: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 15))) for _ in range(number)]


def worse(references: list[str], share: float, seed: int = 0) -> list[str]:
    """Other words in place of a share of them, and every ninth sentence left out."""
    draw = random.Random(seed)
    changed = [
        [word if draw.random() > share else draw.choice(WORDS) for word in line.split(" ")] for line in references
    ]
    return ["" if place % 9 == 8 else " ".join(words) for place, words in enumerate(changed)]


REFERENCES = sentences(60, seed=1)
HYPOTHESES = worse(REFERENCES, 0.2)


# --- sacreBLEU's own command ---


@pytest.fixture
def files(tmp_path):
    for name, lines in (("hypotheses", HYPOTHESES), ("references", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_the_sacrebleu_command_says_the_same(files):
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "references",
        "-i",
        "hypotheses",
        "-w",
        "12",
        "-m",
        "bleu",
        "chrf",
        "ter",
    ]
    found = measure(HYPOTHESES, REFERENCES)
    for names, options in (
        (("sacrebleu", "chrf", "ter"), []),
        (("sacrebleu", "chrf++", "ter"), ["--chrf-word-order", "2"]),
    ):
        run = subprocess.run([*command, *options], capture_output=True, text=True, check=True, cwd=files)
        for name, printed in zip(names, json.loads(run.stdout), strict=True):
            assert 0 < found[name].score < 100
            assert round(found[name].score, 12) == printed["score"]
            assert found[name].signature == printed["signature"]
    assert bleu(HYPOTHESES, REFERENCES) == found["sacrebleu"]


def test_the_command_without_tokens_and_smoothing_is_tokenized_bleu(files):
    options = ["--tokenize", "none", "--smooth-method", "none", "--force", "--score-only", "-w", "12"]
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=files).stdout
    # A no-break space is white space to the command, but not to multi-bleu.perl.
    as_the_command_reads = [[line.replace("\u00a0", " ") for line in text] for text in (HYPOTHESES, REFERENCES)]
    assert f"{tokenized_bleu(*as_the_command_reads):.12f}" == printed.strip()
    assert f"{tokenized_bleu(HYPOTHESES, REFERENCES):.12f}" != printed.strip()


# --- multi-bleu.perl ---


def tokenized_bleu(hypotheses: list[str], references: list[str], **options) -> float:
    return measures(tokenized=True, **options)["tokenized_bleu"](hypotheses, references).score


def ngrams(words: list[bytes], n: int) -> Counter:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """BLEU as Papineni et al. (2002) define it, counted on bytes as multi-bleu.perl does."""
    pairs = [(h.encode().split(), r.encode().split()) for h, r in zip(hypotheses, references, strict=True)]
    logarithms = []
    for n in range(1, 5):
        matches = sum((ngrams(h, n) & ngrams(r, n)).total() for h, r in pairs)
        total = sum(ngrams(h, n).total() for h, _ in pairs)
        if not matches:
            return 0.0
        logarithms.append(math.log(matches / total))
    written, wanted = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    return 100 * min(1.0, math.exp(1 - wanted / written)) * math.exp(sum(logarithms) / 4)


@pytest.mark.parametrize("seed", range(8))
def test_tokenized_bleu_is_multi_bleu(seed):
    references = sentences(20, seed)
    hypotheses = worse(references, 0.08 * seed, seed)
    expected = multi_bleu(hypotheses, references)
    assert expected > 0
    assert tokenized_bleu(hypotheses, references) == pytest.approx(expected, abs=1e-10)
    split = [[split_compounds(line) for line in text] for text in (hypotheses, references)]
    assert split[1] != references
    found = measures(tokenized=True)["compound_bleu"](hypotheses, references).score
    assert found == pytest.approx(multi_bleu(*split), abs=1e-10)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ("a b c d e", "a b c d e", 100.0),
        ("a b c d", "a b c d e", 100 * math.exp(1 - 5 / 4)),  # too short
        ("a b c d e", "a b c d", 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25),  # too long, which has no penalty
        (
            "a a a a a",
            "a a a a b",
            100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25,
        ),  # a word counts as often as it is there
        ("a b c x d", "a b c d e", 0.0),  # no four words together
        ("a b", "a b", 0.0),  # not even four words
        ("", "a b c d", 0.0),
        ("a b c d", "", 0.0),
        ("A b c d", "a b c d", 0.0),  # case counts
        ("a b c d\u00a0e f", "a b c d e f", 0.0),  # a no-break space breaks no word
    ],
)
def test_cases_worked_by_hand(hypothesis, reference, expected):
    assert tokenized_bleu([hypothesis], [reference]) == pytest.approx(expected, abs=1e-10)


def test_lower_case_is_asked_for_and_signed():
    plain, lower = (measures(tokenized=True, lowercase=each) for each in (False, True))
    texts = ["DIE KATZE SCHLÄFT HIER"], ["die Katze schläft hier"]
    assert plain["tokenized_bleu"](*texts).score == 0
    assert lower["tokenized_bleu"](*texts).score == pytest.approx(100)
    assert "case:lc" in lower["tokenized_bleu"](*texts).signature
    for name in ("sacrebleu", "compound_bleu"):
        assert lower[name](*texts) == plain[name](*texts)
        assert "case:mixed" in lower[name](*texts).signature


# --- the paper's compounds ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # b is taken up by the first match
        ("aa-bb-cc", "aa ##AT##-##AT## bb ##AT##-##AT## cc"),
        ("a-ü-b", "a ##AT##-##AT## ü ##AT##-##AT## b"),  # ü is two bytes to Perl
        ("-a- b - c-", "-a- b - c-"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("a---b", "a ##AT##-##AT## --b"),
        ("Grün-Öl", "Grün ##AT##-##AT## Öl"),
        ("x\u00a0-y", "x\u00a0 ##AT##-##AT## y"),
        ("", ""),
    ],
)
def test_compounds_are_split_as_perl_does_it(text, expected):
    assert split_compounds(text) == expected


def test_split_compounds_give_credit_for_half_a_compound():
    pytest.importorskip("sacremoses")
    hypotheses = ["Die Rich-Text-Datei liegt hier auf dem Tisch."]
    references = ["Die Plain-Text-Datei liegt hier auf dem Tisch."]
    found = measure(hypotheses, references)
    tokens = [
        [f"Die {word} ##AT##-##AT## Text ##AT##-##AT## Datei liegt hier auf dem Tisch ."] for word in ("Rich", "Plain")
    ]
    assert found["compound_bleu"].score == pytest.approx(multi_bleu(*tokens))
    whole = [["Die Rich-Text-Datei liegt hier auf dem Tisch ."], ["Die Plain-Text-Datei liegt hier auf dem Tisch ."]]
    assert found["tokenized_bleu"].score == pytest.approx(multi_bleu(*whole))
    assert found["compound_bleu"].score > found["tokenized_bleu"].score
    assert "tok:moses-de-" in found["tokenized_bleu"].signature
    assert len({figure.signature for figure in found.values()}) == len(found)


def test_scores_of_split_compounds_differ_in_what_they_do_with_quotes():
    """Moses's table has “ and ”, not „ and «. Tokens worked by hand; the oracle counts them."""
    pytest.importorskip("sacremoses")
    hypotheses = ["Er sagte „Rich-Text“ und ging dann nach Hause.", "Sie las das «Blatt» am Abend im Garten."]
    references = ['Er sagte "Rich-Text" und ging dann nach Hause.', "Sie las das “Blatt” am Abend im Garten."]
    compound = "Rich ##AT##-##AT## Text"
    outputs = [
        f"Er sagte „ {compound} “ und ging dann nach Hause .",
        "Sie las das « Blatt » am Abend im Garten .",
    ]
    targets = [
        f"Er sagte &quot; {compound} &quot; und ging dann nach Hause .",
        "Sie las das “ Blatt ” am Abend im Garten .",
    ]
    ascii_outputs = [outputs[0].replace("“", "&quot;"), outputs[1]]
    ascii_targets = [targets[0], targets[1].replace("“", "&quot;").replace("”", "&quot;")]
    found = measure(hypotheses, references)
    assert found["compound_bleu"].score == pytest.approx(multi_bleu(outputs, targets))
    assert found["compound_bleu_ascii_output"].score == pytest.approx(multi_bleu(ascii_outputs, targets))
    assert found["compound_bleu_ascii_both"].score == pytest.approx(multi_bleu(ascii_outputs, ascii_targets))
    assert len({found[name].score for name in COMPOUND_BLEUS}) == 2, "« and » are in no table"
    assert len({found[name].signature for name in COMPOUND_BLEUS}) == 3
    plain = measure(["Ein Hund läuft am Strand."], ["Ein Hund rennt am Strand."])
    assert len({plain[name].score for name in COMPOUND_BLEUS}) == 1


def test_a_missing_package_is_named_before_a_training(monkeypatch):
    require_measures(["sacrebleu", "chrf"])
    with pytest.raises(ValueError, match="There is no measure 'blue'"):
        require_measures(["blue"])
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ValueError, match=r"compound_bleu need.*pip install sacremoses"):
        require_measures(["sacrebleu", "compound_bleu"])


def test_without_sacremoses_only_what_needs_it_is_left_out(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    monkeypatch.setattr(metrics.logger, "warning_once", metrics.logger.warning)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    assert list(measure(HYPOTHESES, REFERENCES)) == ["sacrebleu", "chrf", "chrf++", "ter"]
    assert "sacremoses is not installed" in caplog.text
    assert list(measure(HYPOTHESES, REFERENCES, tokenized=True)) == [
        *("sacrebleu", "compound_bleu", "tokenized_bleu", "chrf", "chrf++", "ter")
    ]


# --- what does not fit ---


def test_text_without_spaces_has_no_measures_of_words():
    """Moses's tokeniser does not split Chinese: BLEU of its tokens is 0 for almost any translation."""
    figures = measure(["我很高兴。"], ["我很高兴认识你。"], target_lang="zh", sacrebleu_tokens="zh")
    assert set(figures) == {"sacrebleu", "chrf", "chrf++", "ter"}
    assert figures["sacrebleu"].score > 30


def test_different_numbers_of_lines_are_refused():
    with pytest.raises(ValueError, match="There are 59 hypotheses but 60 references"):
        measure(HYPOTHESES[1:], REFERENCES)
    with pytest.raises(ValueError, match="There are 59 hypotheses of the baseline but 60 references"):
        paired_bootstrap(HYPOTHESES, HYPOTHESES[1:], REFERENCES, measures(tokenized=True)["sacrebleu"])
    with pytest.raises(ValueError, match="no references"):
        measure([], [])


# --- by length ---


def test_buckets_hold_every_sentence_once():
    sources = ["", "a", *(" ".join(["a"] * n) for n in (2, 3, 4, 5, 6, 90))]
    texts = ["a b c d", "a b c d", *["a b c e"] * 3, *["a b c d"] * 3]
    buckets = bleu_by_length(sources, texts, ["a b c d"] * 8, bounds=[2, 4, 50, 60])
    assert [(each.label, each.sentences) for each in buckets] == [("≤ 2", 3), ("3–4", 2), ("5–50", 2), ("> 60", 1)]
    assert sum(bucket.sentences for bucket in buckets) == len(sources)
    assert buckets[0].sacrebleu == bleu(texts[:3], ["a b c d"] * 3).score
    assert buckets[1].sacrebleu == bleu(texts[3:5], ["a b c d"] * 2).score
    assert buckets[2].sacrebleu == pytest.approx(100)


def test_one_bucket_is_the_whole():
    (bucket,) = bleu_by_length(REFERENCES, HYPOTHESES, REFERENCES, bounds=[1000])
    assert (bucket.label, bucket.sentences) == ("≤ 1000", 60)
    assert bucket.sacrebleu == bleu(HYPOTHESES, REFERENCES).score


# --- paired bootstrap ---


@pytest.mark.parametrize("name", ["sacrebleu", "compound_bleu", "tokenized_bleu", "chrf", "ter"])
def test_only_a_better_system_is_significantly_better(name):
    by = measures(tokenized=True)[name]
    same = paired_bootstrap(HYPOTHESES, HYPOTHESES, REFERENCES, by, samples=100)
    assert same.p_value == 1.0
    assert same.system == same.baseline == by(HYPOTHESES, REFERENCES).score
    better = paired_bootstrap(HYPOTHESES, worse(REFERENCES, 0.6), REFERENCES, by, samples=100)
    assert better.p_value < 0.05
    assert (better.system < better.baseline) == (name == "ter")
    assert 0 < better.interval < 20
    assert "bs:100|seed:12345" in better.signature
    assert ("tok:given" in better.signature) == (name in ("compound_bleu", "tokenized_bleu"))


def test_one_changed_sentence_is_chance():
    changed = ["die Katze schläft", *HYPOTHESES[1:]]
    found = paired_bootstrap(changed, HYPOTHESES, REFERENCES, measures(tokenized=True)["sacrebleu"])
    assert found.system != found.baseline
    assert found.p_value > 0.05


@pytest.mark.parametrize(
    ("hypothesis", "reference", "score"),
    [
        ("va !", "va !", 1.0),
        ("il est mouillé .", "il est calme .", 0.658),  # as the course prints it
        ("je suis .", "je suis chez moi .", math.exp(1 - 5 / 3) * 0.5**0.25),
        ("il il il", "il", 0.0),
        ("!", "!", 1.0),
        ("", "va !", 0.0),
    ],
)
def test_the_courses_bleu_by_its_formula(hypothesis, reference, score):
    assert course_bleu(hypothesis, reference) == pytest.approx(score, abs=5e-4)
