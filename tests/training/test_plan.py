"""vanilla plan: what it counts, beside formulas and a real update; what it refuses."""

import os
import subprocess
import sys

import pytest
import torch

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.training import plan as plan_script
from vanilla_transformer.training.plan import flops_by_formula
from vanilla_transformer.training.reports.device_costs import costs_of_update, shape_of_batch, shape_of_model


def planned(words: list[str], capsys) -> dict[str, str]:
    plan_script.main(words)
    rows = (line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    return {name: content.strip() for name, content in rows}


def test_a_recipe_for_gpus_is_planned_without_one(recipe, capsys):
    keys = {"bf16": True, "use_cpu": False, "max_tokens": 128, "tokens_per_update": 1024, "save_total_limit": 2}
    rows = planned([*recipe(**keys), "--processes", "4", "--tflops", "10", "--utilisation", "0.5"], capsys)
    assert rows["update"] == "8 batches of at most 128 + 128 tokens: 2 for each of 4 process(es)"
    assert "the first pair of every file was read" in rows["text"]
    assert "(bfloat16)" in rows["memory of a process"]
    flops = float(rows["FLOPs of an update"].split()[0])
    hours = flops * 12 / (4 * 10e12 * 0.5) / 3600
    assert rows["time"].startswith(f"{hours:.1f} hours at 50% of 10 TFLOPS")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "3", "--tokens_per_update", "1024"], "can't be shared by 3 process"),
        (["--processes", "0"], "processes=0 must be above 0"),
        (["--train_files", "nowhere/train"], "There is no file 'nowhere/train'"),
        (["--test_measures", "blue"], "There is no measure 'blue'"),
        (["--processes", "1000001"], "processes=1000001 must be at most 1,000,000"),
        (["--sentence_tokens", "1000000000"], "sentence_tokens=1000000000 must be at most 10,000"),
        (["--max_tokens", "100000000000"], "max_tokens=100000000000 must be at most 10,000,000"),
        (["--vocab_size", str(2**63)], "vocab_size=9223372036854775808 is no number"),
        (["--vocab_size", str(10**12)], "vocab_size=1000000000000 must be at most 10,000,000"),
        (["--tflops", "nan"], "tflops=nan is no number that can be computed with"),
        (["--utilisation", "inf"], "utilisation=inf is no number"),
        (["--model_config", '{"d_model": 4000000000000}'], "d_model=4000000000000 is more than any model has"),
        (["--model_config", '{"encoder_layers": 100000}'], "encoder_layers=100000 is more than any model has"),
    ],
)
def test_what_would_fail_later_is_refused(recipe, words, message):
    with pytest.raises(SystemExit, match=message):
        plan_script.main([*recipe(max_tokens=128), *words])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("preset", ["base", "A-h32", "B-dk16", "C-N2", "tiny"])
def test_counted_flops_are_those_of_the_formula(preset, dtype):
    config = VanillaTransformerConfig.from_preset(preset, vocab_size=5000)
    counted = costs_of_update(shape_of_model(config), shape_of_batch(8, 20, 30), dtype=dtype).flops
    assert counted == pytest.approx(flops_by_formula(config, 8, 20, 30), rel=0.02)


UPDATE = """
import psutil, threading, time, torch
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.reports.device_costs import (
    CROSS_ENTROPY,
    costs_of_update,
    shape_of_batch,
    shape_of_model,
)

config = VanillaTransformerConfig()
rows, length = 104, 30
model, batch = shape_of_model(config), shape_of_batch(rows, length, length)
counted = costs_of_update(model, batch, dtype=torch.float32, device="cpu").peak_memory
process = psutil.Process()
before = process.memory_info().rss
peak = [0]

def watch():
    while True:
        peak[0] = max(peak[0], process.memory_info().rss - before)
        time.sleep(0.002)

model = VanillaTransformerForConditionalGeneration(config).train()
optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0, fused=True)
ids, labels = (torch.randint(4, config.vocab_size, (rows, length)) for _ in range(2))
for update in range(2):
    if update:
        threading.Thread(target=watch, daemon=True).start()
    CROSS_ENTROPY(model, {"input_ids": ids, "labels": labels}, labels.numel()).backward()
    optimizer.step()
    optimizer.zero_grad()
print(counted, peak[0])
"""


@pytest.mark.slow
def test_counted_memory_is_that_of_a_real_update():
    # The allocator gives freed memory back at once, so that the process has what its tensors have.
    allocator = {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", UPDATE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **allocator, "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    counted, measured = map(int, done.stdout.split())
    assert counted == pytest.approx(measured, rel=0.15)
