"""An update on the meta device, which has no numbers: whatever the host would wait for is an error there."""

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from vanilla_transformer import MaskPredictConfig, VanillaTransformerConfig
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.reports.device_costs import Count, shape_of_model
from vanilla_transformer.training.trainer import TranslationTrainer


SIZE = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}


class OnMeta(TranslationTrainingArguments):
    """Trains on the meta device."""

    @property
    def device(self) -> torch.device:
        assert super().device.type == "cpu"  # sets up the process group
        return torch.device("meta")


class EnoughError(Exception):
    """Ends a training before its last lines, which read the loss."""


class StopAfter(TrainerCallback):
    def __init__(self, updates: int):
        self.updates = updates

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.updates:
            raise EnoughError


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a b c d e f g h"], vocab_size=270, min_frequency=1, show_progress=False)


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (VanillaTransformerConfig, {}),
        (VanillaTransformerConfig, {"r_drop": 5.0}),
        (VanillaTransformerConfig, {"max_grad_norm": 1.0}),
        (MaskPredictConfig, {"objective": "uniform_masking"}),
        (MaskPredictConfig, {"objective": "glancing"}),
    ],
    ids=["cross_entropy", "r_drop", "clipped", "uniform_masking", "glancing"],
)
def test_updates_wait_for_nothing(tokenizer, tmp_path, monkeypatch, config, keys):
    """Three updates of two batches each, some of them padded, through the trainer."""
    texts = ["a b c", "d e", "f g h a b c d", "b", "c d e f", "h g f e", "a a", "b c d"] * 4
    pairs = Dataset.from_list([dict(tokenizer(text, text_target=text)) for text in texts])
    args = OnMeta(
        output_dir=str(tmp_path),
        use_cpu=True,
        report_to="none",
        max_steps=10,
        max_tokens=32,
        gradient_accumulation_steps=2,
        logging_steps=100,
        optim="adamw_torch",  # a fused one does not know the meta device
        eval_strategy="no",
        save_strategy="no",
        **keys,
    )
    args.accelerator_config.non_blocking = True  # as for a GPU, which has pinned memory
    model = shape_of_model(config(vocab_size=len(tokenizer), **SIZE))
    trainer = TranslationTrainer(
        model, args, processing_class=tokenizer, train_dataset=pairs, callbacks=[StopAfter(3)]
    )
    monkeypatch.setattr(type(trainer.accelerator), "device", torch.device("meta"))
    with Count("meta") as count, pytest.raises(EnoughError):
        trainer.train()
    assert count.kernels > 100
    assert {name: number for name, number in count.waits.items() if number} == {}
