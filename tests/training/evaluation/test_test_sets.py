"""One decode path and one metric: in the trainer, in `vanilla evaluate`, and in the library's stock trainer."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.testing import assert_close
from transformers import (
    DataCollatorForSeq2Seq,
    EvalPrediction,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from tests.training.runs import reversal_data
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.scripts import evaluate_bleu
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.evaluation import test_sets as evaluation
from vanilla_transformer.training.evaluation.metrics import bleu, measure
from vanilla_transformer.training.evaluation.test_sets import (
    batches_by_length,
    compute_metrics,
    score_texts,
    sum_of_losses,
    translate_texts,
)


TEXTS = ["a b c", "", "b", "c d e f a b", "a a a"]


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(3)
    tokenizer = train_tokenizer(["a b c d e f"], vocab_size=270, min_frequency=1, show_progress=False)
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=16, encoder_layers=1)
    model = VanillaTransformerForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # so that texts have different translations
    return Translator(model, tokenizer)


# --- loss ---


def test_the_loss_does_not_depend_on_batches_or_processes(make_model):
    model = make_model()
    pairs = Dataset.from_list(reversal_data(20))
    collator = DataCollatorForSeq2Seq(train_tokenizer(["a"], vocab_size=260, show_progress=False), model=model)

    def total(max_tokens, world_size=1):
        shares = [batches_by_length(pairs, max_tokens, rank, world_size) for rank in range(world_size)]
        sums = [
            sum_of_losses(model, (collator([pairs[i] for i in batch]) for batch in share), torch.device("cpu"))
            for share in shares
        ]
        return torch.stack(sums).sum(0)

    expected = total(10_000)
    assert expected[1] == sum(len(pair["labels"]) for pair in pairs)
    for options in ({"max_tokens": 1}, {"max_tokens": 30}, {"max_tokens": 30, "world_size": 3}):
        assert_close(total(**options), expected, rtol=1e-5, atol=0.0)


# --- translations ---


def test_translations_are_the_translators_on_one_line_each(translator, monkeypatch):
    expected = translator(TEXTS, num_beams=2)
    assert len(set(expected)) > 2
    assert translate_texts(translator, TEXTS, num_beams=2) == [text.replace("\n", " ") for text in expected]
    assert translate_texts(translator, []) == []
    monkeypatch.setattr(Translator, "__call__", lambda self, texts, **_: ["one\r\ntwo" for _ in texts])
    assert translate_texts(translator, TEXTS) == ["one two"] * len(TEXTS)


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_processes_share_the_texts_and_get_all_translations_in_order(translator, monkeypatch, world_size):
    shares = []
    monkeypatch.setattr(evaluation, "gather_object", lambda share: shares.append(share) or share)
    for rank in range(world_size):
        translate_texts(translator, TEXTS, rank=rank, world_size=world_size)
    assert sorted(index for share in shares for index, _ in share) == list(range(len(TEXTS)))
    joined = [pair for share in shares for pair in share]
    monkeypatch.setattr(evaluation, "gather_object", lambda share: joined)
    assert translate_texts(translator, TEXTS, rank=0, world_size=world_size) == translate_texts(translator, TEXTS)


def test_the_script_finds_the_bleu_and_the_translations_of_the_run(recipe, tmp_path):
    train_script.main(recipe(max_steps=40, rate_factor=1.0, eval_strategy="no", num_beams=3, length_penalty=1.1))
    run = tmp_path / "run"
    expected = json.loads((run / "results.json").read_text())["validation"]
    words = ["--test_files", str(tmp_path / "pairs1"), "--output_dir", str(tmp_path / "evaluation")]
    evaluate_bleu.main(["--model", str(run / "model"), *words])
    results = json.loads((tmp_path / "evaluation" / "results.json").read_text())
    assert results["sacrebleu"] == expected["sacrebleu"]
    translations = (tmp_path / "evaluation" / "hypotheses.txt").read_text().splitlines()
    assert [" ".join(line.split()) for line in translations] == (
        run / "validation.hypotheses.txt"
    ).read_text().splitlines()


# --- scores ---


HYPOTHESES = ["die Katze schläft hier", "ein Hund läuft im Park", "sie singen"]
REFERENCES = ["die Katze schläft hier", "ein Hund rennt im Park", "sie singen laut"]


def test_a_tokenisation_without_its_package_is_refused(monkeypatch):
    monkeypatch.setattr(evaluation, "find_spec", lambda name: None)
    for given, language, extra in [("ja-mecab", "en", "ja"), ("auto", "ja", "ja"), ("ko-mecab", None, "ko")]:
        with pytest.raises(ValueError, match=rf"needs words that MeCab finds: pip install 'sacrebleu\[{extra}\]'"):
            evaluation.sacrebleu_tokens(language, given)
    assert evaluation.sacrebleu_tokens("zh") == "zh"
    assert evaluation.sacrebleu_tokens("ja", "char") == "char"


def test_scores_are_those_of_the_measures():
    assert score_texts(HYPOTHESES, REFERENCES, names=["sacrebleu"]) == {
        "sacrebleu": bleu(HYPOTHESES, REFERENCES)._asdict()
    }
    expected = measure(HYPOTHESES, REFERENCES, tokenized=True)
    assert score_texts(HYPOTHESES, REFERENCES, tokenized=True) == {
        name: figure._asdict() for name, figure in expected.items()
    }


def test_the_random_state_of_training_is_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    score_texts(HYPOTHESES, REFERENCES, names=["sacrebleu"])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_compute_metrics_decodes_predictions_and_labels():
    tokenizer = train_tokenizer(HYPOTHESES, vocab_size=290, min_frequency=1, show_progress=False)
    ids = [tokenizer(text)["input_ids"] for text in HYPOTHESES]
    labels = [tokenizer(text_target=text)["input_ids"] for text in REFERENCES]

    def padded(rows):
        longest = max(map(len, rows))
        return np.array([[*row, *[-100] * (longest - len(row))] for row in rows])

    compute = compute_metrics(tokenizer, names=("sacrebleu", "chrf"))
    scores = compute(EvalPrediction(predictions=padded(ids), label_ids=padded(labels)))
    expected = measure(HYPOTHESES, REFERENCES, names=("sacrebleu", "chrf"))
    assert scores == {name: figure.score for name, figure in expected.items()}


def test_compute_metrics_serves_the_stock_trainer(translator, tmp_path):
    tokenizer, model = translator.tokenizer, translator.model
    pairs = [{"source": text, "target": text[::-1]} for text in TEXTS if text]
    rows = [tokenizer(pair["source"], text_target=pair["target"]) for pair in pairs]
    dataset = Dataset.from_list([{name: row[name] for name in ("input_ids", "labels")} for row in rows])
    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, predict_with_generate=True, report_to="none", disable_tqdm=True,
        generation_num_beams=1, generation_max_length=20,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model, args=args, processing_class=tokenizer, eval_dataset=dataset,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), compute_metrics=compute_metrics(tokenizer),
    )  # fmt: skip
    metrics = trainer.evaluate()
    batch = tokenizer.pad({"input_ids": dataset["input_ids"][:]}, return_tensors="pt")
    output = model.generate(**batch, num_beams=1, max_length=20)
    texts = tokenizer.batch_decode(output, skip_special_tokens=True)
    expected = bleu([text.replace("\n", " ") for text in texts], [pair["target"] for pair in pairs])
    assert metrics["eval_sacrebleu"] == pytest.approx(expected.score)
