"""Real processes: two that agree with one, and runs that are killed without warning."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close


TRAIN = "vanilla_transformer.training.train"
LOOP = "vanilla_transformer.training.accelerate_loop"


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe for a small run and returns its path; keywords override its keys."""
    draw = random.Random(0)
    pairs = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 9))] for _ in range(600)]
    (tmp_path / "pairs.en").write_text("".join(" ".join(words) + "\n" for words in pairs))
    (tmp_path / "pairs.de").write_text("".join(" ".join(reversed(words)) + "\n" for words in pairs))

    def write(name: str, **keys) -> str:
        config = {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "d_model": 32,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
        }
        content = {
            "source_lang": "en",
            "target_lang": "de",
            "train_files": [str(tmp_path / "pairs")],
            "vocab_size": 300,
            "preset": "tiny",
            "model_config": {**config, "dropout": 0.0},
            "output_dir": str(tmp_path / name),
            "max_tokens": 256,
            "max_steps": 20,
            "warmup_steps": 6,
            "logging_steps": 1,
            "save_strategy": "no",
            "average_checkpoints": 0,
            "report_to": "none",
            "use_cpu": True,
            **keys,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(content))
        return str(path)

    return write


def command(module: str, recipe: str, *options: str, processes: int = 1) -> list[str]:
    if processes == 1:
        return [sys.executable, "-m", module, recipe, *options]
    # Accelerate's own launcher starts several processes on GPUs only: told --cpu, it starts one.
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    return [*launch, "-m", module, recipe, *options]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}


def run(*arguments, **keywords) -> str:
    # Five minutes: a run that hangs must not hang the tests.
    options = {"capture_output": True, "text": True, "env": environment(), "timeout": 300}
    done = subprocess.run(command(*arguments, **keywords), **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for(path, process) -> None:
    for _ in range(30_000):  # five minutes: a run that hangs must not hang the tests
        if path.is_file():
            return
        assert process.poll() is None, "the run ended too early"
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"{path} never came")


def losses(folder) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def weights(folder) -> dict[str, torch.Tensor]:
    """Without the keys' biases, whose true gradient is zero and whose steps are Adam's answer to rounding."""
    state = load_file(folder / "model" / "model.safetensors")
    return {name: tensor for name, tensor in state.items() if not name.endswith("k_proj.bias")}


@pytest.mark.parametrize("module", [TRAIN, pytest.param(LOOP, marks=pytest.mark.slow)])
def test_two_processes_equal_one_on_the_same_global_batches(recipe, tmp_path, module):
    run(module, recipe("one", gradient_accumulation_steps=2))
    run(module, recipe("two"), processes=2)
    if module == TRAIN:
        assert json.loads((tmp_path / "two" / "run.json").read_text())["processes"] == 2
    if module == TRAIN:
        assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    for name, tensor in weights(tmp_path / "two").items():
        assert_close(tensor, weights(tmp_path / "one")[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_resumes_with_the_same_losses_and_weights(recipe, tmp_path, processes):
    keys = {"max_steps": 60, "save_strategy": "steps", "save_steps": 7, "seed": 5}
    keys["model_config"] = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "dropout": 0.1}
    run(TRAIN, recipe("whole", **keys), processes=processes)

    path = recipe("killed", **keys)
    process = subprocess.Popen(
        command(TRAIN, path, processes=processes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    wait_for(tmp_path / "killed" / "checkpoint-14" / "complete", process)
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        member.kill()  # SIGKILL: nobody can tidy up
    psutil.wait_procs(family)
    assert not (tmp_path / "killed" / "model").exists()

    run(TRAIN, path, "--resume_from_checkpoint", "last", processes=processes)
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    for name, tensor in weights(tmp_path / "killed").items():
        assert_close(tensor, weights(tmp_path / "whole")[name], rtol=0, atol=0)


def test_ctrl_c_saves_and_says_how_to_resume(recipe, tmp_path):
    path = recipe("stopped", max_steps=100_000)
    process = subprocess.Popen(
        command(TRAIN, path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    wait_for(tmp_path / "stopped" / "metrics.jsonl", process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "To resume: add --resume_from_checkpoint last" in output
    assert list((tmp_path / "stopped").glob("checkpoint-*/complete"))


@pytest.mark.slow
def test_sigterm_saves_and_stops_every_process_of_torchrun(recipe, tmp_path):
    path = recipe("stopped", max_steps=100_000)
    process = subprocess.Popen(
        command(TRAIN, path, processes=2),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    wait_for(tmp_path / "stopped" / "metrics.jsonl", process)
    process.send_signal(signal.SIGTERM)  # torchrun passes it on
    output, _ = process.communicate(timeout=120)
    assert "To resume: add --resume_from_checkpoint last" in output
    (complete,) = (tmp_path / "stopped").glob("checkpoint-*/complete")
    step = int(complete.parent.name.removeprefix("checkpoint-"))
    run(TRAIN, path, "--resume_from_checkpoint", "last", "--max_steps", str(step + 2), processes=2)
    assert len(losses(tmp_path / "stopped")) == step + 2


@pytest.mark.slow
def test_a_full_disk_ends_in_a_sentence_and_spares_the_last_good_checkpoint(recipe, tmp_path):
    """No file may grow beyond a limit that the second checkpoint, whose optimizer has state, is over."""
    path = recipe("full", max_steps=30, save_strategy="steps", save_steps=10, save_total_limit=1)
    run(TRAIN, path, "--max_steps", "10")
    good = tmp_path / "full" / "checkpoint-10"
    before = {file.name: file.read_bytes() for file in good.iterdir()}
    size = (good / "model.safetensors").stat().st_size
    limited = f"""
import resource, signal, sys
from vanilla_transformer.training.train import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}))
main([{path!r}, "--resume_from_checkpoint", "last"])
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, env=environment())
    assert done.returncode != 0
    assert "checkpoint-20 could not be written" in done.stderr
    assert f"The last good checkpoint is {good}" in done.stderr
    assert "Traceback" not in done.stderr
    assert {file.name: file.read_bytes() for file in good.iterdir()} == before


# --- weights shared out among the processes ---


def evaluate_sharded(folder: str) -> None:
    """Each process has half of every matrix; evaluation gives each a whole model and an unequal share of the work."""
    from accelerate import Accelerator
    from datasets import Dataset
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoTokenizer

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
    from vanilla_transformer.training.trainer import TranslationTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    words = ["a b c", "d e", "f g h a b c d", "b", "c d e f"]
    pairs = Dataset.from_list(
        [{"source": text, "target": text, **tokenizer(text, text_target=text)} for text in words]
    ).remove_columns("attention_mask")
    args = TranslationTrainingArguments(
        output_dir=f"{folder}/run", use_cpu=True, report_to="none", max_tokens=8, eval_strategy="no"
    )

    def measure(model) -> dict:
        trainer = TranslationTrainer(model, args, processing_class=tokenizer, eval_dataset=pairs)
        assert trainer.whole_model() is not model or not sharded
        return {name: value for name, value in trainer.evaluate().items() if name != "eval_seconds"}

    sharded = False
    expected = measure(VanillaTransformerForConditionalGeneration.from_pretrained(folder))
    sharded = True
    model = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    before = torch.get_rng_state()
    model.generation_config.num_beams = 2
    trainer = TranslationTrainer(model, args, processing_class=tokenizer, eval_dataset=pairs)
    assert trainer.whole_model().generation_config.num_beams == 2
    model.generation_config.num_beams = None
    assert measure(model) == pytest.approx(expected)
    assert torch.equal(torch.get_rng_state(), before)
    assert Accelerator().num_processes == 2


@pytest.mark.slow
def test_a_sharded_model_is_evaluated_whole(tmp_path):
    from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
    from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer

    tokenizer = train_tokenizer(["a b c d e f g h"], vocab_size=270, min_frequency=1, show_progress=False)
    tokenizer.save_pretrained(tmp_path)
    VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=16, decoder_layers=2)
    ).save_pretrained(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += f"import test_processes; test_processes.evaluate_sharded({str(tmp_path)!r})"
    (tmp_path / "run.py").write_text(code)
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*two, str(tmp_path / "run.py")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
