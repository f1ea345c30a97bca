"""The card says what the files of a run say, and nothing else."""

import json
from pathlib import Path

import pytest
import yaml

from vanilla_transformer import RnnSearchConfig, RnnSearchForConditionalGeneration
from vanilla_transformer.training.reports.model_card import CardOptions, model_card, rename


RECIPE = {
    "source_lang": "en",
    "target_lang": "de",
    "train_files": ["/home/someone/pairs"],
    "validation_files": ["/home/someone/valid"],
    "preset": "tiny",
    "max_steps": 60,
    "output_dir": "/home/someone/runs/first",
}
DESCRIPTION = {
    "parameters": 1234567,
    "pairs": {"train": 29000},
    "device": "cpu",
    "threads": 2,
    "processes": 1,
    "seed": 42,
    "versions": {"torch": "2.13.0"},
}
RESULTS = {"validation": {"sacrebleu": {"score": 31.256, "signature": "nrefs:1|case:mixed"}}}
EVALUATION = {
    "sacrebleu": {"score": 12.345, "signature": "s"},
    "ter": {"score": 50.0, "signature": "t"},
    "decoding": {"num_beams": 1, "length_penalty": 0.6},
    "loading": {"backend": "torch", "quantization": "int8", "device": None},
    "corpus": {"dataset": "wmt/wmt14", "test_split": "newstest", "source_lang": "en", "target_lang": "de"},
    "sentences": 3003,
}


@pytest.fixture
def make_run(tmp_path):
    """Writes the files of a run that the card is made from."""

    def make(name: str = "run", results: dict | None = RESULTS, **changes) -> Path:
        run = tmp_path / name
        run.mkdir()
        (run / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, **changes}))
        (run / "run.json").write_text(json.dumps(DESCRIPTION))
        if results is not None:
            (run / "results.json").write_text(json.dumps(results))
        return run

    return make


@pytest.fixture
def write_card(make_model):
    return lambda run, **options: model_card(run, make_model(), CardOptions(**{"repo_id": "user/en-de", **options}))


def metadata(card: str) -> dict:
    return yaml.safe_load(card.split("---")[1])


def test_numbers_come_from_the_files_of_the_run(make_run, write_card):
    card = write_card(make_run())
    for text in ("1,234,567 parameters", "29,000 pairs", "CPU, 2 threads, 1 process", "torch 2.13.0", "| 31.26 |"):
        assert text in card
    (entry,) = metadata(card)["model-index"][0]["results"]
    assert entry["metrics"][0]["value"] == 31.26
    assert "/home/someone" not in card


def test_a_run_that_was_resumed_on_other_hardware_names_both(make_run, write_card):
    run = make_run()
    starts = [{"device": "cpu", "threads": threads, "processes": 1} for threads in (1, 1, 2)]
    (run / "run.json").write_text(json.dumps({**DESCRIPTION, "starts": starts}))
    assert "| hardware | CPU, 1 thread, 1 process, then CPU, 2 threads, 1 process |" in write_card(run)


def test_a_dataset_is_not_named_as_the_source_of_several_files(make_run, write_card):
    run = make_run(train_files=["data/train", "data/back/train"])
    card = write_card(run, dataset="someone/captions")
    assert "| data | data/train, back/train (en-de), 29,000 pairs |" in card
    assert metadata(card)["datasets"] == ["someone/captions"]


def test_a_model_of_the_demo_names_where_its_sentences_are_from(make_run, write_card):
    card = write_card(make_run(dataset="demo", train_files=[]))
    source = "tatoeba.org by way of manythings.org/anki, CC BY 2.0 FR"
    assert f"| data | demo (en-de), from {source}, 29,000 pairs |" in card
    assert "demo" not in str(metadata(card).get("datasets"))


def test_a_recurrent_model_is_called_one(make_run):
    config = RnnSearchConfig(vocab_size=300, hidden_size=8, attention="none")
    card = model_card(make_run(), RnnSearchForConditionalGeneration(config), CardOptions("someone/model"))
    assert "This is a recurrent encoder-decoder (RNNsearch, Bahdanau et al. 2015), trained" in card
    assert "GRUs of width 8, one fixed context, embeddings of width 620, vocabulary of 300 tokens" in card
    assert "attention-is-all-you-need" not in card


def test_what_the_run_did_not_record_is_left_out(make_run, write_card):
    card = write_card(make_run(results=None))
    assert "## Results" not in card
    assert "minutes" not in card
    assert "None" not in card
    assert not {"model-index", "license", "datasets"} & metadata(card).keys()


def test_times_are_summed_over_all_starts(make_run, write_card):
    run = make_run()
    times = [600.0, 1200.0, 300.0, 900.0]  # stopped after 1200 s and resumed: the clock begins at zero
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps({'train_runtime': time})}\n" for time in times))
    assert "35 minutes" in write_card(run)


def test_a_run_that_started_from_another_names_both(make_run, write_card):
    first = make_run("first")
    second = make_run("second", preset="", seed=77, model_name_or_path=str(first / "model"))
    card = write_card(second)
    assert card.index("preset: tiny") < card.index("seed: 77")
    assert "(preset `tiny`)" not in card


def test_files_of_one_name_are_told_apart_by_their_folders(make_run, write_card):
    files = ["/home/someone/real/train", "/home/someone/back/train", "/home/someone/forward/train"]
    card = write_card(make_run(train_files=files))
    assert "| data | real/train, back/train, forward/train" in card
    assert "train_files:\n- real/train\n- back/train\n- forward/train\n" in card
    twice = ["/home/someone/train", "/home/someone/train"]
    assert "| data | train, train (" in write_card(make_run("second", train_files=twice))
    assert "/home/someone" not in card


def test_robustness_is_a_table(make_run, write_card, tmp_path):
    run, path = make_run(), tmp_path / "evaluation.json"
    forms = {
        "clean": {"score": 29.0, "lowercase": 30.0, "lost": 0.0},
        "upper_case": {"score": 20.0, "lowercase": 27.0, "lost": 0.1},
    }
    path.write_text(json.dumps({**EVALUATION, "robustness": forms}))
    card = write_card(run, evaluations=[path])
    assert "| data | clean | upper_case |\n|---|---|---|\n| wmt/wmt14 (en-de) | 30.0 (0%) | 27.0 (10%) |\n" in card
    path.write_text(json.dumps(EVALUATION))
    assert "upper_case" not in write_card(run, evaluations=[path])


def test_evaluations_say_how_they_differ_from_the_model(make_run, write_card, tmp_path):
    run, path = make_run(), tmp_path / "evaluation.json"
    path.write_text(json.dumps({**EVALUATION, "model": str(run / "model")}))
    card = write_card(run, evaluations=[path])
    assert "| wmt/wmt14 (en-de), 3,003 sentences, beam 1, alpha 0.6, int8 | sacreBLEU | 12.35 |" in card
    assert "TER (lower is better)" in card
    splits = [entry["dataset"]["split"] for entry in metadata(card)["model-index"][0]["results"]]
    assert splits == ["validation", "newstest"]  # two metrics


def test_evaluations_of_translations_and_other_settings(make_run, write_card, tmp_path):
    path = tmp_path / "evaluation.json"
    decoding = {"num_beams": 4, "length_penalty": 0.6, "penalty": "length", "max_extra_tokens": 5}
    path.write_text(json.dumps({**EVALUATION, "decoding": decoding, "loading": None}))
    words = "translations from a file, penalty length^alpha, at most 5 tokens more than the source"
    assert f"3,003 sentences, {words} |" in write_card(make_run(), evaluations=[path])


def test_evaluations_of_another_model_are_refused(make_run, write_card, tmp_path):
    run, path = make_run(), tmp_path / "results.json"
    path.write_text(json.dumps({**EVALUATION, "model": "another/model"}))
    with pytest.raises(ValueError, match="is an evaluation of another/model, not of"):
        write_card(run, evaluations=[tmp_path])
    path.write_text("{}")
    with pytest.raises(ValueError, match="is not an evaluation: give a folder that vanilla evaluate wrote"):
        write_card(run, evaluations=[tmp_path])


def test_results_of_an_earlier_version_are_refused(make_run, write_card):
    run = make_run(results={"validation": {"bleu": 31.256, "signature": "s"}})
    with pytest.raises(ValueError, match=r"earlier version: repeat the command .* with --resume_from_checkpoint last"):
        write_card(run)


def test_a_folder_without_recipe_is_refused(write_card, tmp_path):
    with pytest.raises(ValueError, match=r"has no recipe\.yaml: it is not the folder of a training run"):
        write_card(tmp_path)


def test_a_card_takes_the_name_it_is_pushed_under(make_run, write_card, tmp_path):
    path = tmp_path / "README.md"
    path.write_text(write_card(make_run(), repo_id="hub"))
    rename(path, "someone/en-de")
    card = path.read_text()
    assert card.count('from_pretrained("someone/en-de"') == 3
    assert "\n# en-de\n" in card
    assert metadata(card)["model-index"][0]["name"] == "en-de"
    assert 'from_pretrained("hub"' not in card
    assert not list(tmp_path.glob(".README*"))
    rename(path, "someone/en-de")
    assert path.read_text() == card


def test_each_test_set_is_listed_once_with_the_id_of_its_dataset(make_run, write_card, tmp_path):
    bleu = {"sacrebleu": {"score": 12.345, "signature": "s"}}
    run = make_run(results={"test": bleu, "news": bleu}, test_files=["data/test"], test_sets=["news=data/news"])
    corpus = {"test_files": ["data/test"], "source_lang": "en", "target_lang": "de"}
    paper = {"compound_bleu": {"score": 13.0, "signature": "p"}}
    for name, more in (
        ("test", {"test_files": ["data/test"]}),
        ("news", {"test_set": "news", "test_files": ["data/news"]}),
    ):
        folder = tmp_path / "evaluation" / name
        folder.mkdir(parents=True)
        content = {**EVALUATION, **paper, "model": str(run / "model"), "corpus": {**corpus, **more}}
        (folder / "results.json").write_text(json.dumps(content))
    card = write_card(run, evaluations=[tmp_path / "evaluation"])
    assert card.count("sacreBLEU | 12.35") == 2  # those of the run are not repeated
    assert "compounds split" not in card
    entries = metadata(card)["model-index"][0]["results"]
    assert {entry["dataset"]["type"] for entry in entries} == {"test", "news"}
    named = metadata(write_card(run, evaluations=[tmp_path / "evaluation"], dataset="someone/wmt14"))
    assert {entry["dataset"]["type"] for entry in named["model-index"][0]["results"]} == {"someone/wmt14"}
    assert "compounds split" in write_card(run, evaluations=[tmp_path / "evaluation"], dataset="someone/wmt14")
