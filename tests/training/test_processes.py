"""Real processes: two that agree with one, and runs that are killed without warning."""

import json
import os
import random
import shutil
import signal
import socket
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


def require_same_weights(one: Path, other: Path) -> None:
    for name, tensor in weights(other).items():
        assert_close(tensor, weights(one)[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("module", [TRAIN, pytest.param(LOOP, marks=pytest.mark.slow)])
def test_an_update_is_the_same_on_any_number_of_processes(recipe, tmp_path, module):
    keys = {"tokens_per_update": 1024, "max_tokens": 256}
    one = run(module, recipe("one", **keys))
    two = run(module, recipe("two", **keys), processes=2)
    if module == TRAIN:
        assert "An update has 4 batches of at most 256 + 256 tokens (1 process(es), 4 for each)" in one
        assert "An update has 4 batches of at most 256 + 256 tokens (2 process(es), 2 for each)" in two
        assert json.loads((tmp_path / "two" / "run.json").read_text())["processes"] == 2
        assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    require_same_weights(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("module", [TRAIN, LOOP])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_run_resumes_on_another_number_of_processes(recipe, tmp_path, module, before, after):
    # Without tokens_per_update, the first start decides: two processes have twice the update of one.
    keys = {"save_strategy": "steps", "save_steps": 8, "max_tokens": 512 if before == 1 else 256}
    keys |= {} if before == 2 else {"max_tokens": 256, "gradient_accumulation_steps": 2}
    run(module, recipe("whole", **keys), processes=before)
    run(module, recipe("resumed", **{**keys, "max_steps": 8}), processes=before)
    shutil.rmtree(tmp_path / "resumed" / "model")
    keys.pop("gradient_accumulation_steps", None)
    run(module, recipe("resumed", **keys), "--resume_from_checkpoint", "last", processes=after)
    require_same_weights(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.slow
def test_processes_that_wait_for_the_data_outlive_the_time_out_of_their_group(recipe, tmp_path):
    """The library passes ddp_timeout to GPU groups only, so the test makes the group, and its first process slow."""
    script = tmp_path / "slow_start.py"
    script.write_text(
        "import sys, time\n"
        "from datetime import timedelta\n"
        "import torch\n"
        f"from {TRAIN.rpartition('.')[0]} import train\n"
        f"from {TRAIN.rpartition('.')[0]}.data import prepared_text\n"
        "torch.distributed.init_process_group('gloo', timeout=timedelta(seconds=8))\n"
        "load_corpus = prepared_text.load_corpus\n"
        "def load_slowly(*arguments, **keywords):\n"
        "    if torch.distributed.get_rank() == 0:\n"
        "        time.sleep(14)\n"
        "    return load_corpus(*arguments, **keywords)\n"
        "prepared_text.load_corpus = load_slowly\n"
        "train.main(sys.argv[1:])\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    options = {"capture_output": True, "text": True, "env": environment(), "timeout": 300}
    done = subprocess.run([*launch, str(script), recipe("run", max_steps=3)], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(losses(tmp_path / "run")) == 3


@pytest.mark.slow
def test_a_failure_of_the_process_that_prepares_reaches_the_others(recipe, tmp_path):
    path = recipe("run", train_files=[str(tmp_path / "missing")])
    options = {"capture_output": True, "text": True, "env": environment(), "timeout": 120}
    done = subprocess.run(command(TRAIN, path, processes=2), **options)
    assert done.returncode
    assert "missing" in done.stderr


@pytest.mark.slow
def test_ten_starts_of_one_command_make_one_run(recipe, tmp_path):
    """As a scheduler starts a job again: each start is killed after its next checkpoint, the last one ends the run."""
    keys = {"max_steps": 40, "save_strategy": "steps", "save_steps": 4, "resume_from_checkpoint": "auto"}
    run(TRAIN, recipe("whole", **keys))
    path = recipe("requeued", **keys)
    for start in range(1, 10):
        process = subprocess.Popen(
            command(TRAIN, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
        )
        wait_for(tmp_path / "requeued" / f"checkpoint-{4 * start}" / "complete", process)
        process.kill()
        process.wait()
    run(TRAIN, path)
    assert losses(tmp_path / "requeued") == losses(tmp_path / "whole")
    assert "is finished" in run(TRAIN, path)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_rank(recipe, tmp_path):
    keys = {"max_steps": 60, "save_strategy": "steps", "save_steps": 5, "resume_from_checkpoint": "auto"}
    run(TRAIN, recipe("whole", **keys), processes=2)
    words = command(TRAIN, recipe("killed", **keys), processes=2)
    words.insert(words.index("--standalone"), "--max_restarts=2")
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    wait_for(tmp_path / "killed" / "checkpoint-10" / "complete", process)
    workers = [
        member for member in psutil.Process(process.pid).children(recursive=True) if "LOCAL_RANK" in member.environ()
    ]
    rank_one = next(member for member in workers if member.environ()["LOCAL_RANK"] == "1")
    rank_one.kill()
    assert process.wait(timeout=300) == 0
    require_same_weights(tmp_path / "whole", tmp_path / "killed")


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


def test_sigterm_ends_a_process_that_waits_for_others(recipe, tmp_path):
    """Here, the store of the others is a socket that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
        variables = {**environment(), **where, "RANK": "1", "WORLD_SIZE": "2"}
        waiting = subprocess.Popen(command(TRAIN, recipe("run")), env=variables)
        try:
            server.settimeout(200)
            with server.accept()[0]:
                waiting.terminate()
                assert waiting.wait(timeout=60) == -signal.SIGTERM
        finally:
            waiting.kill()
    assert not (tmp_path / "run").exists()


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
    run_in_two_processes("evaluate_sharded", tmp_path)


def run_in_two_processes(function: str, folder: Path) -> None:
    """Saves a small model in the folder and calls a function of this file with it."""
    from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
    from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer

    tokenizer = train_tokenizer(["a b c d e f g h"], vocab_size=270, min_frequency=1, show_progress=False)
    tokenizer.save_pretrained(folder)
    VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=16, decoder_layers=2)
    ).save_pretrained(folder)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += f"import test_processes; test_processes.{function}({str(folder)!r})"
    (folder / "run.py").write_text(code)
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*two, str(folder / "run.py")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def train_sharded(folder: str) -> None:
    """Three updates of sharded weights in bfloat16, with the policy of fsdp.yaml as the trainer changes it."""
    from datasets import Dataset
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoTokenizer

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
    from vanilla_transformer.training.trainer import TranslationTrainer, summing_in_float32

    tokenizer = AutoTokenizer.from_pretrained(folder)
    words = ["a b c", "d e", "f g h a b c d", "b", "c d e f"]
    pairs = Dataset.from_list([dict(tokenizer(text, text_target=text)) for text in words])
    args = TranslationTrainingArguments(
        output_dir=f"{folder}/run", use_cpu=True, report_to="none", max_tokens=64, eval_strategy="no"
    )
    bfloat16 = torch.bfloat16
    accelerates = MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=bfloat16, output_dtype=bfloat16)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))

    def learn(policy: MixedPrecisionPolicy | None) -> tuple[list[torch.Tensor], TranslationTrainer]:
        model = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
        if policy is not None:
            for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            fully_shard(model, mesh=mesh, mp_policy=policy)
        trainer = TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=pairs)
        batch = trainer.training_collator()(list(pairs))
        items = int((batch["labels"] != -100).sum())
        optimizer, losses = torch.optim.AdamW(model.train().parameters(), lr=1e-3), []
        for _ in range(3):
            loss = trainer.training_objective(model, batch, items)
            assert loss.dtype == torch.float32
            loss.backward()
            assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return losses, trainer

    expected, _ = learn(None)
    losses, trainer = learn(summing_in_float32(accelerates))
    torch.testing.assert_close(losses, expected, rtol=0.01, atol=0)
    whole = trainer.whole_model()
    if torch.distributed.get_rank() == 0:
        trainer.save_final(whole, Path(folder) / "export")


@pytest.mark.slow
def test_sharded_weights_are_trained_and_exported(tmp_path):
    run_in_two_processes("train_sharded", tmp_path)
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    state = load_file(tmp_path / "export" / "model.safetensors")
    before = load_file(tmp_path / "model.safetensors")
    assert state.keys() == before.keys()
    assert all(tensor.dtype == torch.float32 for tensor in state.values())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in state.items())
    assert config["vocab_size"] == len(state["model.encoder.embed_tokens.weight"])
