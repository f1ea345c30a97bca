"""Fine-tuning in the way of the library's examples/pytorch/translation, written anew: with `Seq2SeqTrainer`, and with
a plain loop on Accelerate. With the package and without it, the BLEU is the same.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from vanilla_transformer import Translator
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.hub.loading import load_model, load_tokenizers


DATA = Path(__file__).parent / "data"
SCRIPT = """
import json, os, sys
model_path, data, output, has_package = sys.argv[1:]
if has_package == "no":
    sys.modules["vanilla_transformer"] = None
else:
    import vanilla_transformer
import numpy as np, sacrebleu, torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, Seq2SeqTrainer
from transformers import Seq2SeqTrainingArguments, get_scheduler
remote = {"trust_remote_code": True} if has_package == "no" else {}
tokenizer = AutoTokenizer.from_pretrained(model_path, **remote)
sides = [open(f"{data}/captions.{code}", encoding="utf-8").read().splitlines() for code in ("en", "de")]
pairs = Dataset.from_dict(dict(zip(("en", "de"), sides))).map(
    lambda batch: tokenizer(batch["en"], text_target=batch["de"], max_length=64, truncation=True),
    batched=True, remove_columns=["en", "de"],
)
# Sixteen: of a number that two processes can't share evenly, the library's trainer would count some twice.
train, validation = pairs.select(range(32)), pairs.select(range(32, 48))
decoding = {"max_length": 64, "num_beams": 3}

def bleu(predicted, labels):
    texts = [
        tokenizer.batch_decode(np.where(ids < 0, tokenizer.pad_token_id, ids), skip_special_tokens=True)
        for ids in (predicted, labels)
    ]
    return sacrebleu.corpus_bleu(texts[0], [texts[1]]).score

def with_trainer(model):
    args = Seq2SeqTrainingArguments(
        f"{output}/run", max_steps=4, learning_rate=3e-3, per_device_train_batch_size=8, predict_with_generate=True,
        per_device_eval_batch_size=8, use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True, seed=2,
    )
    trainer = Seq2SeqTrainer(
        model, args, train_dataset=train, eval_dataset=validation, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=lambda prediction: {"bleu": bleu(prediction.predictions, prediction.label_ids)},
    )
    trainer.train()
    found = trainer.evaluate(**decoding)["eval_bleu"]
    trainer.save_model(f"{output}/trainer")
    return found

def with_loop(model):
    accelerator = Accelerator(cpu=True)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    batches = {"batch_size": 8, "collate_fn": collator}
    loaders = [DataLoader(train, shuffle=True, **batches), DataLoader(validation, **batches)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=4)
    model, optimizer, schedule, loader, eval_loader = accelerator.prepare(model, optimizer, schedule, *loaders)
    model.train()
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    plain = accelerator.unwrap_model(model).eval()
    predicted, references = [], []
    for batch in eval_loader:
        ids = plain.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **decoding)
        ids = accelerator.pad_across_processes(ids, dim=1, pad_index=tokenizer.pad_token_id)
        labels = accelerator.pad_across_processes(batch["labels"], dim=1, pad_index=-100)
        for rows, kept in zip(accelerator.gather_for_metrics((ids, labels)), (predicted, references)):
            kept.extend(rows.tolist())
    assert len(predicted) == len(validation)
    array = lambda rows: np.array([row + [-100] * (99 - len(row)) for row in rows])
    if accelerator.is_main_process:
        plain.save_pretrained(f"{output}/loop")
        tokenizer.save_pretrained(f"{output}/loop")
    accelerator.wait_for_everyone()
    return bleu(array(predicted), array(references))

found = {}
for name, road in {"trainer": with_trainer, "loop": with_loop}.items():
    set_seed(2)
    found[name] = road(AutoModelForSeq2SeqLM.from_pretrained(model_path, **remote))
if int(os.environ.get("RANK", 0)) == 0:
    print(json.dumps(found))
"""


def fine_tune(model: Path, output: Path, *, package: bool, processes: int) -> dict[str, float]:
    """The BLEU of each road."""
    output.mkdir()
    (output / "script.py").write_text(SCRIPT)
    launch = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)] if processes > 1 else []
    )
    words = [str(model), str(DATA), str(output), "yes" if package else "no"]
    settings = {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(output / "code"), "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [sys.executable, *launch, str(output / "script.py"), *words],
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, cwd="/", timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_librarys_examples_give_the_same_bleu_with_and_without_the_package(tmp_path, processes):
    model, tokenizer = load_model("multi30k-en-de-tiny"), load_tokenizers("multi30k-en-de-tiny")[0]
    exported = tmp_path / "model"
    export(model, exported, tokenizer, card="# model")
    found = fine_tune(exported, tmp_path / "with", package=True, processes=processes)
    assert fine_tune(exported, tmp_path / "without", package=False, processes=processes) == found
    english, german = ((DATA / f"captions.{code}").read_text().splitlines()[32:48] for code in ("en", "de"))
    labels = tokenizer(text_target=german)["input_ids"]
    references = tokenizer.batch_decode(labels, skip_special_tokens=True)  # as those examples have them
    before = Translator(model, tokenizer)(english, num_beams=3)
    for road, bleu in found.items():
        for folder in ("with", "without"):
            texts = Translator.from_pretrained(tmp_path / folder / road)(english, num_beams=3)
            assert sacrebleu.corpus_bleu(texts, [references]).score == pytest.approx(bleu, abs=1e-6)
            assert texts != before  # it has learned something, so that the comparison means something
        assert bleu > 10
