from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from vanilla_transformer.training.arguments import training_arguments
from vanilla_transformer.training.arguments.run_arguments import parse_recipe
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.precision import computes_bfloat16


@pytest.fixture
def make_arguments(tmp_path):
    return lambda **keys: TranslationTrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to="none", **keys
    )


def test_a_weight_selects_r_drop(make_arguments):
    assert make_arguments().objective == "cross_entropy"
    assert make_arguments(r_drop=5.0).objective == "r_drop"
    assert make_arguments(r_drop=5.0, objective="r_drop").objective == "r_drop"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"objective": "r_dorp"}, r"objective='r_dorp' is unknown \(did you mean 'r_drop'\?\)"),
        ({"objective": "r_drop"}, r"objective='r_drop' and r_drop=0.0 do not go together"),
        ({"r_drop": -1.0}, r"r_drop=-1.0 must not be negative"),
        ({"max_steps": 0}, r"max_steps=0 must be 1 or more, or -1 to count num_train_epochs"),
        ({"max_steps": -2}, r"max_steps=-2 must be 1 or more"),
        ({"max_tokens": 0}, r"max_tokens=0 must be a whole number of 1 or more"),
        ({"bf16_gradients": True}, "in bfloat16 on GPUs only"),
        ({"bf16": "maybe"}, "bf16='maybe' must be true, false or auto"),
        ({"learning_rate": 0}, "learning_rate=0 must be above 0"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0 must be a whole number of 1 or more"),
        ({"fp16": True}, "fp16=True: torch trains in float16 on GPUs only"),
        ({"lr_scheduler_kwargs": "[1]"}, r"lr_scheduler_kwargs='\[1\]' has no names"),
        ({"lr_scheduler_kwargs": "{power"}, r"lr_scheduler_kwargs='{power' is not valid JSON"),
        ({"augmentation": "[1]"}, r"augmentation='\[1\]' has no names"),
    ],
)
def test_a_bad_value_is_named(make_arguments, keys, message):
    with pytest.raises(ValueError, match=message):
        make_arguments(**keys)


def test_names_and_values_may_be_null(make_arguments):
    args = make_arguments(lr_scheduler_kwargs="null", augmentation="null")
    assert args.lr_scheduler_kwargs is None
    assert args.augmentation_rates == {}
    assert make_arguments(lr_scheduler_kwargs='{"power": 1}').lr_scheduler_kwargs == {"power": 1}


def test_bf16_needs_no_further_option_on_a_cpu(tmp_path):
    args = TranslationTrainingArguments(output_dir=str(tmp_path), bf16=True)
    assert args.device.type == "cpu"
    assert not args.use_cpu  # and the recipe does not say so: it may be resumed on a GPU


@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16", None])
def test_auto_is_bfloat16_where_the_cpu_computes_it(tmp_path, monkeypatch, capability):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx2": True} | ({capability: True} if capability else {})
    )
    args = TranslationTrainingArguments(output_dir=str(tmp_path), bf16="auto")
    assert args.bf16 is (capability is not None)
    assert args.precision == ("bfloat16" if capability else "float32")


@pytest.mark.parametrize("computes", [True, False])
def test_auto_does_not_take_a_gpu_that_emulates_bfloat16(monkeypatch, computes):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or computes
    )
    assert computes_bfloat16("cuda") is computes
    assert not computes_bfloat16("mps")


@pytest.mark.parametrize("given", ["tensorboard", ["tensorboard", "other"], ["none"], "none", None])
def test_loggers_are_one_name_or_several(tmp_path, monkeypatch, given):
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "other", TrainerCallback)
    monkeypatch.setitem(training_arguments.LOGGER_PACKAGES, "other", "json")
    args = TranslationTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=given)
    expected = {"tensorboard": ["tensorboard"], "['tensorboard', 'other']": ["tensorboard", "other"]}
    assert args.report_to == expected.get(str(given), [])


def test_several_loggers_on_the_command_line(tmp_path):
    words = ["demo", "--output_dir", str(tmp_path), "--use_cpu", "true", "--report_to", "wandbb", "tensorboard"]
    with pytest.raises(ValueError, match=r"report_to='wandbb' is no logger .*did you mean 'wandb'"):
        parse_recipe("", words)
    with pytest.raises(ValueError, match="report_to=tensorboard none: none turns all loggers off"):
        parse_recipe("", [*words[:-2], "tensorboard", "none"])


def test_a_launcher_that_starts_one_process_of_several_is_refused(make_arguments, monkeypatch):
    """The environment of `accelerate launch --cpu --num_processes 2`."""
    environment = {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"accelerate launch starts only one process on a CPU: .* torchrun"):
        make_arguments()
    monkeypatch.delenv("MASTER_ADDR")
    assert make_arguments().world_size == 1


@pytest.mark.parametrize("name", ["max_grad_norm", "max_ratio", "prefix_drop", "warmup_steps", "rate_factor"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_that_is_none_is_refused(tmp_path, name, number):
    with pytest.raises(ValueError, match=f"{name}={number} is no number that can be computed with"):
        parse_recipe("", ["multi30k_en_de", "--output_dir", str(tmp_path), f"--{name}", number])


@pytest.mark.parametrize(
    ("recipe", "words", "expected"),
    [
        (
            "multi30k_en_de",
            ["--directions", "en-fr", "fr-en"],
            {"directions": ["en-fr", "fr-en"], "source_lang": None},
        ),
        (
            "multi30k_many",
            ["--source_lang", "en", "--target_lang", "de", "--train_files", "x"],
            {"directions": [], "temperature": 1.0},
        ),
        ("multi30k_en_de", ["--rate_factor", "2", "--lr_scheduler_type", "inverse_sqrt"], {"learning_rate": None}),
        ("multi30k_en_de", ["--num_train_epochs", "5"], {"num_train_epochs": 5.0, "max_steps": -1}),
        ("wmt14_en_de_base", ["--gradient_accumulation_steps", "3"], {"gradient_accumulation_steps": 3}),
        ("multi30k_en_de_captions", ["--train_files", "data/x"], {"train_weights": [], "train_files": ["data/x"]}),
    ],
)
def test_an_option_overrides_the_recipe(tmp_path, recipe, words, expected):
    parts = parse_recipe("", [recipe, "--use_cpu", "true", "--output_dir", str(tmp_path), *words])
    for name, value in expected.items():
        assert getattr(next(part for part in parts if hasattr(part, name)), name) == value


def test_options_are_not_abbreviated(tmp_path):
    with pytest.raises(ValueError, match=r"'--output' is not an option \(did you mean 'output_dir'\?\)"):
        parse_recipe("", ["multi30k_en_de", "--output", str(tmp_path)])


def test_a_rank_beyond_the_number_of_processes_is_refused(make_arguments, monkeypatch):
    """It would wait for ever."""
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="RANK=5 and WORLD_SIZE=2 in the environment do not fit"):
        make_arguments()


@pytest.mark.parametrize("model_type", ["vanilla_transformer", "marian", "t5"])
def test_the_papers_rate_follows_the_models_width(make_arguments, model_type):
    config = AutoConfig.for_model(model_type, d_model=64)
    assert make_arguments(warmup_steps=100).rate_for(config) == pytest.approx((64 * 100) ** -0.5)
    assert make_arguments(warmup_steps=100, rate_factor=2.0).rate_for(config) == pytest.approx(2 * (64 * 100) ** -0.5)
    assert make_arguments(learning_rate=1e-3).rate_for(config) == 1e-3


def test_a_config_without_a_width_needs_a_learning_rate(make_arguments):
    config = SimpleNamespace(model_type="no_width")
    with pytest.raises(ValueError, match=r"no_width has no hidden_size.*set learning_rate"):
        make_arguments().rate_for(config)


def test_batches_are_made_in_workers_where_there_is_an_accelerator(make_arguments, monkeypatch):
    arguments = make_arguments()
    assert arguments.loader_options["num_workers"] == 0
    monkeypatch.setattr(type(arguments), "device", torch.device("cuda"))
    assert arguments.loader_options["num_workers"] == 2
    arguments.dataloader_num_workers = 0
    assert arguments.loader_options["num_workers"] == 0
