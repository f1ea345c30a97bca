"""`TranslationTrainer` and the stock trainer learn; the trainer scales its objective as the library does."""

import inspect

import peft
import pytest
import torch
from accelerate.utils import DDPCommunicationHookType
from datasets import Dataset
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
)
from transformers.utils import logging

from tests.training.runs import reversal_data
from vanilla_transformer import (
    RnnSearchConfig,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.data.demo_corpus import demo_corpus
from vanilla_transformer.training.data.tokenized_pairs import tokenize
from vanilla_transformer.training.trainer import TranslationTrainer


@pytest.mark.slow
def test_reversal_is_learned_to_the_last_token(tmp_path):
    torch.manual_seed(1)
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=260, d_model=64, encoder_layers=2, decoder_layers=2, dropout=0.0, label_smoothing=0.0
    )
    model = VanillaTransformerForConditionalGeneration(config)
    args = TranslationTrainingArguments(
        output_dir=str(tmp_path), max_steps=1400, warmup_steps=300, learning_rate=3e-3, max_tokens=512,
        lr_scheduler_type="linear", save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none", seed=1,
    )  # fmt: skip
    trainer = TranslationTrainer(
        model, args, processing_class=tokenizer, train_dataset=Dataset.from_list(reversal_data(4000))
    )
    trainer.train()
    unseen = reversal_data(4200)[4000:]
    batch = tokenizer.pad({"input_ids": [pair["input_ids"] for pair in unseen]}, return_tensors="pt")
    outputs = model.eval().generate(**batch, max_new_tokens=12).tolist()
    for output, pair in zip(outputs, unseen, strict=True):
        assert output[1 : 1 + len(pair["labels"])] == pair["labels"]


@pytest.mark.parametrize(
    "config",
    [
        VanillaTransformerConfig.from_preset("tiny", vocab_size=260, encoder_layers=1, decoder_layers=1),
        RnnSearchConfig(vocab_size=260, embedding_size=32, hidden_size=32, attention_size=32),
        RnnSearchConfig(vocab_size=260, embedding_size=32, hidden_size=32, attention="none"),
    ],
    ids=["vanilla_transformer", "rnn_search", "rnn_search_fixed_context"],
)
def test_the_stock_trainer_trains_our_models_untouched(tmp_path, config):
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    model = AutoModelForSeq2SeqLM.from_config(config)
    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), max_steps=30, per_device_train_batch_size=32, learning_rate=1e-3, use_cpu=True,
        label_smoothing_factor=0.1, predict_with_generate=True, train_sampling_strategy="group_by_length",
        gradient_accumulation_steps=2, logging_steps=5, eval_strategy="steps", eval_steps=15, report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model, args=args, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        train_dataset=Dataset.from_list(reversal_data(600)), eval_dataset=Dataset.from_list(reversal_data(20)),
    )  # fmt: skip
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged[-1] < logged[0] < 8
    assert trainer.predict(Dataset.from_list(reversal_data(4))).predictions.shape[0] == 4


@pytest.mark.slow
def test_sixty_four_pairs_are_learned_by_heart(tmp_path):
    pairs = [{"source": pair["en"], "target": pair["de"]} for pair in demo_corpus("validation", 64)]
    tokenizer = train_tokenizer(
        [text for pair in pairs for text in pair.values()], vocab_size=500, show_progress=False
    )
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset(
            "tiny",
            vocab_size=500,
            encoder_layers=2,
            decoder_layers=2,
            dropout=0.0,
            label_smoothing=0.0,
            initializer_gain=1.0,
        )
    )
    args = TranslationTrainingArguments(
        output_dir=str(tmp_path), max_steps=150, warmup_steps=50, rate_factor=0.3, max_tokens=2000,
        save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none",
    )  # fmt: skip
    dataset = tokenize(Dataset.from_list(pairs), tokenizer, keep_text=True)
    trainer = TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=dataset, eval_dataset=dataset)
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] < 0.1
    assert metrics["eval_bleu"] > 95


def small_models():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "vocab_size": 260, "decoder_start_token_id": 1}
    sizes |= {"pad_token_id": 0, "eos_token_id": 2, "dropout": 0.0}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32}
    t5 = {"num_layers": 1, "d_kv": 16, "num_heads": 2, "d_ff": 64, "dropout_rate": 0.0}
    return {
        "vanilla_transformer": AutoConfig.for_model("vanilla_transformer", **sizes, label_smoothing=0.2),
        "marian": AutoConfig.for_model("marian", **sizes, **heads, label_smoothing=0.2),
        "t5": AutoConfig.for_model("t5", **{**sizes, **t5}, label_smoothing=0.2),
    }


@pytest.mark.parametrize("model_type", ["vanilla_transformer", "marian", "t5"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_gradient_of_an_update_is_that_of_its_mean_loss_per_token(tmp_path, model_type, accumulation):
    """The library's trainer gives models that ignore `num_items_in_batch` wrong gradients; ours does not."""
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    model = AutoModelForSeq2SeqLM.from_config(small_models()[model_type])
    args = TranslationTrainingArguments(
        output_dir=str(tmp_path), max_steps=1, warmup_steps=1, max_tokens=200 // accumulation, save_strategy="no",
        gradient_accumulation_steps=accumulation, use_cpu=True, disable_tqdm=True, report_to="none",
    )  # fmt: skip
    pairs = reversal_data(14)
    trainer = TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=Dataset.from_list(pairs))
    gradients = {}

    def keep_gradients(optimizer, *_):
        gradients.update({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})

    trainer.create_optimizer_and_scheduler(1)
    trainer.optimizer.register_step_pre_hook(keep_gradients)
    model.train()
    logits_of = {**trainer.data_collator(pairs)}
    labels = logits_of.pop("labels")
    loss = LabelSmoothedCrossEntropy(0.2).of_logits(model(**logits_of).logits, labels)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    trainer.train()
    assert len(trainer.sampler) == accumulation
    assert trainer.state.log_history[-1]["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)


def test_prediction_has_logits_and_the_models_own_loss(tmp_path, make_model):
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    model = AutoModelForSeq2SeqLM.from_config(small_models()["vanilla_transformer"]).eval()
    args = TranslationTrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to="none", objective="r_drop", r_drop=5.0
    )
    trainer = TranslationTrainer(model, args, processing_class=tokenizer)
    batch = trainer.data_collator(reversal_data(3))
    loss, outputs = trainer.compute_loss(model, dict(batch), return_outputs=True, num_items_in_batch=7)
    assert_close(loss, model(**batch).loss)
    assert outputs.logits.shape[0] == 3


@pytest.mark.parametrize("model_type", ["marian", "t5"])
def test_other_architectures_are_evaluated(tmp_path, model_type):
    pairs = [{"source": pair["en"], "target": pair["de"]} for pair in demo_corpus("validation", 4)]
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    model = AutoModelForSeq2SeqLM.from_config(small_models()[model_type])
    dataset = tokenize(Dataset.from_list(pairs), tokenizer, keep_text=True)
    args = TranslationTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", eval_beams=2)
    if model_type == "marian":  # longer sources than its positions reach are cut for translation, not for the loss
        dataset = dataset.map(lambda pair: {name: pair[name][:30] for name in ("input_ids", "labels")})
    metrics = TranslationTrainer(model, args, processing_class=tokenizer, eval_dataset=dataset).evaluate()
    assert 4 < metrics["eval_loss"] < 30
    assert metrics["eval_bleu"] >= 0


def test_the_overridden_private_methods_are_still_the_librarys():
    """A method that the library renames, no longer calls or gives other arguments would silently do nothing."""
    source = inspect.getsource(Trainer)
    overridden = [name for name in vars(TranslationTrainer) if name.startswith("_") and hasattr(Seq2SeqTrainer, name)]
    private = {name for name in overridden if not name.startswith("__")}
    assert private == {"_save_checkpoint", "_track_num_input_tokens", "_issue_warnings_after_load"}
    for name in private:
        ours, librarys = (inspect.signature(getattr(owner, name)) for owner in (TranslationTrainer, Trainer))
        assert list(ours.parameters) == list(librarys.parameters)
        assert f"self.{name}(" in source


def test_gradients_are_exchanged_in_bfloat16_if_the_recipe_says_so(tmp_path, pairs):
    args = make_arguments(tmp_path)
    args.bf16_gradients = True  # refused in recipes for a CPU
    trainer = TranslationTrainer(new_model(), args, processing_class=pairs[0])
    assert trainer.accelerator.ddp_handler.comm_hook == DDPCommunicationHookType.BF16


def test_tied_weights_are_not_reported_as_missing_after_a_resume(tmp_path, pairs, caplog):
    tokenizer, data = pairs
    arguments = {"processing_class": tokenizer, "train_dataset": data}
    TranslationTrainer(new_model(), make_arguments(tmp_path, save_strategy="steps", save_steps=3), **arguments).train()
    trainer = TranslationTrainer(new_model(), make_arguments(tmp_path, max_steps=4), **arguments)
    logging.enable_propagation()
    try:
        trainer.train("last")
    finally:
        logging.disable_propagation()
    assert trainer.state.global_step == 4
    assert trainer.model.all_tied_weights_keys
    assert "missing keys" not in caplog.text


# --- what the library's trainer takes ---


@pytest.fixture(scope="module")
def pairs():
    """A tokenizer, and pairs with and without their text."""
    tokenizer = train_tokenizer(["a b c"], vocab_size=260, show_progress=False)
    text = Dataset.from_list([{"source": letters, "target": letters[::-1]} for letters in ("ab", "abc", "cab") * 8])
    return tokenizer, tokenize(text, tokenizer, keep_text=True)


def new_model(trial=None):
    """A small model; a trial of a hyperparameter search may choose its dropout."""
    dropout = trial.suggest_float("dropout", 0.1, 0.3) if trial is not None else 0.0
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=260, d_model=32, encoder_layers=1, decoder_layers=1, dropout=dropout
    )
    return VanillaTransformerForConditionalGeneration(config)


def make_arguments(folder, **keys):
    defaults = {"max_steps": 3, "warmup_steps": 2, "max_tokens": 64, "save_strategy": "no", "use_cpu": True}
    return TranslationTrainingArguments(
        output_dir=str(folder), disable_tqdm=True, report_to="none", **{**defaults, **keys}
    )


def test_optuna_searches_hyperparameters_for_the_best_bleu(tmp_path, pairs):
    tokenizer, data = pairs
    seen = []

    def space(trial):
        return {"warmup_steps": trial.suggest_int("warmup_steps", 2, 50)}

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            seen.append((model.config.dropout, args.warmup_steps, args.learning_rate))

    trainer = TranslationTrainer(
        args=make_arguments(tmp_path, eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=3),
        model_init=new_model, processing_class=tokenizer, train_dataset=data, eval_dataset=data, callbacks=[Watch()],
    )  # fmt: skip
    best = trainer.hyperparameter_search(space, n_trials=2)
    assert best.objective >= 0
    assert len({dropout for dropout, _, _ in seen}) == 2
    for _, warmup, rate in seen:  # the paper's rate follows the warm-up of each trial
        assert rate == pytest.approx((32 * warmup) ** -0.5)
    assert {path.name for path in tmp_path.glob("run-*")} == {"run-0", "run-1"}
    assert all((folder / "checkpoint-3" / "complete").is_file() for folder in tmp_path.glob("run-*"))


def test_what_is_saved_decodes_as_it_was_evaluated(tmp_path, pairs):
    """The model's generation config says nothing of a search, or that it samples."""
    tokenizer, data = pairs
    model = new_model()
    model.generation_config.update(do_sample=True, temperature=0.7)
    args = make_arguments(tmp_path, save_strategy="steps", save_steps=3)
    trainer = TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=data)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    texts = ["ab", "cab", "abc"]
    for name in ("checkpoint-3", "saved"):
        saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name)
        assert saved.generation_config.search == "vanilla_beam_search"
        generated = saved.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
        assert tokenizer.batch_decode(generated, skip_special_tokens=True) == trainer.evaluator.translate(saved, texts)


def test_only_the_adapter_of_a_lora_model_is_trained(tmp_path, pairs):
    tokenizer, data = pairs
    base = new_model()
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj", "v_proj"]))
    trainer = TranslationTrainer(
        model, make_arguments(tmp_path, learning_rate=0.01), processing_class=tokenizer, train_dataset=data
    )
    trainer.train()
    assert trainer.evaluate(data)["eval_bleu"] >= 0
    trainer.save_model(str(tmp_path / "adapter"))
    loaded = peft.PeftModel.from_pretrained(new_model(), str(tmp_path / "adapter"))
    changed = {name: tensor for name, tensor in loaded.state_dict().items() if "lora_B" in name}
    assert changed
    assert all(tensor.abs().sum() > 0 for tensor in changed.values())
    for name, tensor in base.state_dict().items():
        if "lora" not in name:
            assert torch.equal(tensor, before[name.replace(".base_layer", "")]), name


def test_arguments_of_the_librarys_trainer_are_honoured_or_refused(tmp_path, pairs):
    tokenizer, data = pairs
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = TranslationTrainer(
        model, make_arguments(tmp_path), train_dataset=data, eval_dataset={"one": data, "two": data},
        processing_class=tokenizer, optimizers=(optimizer, schedule),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=8),
        compute_metrics=lambda prediction: {"references": float((prediction.label_ids >= 0).sum())},
    )  # fmt: skip
    output = trainer.train()
    assert trainer.optimizer.optimizer is optimizer
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["input_ids"].shape[1] == 8
    metrics = trainer.evaluate()
    assert {"eval_one_bleu", "eval_two_bleu", "eval_one_loss"} <= metrics.keys()
    assert metrics["eval_one_references"] == sum(map(len, data["labels"]))
    pairs_seen = output.metrics["train_samples_per_second"] * output.metrics["train_runtime"]
    assert pairs_seen == pytest.approx(trainer._pairs_trained, rel=0.05)
    for name in ("compute_loss_func", "preprocess_logits_for_metrics"):  # they would have no effect
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            TranslationTrainer(model, make_arguments(tmp_path), processing_class=tokenizer, **{name: print})
    with pytest.raises(ValueError, match="train_sampling_strategy is for the stock trainer: here set nothing"):
        make_arguments(tmp_path, train_sampling_strategy="group_by_length")
