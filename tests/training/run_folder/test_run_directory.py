import json
import os
import shutil
import socket
from contextlib import nullcontext

import pytest
import yaml

from vanilla_transformer.training import accelerate_loop as train_accelerate
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.arguments.run_arguments import parse_recipe
from vanilla_transformer.training.run_folder.run_directory import JOB_IDS, exclusive, require_resumable, write_recipe


def test_the_recipe_of_a_run_is_all_of_it_but_the_secrets(recipe, tmp_path, monkeypatch):
    keys = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-5}, "learning_rate": 1e-3}
    words = [*recipe(max_steps=2, eval_strategy="no", **keys), "--hub_token=hf_secret"]
    monkeypatch.setattr("sys.argv", ["vanilla", "train", *words, "--hub-token", "hf_secret"])
    train_script.main(words)
    written = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert written["lr_scheduler_kwargs"] == {"min_lr": 1e-5}
    assert not {"hub_token", "fsdp_config", "gradient_checkpointing_kwargs"} & written.keys()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert "training_args.bin" in {path.name for path in files}
    assert not [path for path in files if b"hf_secret" in path.read_bytes()]


def test_a_run_that_died_before_its_first_checkpoint_starts_again(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    for path in (tmp_path / "run").glob("checkpoint-*"):
        shutil.rmtree(path)
    with pytest.raises(SystemExit, match="already holds a run"):
        train_script.main(recipe(max_steps=2))
    shutil.rmtree(tmp_path / "run" / "model")
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    assert (tmp_path / "run" / "model").is_dir()


def test_resuming_with_other_data_is_refused(recipe, tmp_path):
    train_script.main(recipe(max_steps=4))
    with pytest.raises(SystemExit, match=r"was started with max_tokens=128, not max_tokens=64"):
        train_script.main([*recipe(max_steps=8, max_tokens=64), "--resume_from_checkpoint", "last"])


# Each of them did nothing: the vocabulary is learned, the text is prepared, and the rates are in the checkpoint.
@pytest.mark.parametrize(
    ("name", "value", "keys"),
    [
        ("learning_rate", 0.5, {}),
        ("lr_scheduler_type", "linear", {"learning_rate": 0.1}),
        ("rate_factor", 0.5, {}),
        ("warmup_steps", 2, {}),
        ("adam_beta2", 0.9, {}),
        ("weight_decay", 0.1, {}),
        ("vocab_size", 280, {}),
        ("separate", True, {}),
        ("mark_capitals", True, {}),
        ("algorithm", "unigram", {}),
        ("normalization", "nfkc", {}),
        ("augmentation", {"typos": 0.5}, {}),
        ("model_config", {"dropout": 0.3}, {}),
        ("r_drop", 5.0, {"r_drop": 1.0}),
    ],
)
def test_a_key_that_a_resumed_run_can_not_change_is_refused_by_name(recipe, tmp_path, name, value, keys):
    run, checkpoint = tmp_path / "run", tmp_path / "run" / "checkpoint-8"
    run.mkdir()
    write_recipe(run, *parse_recipe("", recipe(**keys)))
    with pytest.raises(ValueError, match=rf"{name}=.*which a resumed run can't change.*_path {checkpoint} continues"):
        require_resumable(run, checkpoint, *parse_recipe("", recipe(**{**keys, name: value})))


@pytest.mark.parametrize("module", [train_script, train_accelerate])
def test_a_resumed_run_says_what_it_changes_and_records_it(recipe, tmp_path, capsys, module):
    run, keys = tmp_path / "run", {"average_checkpoints": 0, "save_strategy": "steps", "eval_strategy": "no"}
    module.main(recipe(max_steps=4, **keys))
    written = (run / "recipe.yaml").read_bytes()
    with pytest.raises(SystemExit, match=r"started with the default rate_factor, not rate_factor=0\.5"):
        module.main([*recipe(max_steps=5, rate_factor=0.5, **keys), "--resume_from_checkpoint", "last"])
    assert (run / "recipe.yaml").read_bytes() == written
    module.main([*recipe(max_steps=5, **keys), "--resume_from_checkpoint", "last"])
    assert "From checkpoint-4 on: max_steps=5 (before: max_steps=4)." in capsys.readouterr().out
    assert yaml.safe_load((run / "recipe.yaml").read_text())["max_steps"] == 5
    start = json.loads((run / "run.json").read_text())["starts"][-1]
    assert start["resumed_from"] == "checkpoint-4"
    assert start["changed"] == {"max_steps": {"before": "max_steps=4", "now": "max_steps=5"}}


def test_a_resumed_run_has_the_same_text_and_a_record_of_each_start(recipe, tmp_path, monkeypatch):
    run, source = tmp_path / "run", tmp_path / "pairs0.en"
    train_script.main(recipe(max_steps=2, save_steps=2, eval_strategy="no", validation_files=[]))
    first = json.loads((run / "run.json").read_text())
    assert [start["started"] for start in first["starts"]] == [first["started"]]
    words = [
        *recipe(max_steps=4, save_steps=2, eval_strategy="no", validation_files=[]),
        "--resume_from_checkpoint",
        "last",
    ]
    monkeypatch.setattr("sys.argv", ["vanilla", "train", *words])

    text = source.read_text()
    source.write_text(text[:-2] + ("a" if text[-2] != "a" else "b") + text[-1])  # as long as before
    with pytest.raises(SystemExit, match=rf"{source} has changed since the run in {run} was started.*: restore it"):
        train_script.main(words)
    assert json.loads((run / "run.json").read_text()) == first
    source.write_text(text)
    train_script.main(words)
    second = json.loads((run / "run.json").read_text())
    assert {name: value for name, value in second.items() if name != "starts"} == {
        name: value for name, value in first.items() if name != "starts"
    }
    assert [start["command"] for start in second["starts"]] == [first["command"], ["vanilla", "train", *words]]
    for content in ("[]", "{"):
        (run / "run.json").write_text(content)
        with pytest.raises(SystemExit, match=r"run\.json (is not valid JSON|holds a JSON list)"):
            train_script.main(words)


def test_a_file_that_matches_a_pattern_since_is_a_change(recipe, tmp_path):
    rows = "".join(f"{words}\t{words[::-1]}\n" for words in ("a b c", "d e f", "g h a") * 40)
    (tmp_path / "one.tsv").write_text("en\tde\n" + rows)
    keys = {"train_files": [str(tmp_path / "*.tsv")], "max_steps": 2, "eval_strategy": "no", "validation_files": []}
    train_script.main(recipe(**keys))
    (tmp_path / "two.tsv").write_text("en\tde\na b\tb a\n")
    with pytest.raises(SystemExit, match=r"two\.tsv has been added since the run"):
        train_script.main([*recipe(**keys), "--resume_from_checkpoint", "last"])


# --- one process at a time ---


def test_two_trainings_never_share_a_folder(recipe, tmp_path):
    run = tmp_path / "run"
    with exclusive(run):
        for main in (train_script.main, train_accelerate.main):
            with pytest.raises(SystemExit, match=rf"Another process is training in {run}: wait until it ends, or"):
                main(recipe(max_grad_norm=0))
        assert {path.name for path in run.iterdir()} == {".lock", ".owner.json"}
    assert not run.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_killed_training_leaves_no_lock(tmp_path):
    child = os.fork()
    if child == 0:
        with exclusive(tmp_path):
            (tmp_path / ".recipe.yaml-abcd1234.new").touch()  # half a file
            os._exit(9)
    os.waitpid(child, 0)
    assert json.loads((tmp_path / ".owner.json").read_text())["process"] == child
    with exclusive(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {".lock", ".owner.json"}


def test_a_lock_of_another_computer_is_named_with_the_remedy(tmp_path, monkeypatch):
    for name in JOB_IDS:
        monkeypatch.delenv(name, raising=False)
    record = tmp_path / ".owner.json"
    owner = {"host": "elsewhere", "process": 7, "since": "2026-01-01T00:00:00+0000", "job": None}
    record.write_text(json.dumps(owner))
    with (
        pytest.raises(
            ValueError, match=rf"Process 7 on elsewhere has been training in {tmp_path} since 2026.*--take_over true"
        ),
        exclusive(tmp_path),
    ):
        pass
    assert json.loads(record.read_text()) == owner
    with exclusive(tmp_path, take_over=True):
        assert json.loads(record.read_text())["host"] == socket.gethostname()
    record.write_text(json.dumps({**owner, "host": socket.gethostname()}))  # of a dead process here
    with exclusive(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_job_that_its_scheduler_started_again_elsewhere_takes_its_own_lock(tmp_path, monkeypatch):
    record = tmp_path / ".owner.json"
    left = {"host": "elsewhere", "process": 7, "since": "2026-01-01T00:00:00+0000", "job": "SLURM_JOB_ID=41"}
    for job, is_refused in (("42", True), ("41", False)):
        record.write_text(json.dumps(left))
        monkeypatch.setenv("SLURM_JOB_ID", job)
        with pytest.raises(ValueError, match="on elsewhere") if is_refused else nullcontext(), exclusive(tmp_path):
            assert json.loads(record.read_text())["job"] == "SLURM_JOB_ID=41"


def test_a_folder_that_can_not_be_written_is_named(recipe, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        SystemExit, match=r"file/run can't be written \(Not a directory\): choose another --output_dir"
    ):
        train_script.main(recipe(output_dir=str(tmp_path / "file" / "run")))


def test_a_run_that_died_while_it_learned_its_vocabulary_has_nothing_to_resume(recipe, tmp_path):
    (tmp_path / "run" / ".tokenizer-abcd1234.new").mkdir(parents=True)
    for checkpoint, message in [
        ("last", r"There is no run in .*run to resume, because it has no complete checkpoint: leave out"),
        (str(tmp_path / "checkpoint-3"), r"There is no checkpoint .*checkpoint-3: give its folder, or last"),
    ]:
        with pytest.raises(SystemExit, match=message):
            train_script.main([*recipe(), "--resume_from_checkpoint", checkpoint])
