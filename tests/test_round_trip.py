"""Whatever is saved loads anywhere: exported, fine-tuned with the package, fine-tuned without it, and loaded again.

Each step is a process of its own. `generate` gives the same translations on every road.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, pipeline

from vanilla_transformer import (
    MaskPredictConfig,
    MaskPredictForConditionalGeneration,
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    Translator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.models.searches import store_options
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_mask_token


MODELS = Path(__file__).parent.parent / "vanilla_transformer" / "models"
ANNEXES = (
    *("window_attention", "longformer_attention", "lsh_attention", "reversible_layers"),
    *("position_variants", "attention_scores"),
)
TEXTS = ["The cat sleeps.", "A dog runs in the garden and the cat sleeps there.", "A dog."]
SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}


def transformer(tokenizer, **fields):
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), **SIZES, **fields)
    return VanillaTransformerForConditionalGeneration(config)


def recurrent(tokenizer):
    widths = {"embedding_size": 12, "hidden_size": 12, "attention_size": 12, "readout_size": 12}
    return RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=len(tokenizer), **widths))


def mask_predict(tokenizer):
    config = MaskPredictConfig.from_preset(
        "tiny", vocab_size=len(tokenizer), mask_token_id=tokenizer.convert_tokens_to_ids("<mask>"), **SIZES
    )
    return MaskPredictForConditionalGeneration(config)


MAKERS = {
    "transformer": transformer,
    "rnn": recurrent,
    "mask_predict": mask_predict,
    "window": lambda tokenizer: transformer(tokenizer, attention_pattern="window", attention_window=4),
    "longformer": lambda tokenizer: transformer(tokenizer, attention_pattern="longformer", attention_window=4),
    "lsh": lambda tokenizer: transformer(tokenizer, attention_pattern="lsh", lsh_bucket_length=4),
    "reversible": lambda tokenizer: transformer(tokenizer, norm_placement="reversible"),
    "several variants": lambda tokenizer: transformer(
        tokenizer,
        attention_pattern="window",
        attention_window=4,
        norm_placement="reversible",
        position_encoding="relative",
        score_function="additive",
    ),
}


def made(name: str):
    """A model whose random weights are large enough for translations of several lengths, and its tokenizer."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)
    tokenizer = with_mask_token(tokenizer) if name == "mask_predict" else tokenizer
    torch.manual_seed(1)
    model = MAKERS[name](tokenizer).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model, tokenizer


# Loads every model of a folder, prints its translations, fine-tunes it in the stock trainer and saves it. Without the
# package there is only what the folder carries.
STEP = """
import json, os, sys
before, after, has_package, *names = sys.argv[1:]
if has_package == "no":
    sys.modules["vanilla_transformer"] = None
else:
    import vanilla_transformer
from datasets import Dataset
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForTextEncoding, AutoTokenizer
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
remote = {"trust_remote_code": True} if has_package == "no" else {}
texts = json.load(sys.stdin)
translations = {"before": {}, "after": {}}
for name in names:
    folder = os.path.join(before, name)
    assert AutoConfig.from_pretrained(folder, **remote).is_encoder_decoder
    if name != "rnn":
        AutoModelForTextEncoding.from_pretrained(folder, **remote)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, **remote)
    tokenizer = AutoTokenizer.from_pretrained(folder, **remote)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    translations["before"][name] = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
    if after == "none":
        continue
    pairs = Dataset.from_list([dict(tokenizer(text, text_target=text[::-1])) for text in texts * 4])
    args = Seq2SeqTrainingArguments(
        os.path.join(after, "run"), max_steps=3, use_cpu=True, predict_with_generate=True, learning_rate=0.01,
        save_strategy="no", seed=3,
    )
    trainer = Seq2SeqTrainer(
        model, args, train_dataset=pairs, eval_dataset=pairs.select(range(3)), processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )
    trainer.train()
    predicted = trainer.predict(pairs.select(range(3))).predictions
    trainer.save_model(os.path.join(after, name))
    outputs = model.eval().generate(**batch)
    translations["after"][name] = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    assert tokenizer.batch_decode(predicted, skip_special_tokens=True) == translations["after"][name], name
print(json.dumps(translations))
"""


def step(before: Path, after: Path | str, *, package: bool, cache: Path) -> dict[str, dict[str, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(before), str(after), "yes" if package else "no", *MAKERS],
        input=json.dumps(TEXTS),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(cache)},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def points_at_code_exactly_if_it_has_it(folder: Path) -> bool:
    config = json.loads((folder / "config.json").read_text())
    files = {f"{reference.split('.')[0]}.py" for reference in config.get("auto_map", {}).values()}
    return bool(files) and all((folder / file).is_file() for file in files)


def test_a_model_is_fine_tuned_with_the_package_and_without_it_and_loads_everywhere(tmp_path):
    expected = {}
    for name in MAKERS:
        model, tokenizer = made(name)
        expected[name] = Translator(model, tokenizer)(TEXTS)
        export(model, tmp_path / "exported" / name, tokenizer, card="# model")
    with_package = step(tmp_path / "exported", tmp_path / "tuned", package=True, cache=tmp_path / "cache1")
    without = step(tmp_path / "tuned", tmp_path / "again", package=False, cache=tmp_path / "cache2")
    at_last = step(tmp_path / "again", "none", package=True, cache=tmp_path / "cache3")
    for name in MAKERS:
        assert with_package["before"][name] == expected[name], name
        assert without["before"][name] == with_package["after"][name], name
        assert at_last["before"][name] == without["after"][name], name
        for folder in (tmp_path / "exported", tmp_path / "tuned", tmp_path / "again"):
            assert points_at_code_exactly_if_it_has_it(folder / name), (folder.name, name)
            settings = json.loads((folder / name / "generation_config.json").read_text())
            assert settings["search"] in ("vanilla_beam_search", "mask_predict")
            assert settings["max_length"] > 20  # which the library's trainer would have stored
    tuned = [with_package["after"][name] != with_package["before"][name] for name in MAKERS]
    assert any(tuned)  # training changed something, so that the comparisons mean something


CORE_FILES, CORE_LINES = 14, 3100
# The files that a model adds to those of the default one.
OWN_FILES = {
    "transformer": set(),
    "mask_predict": {
        *("configuration_mask_predict", "modeling_mask_predict", "mask_predict_search", "mask_predict_options"),
    },
    "window": {"entry", "window_attention"},
    "longformer": {"entry", "longformer_attention", "window_attention"},
    "lsh": {"entry", "lsh_attention", "window_attention"},
    "reversible": {"entry", "reversible_layers"},
    "several variants": {
        *("entry", "window_attention", "reversible_layers", "position_variants", "attention_scores"),
    },
}


def test_a_saved_model_carries_the_core_and_its_own_variants_only(tmp_path):
    carried = {}
    for name in OWN_FILES:
        made(name)[0].config.save_pretrained(tmp_path / name)
        carried[name] = {path.stem for path in (tmp_path / name).glob("*.py")}
    core = carried["transformer"]
    assert {name: files - core for name, files in carried.items()} == OWN_FILES
    assert all(core <= files for files in carried.values())
    assert len(core) <= CORE_FILES
    made("rnn")[0].config.save_pretrained(tmp_path / "rnn")  # another model: nothing of the Transformer's
    assert not list((tmp_path / "rnn").glob("*vanilla_transformer.py"))
    lines = sum(len((tmp_path / "transformer" / f"{file}.py").read_text().splitlines()) for file in core)
    assert lines <= CORE_LINES


def test_a_subclass_from_elsewhere_is_saved_as_the_library_saves_it(tmp_path):
    class Mine(VanillaTransformerConfig):
        model_type = "mine"

    Mine().save_pretrained(tmp_path)
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text())
    assert not list(tmp_path.glob("*.py"))


# --- one search on every road ---


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model with a length penalty whose two meanings lead to different translations."""
    model, tokenizer = made("transformer")
    store_options(model, num_beams=5, length_penalty=1.6)
    folder = tmp_path_factory.mktemp("saved") / "model"
    export(model, folder, tokenizer, card="# model")
    return folder


WITHOUT_THE_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
texts = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=True)
outputs = model.generate(**tokenizer(texts, padding=True, return_tensors="pt"))
print(json.dumps(tokenizer.batch_decode(outputs, skip_special_tokens=True)))
"""


def test_generate_is_one_search_on_every_road(saved, tmp_path):
    translator = Translator.from_pretrained(saved, backend="torch")
    expected, tokenizer = translator(TEXTS), translator.tokenizer
    model = AutoModelForSeq2SeqLM.from_pretrained(saved)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")

    def generated(**options) -> list[str]:
        return tokenizer.batch_decode(model.generate(**batch, **options), skip_special_tokens=True)

    assert generated() == expected
    assert generated(generation_config=GenerationConfig(num_beams=5)) == expected  # it inherits the name
    assert [row["translation_text"] for row in pipeline("vanilla-translation", model=str(saved))(TEXTS)] == expected

    def of_the_library(**options) -> list[float]:
        scored = {"return_dict_in_generate": True, "output_scores": True}
        output = model.generate(**batch, search=None, **scored, **options)
        assert output.sequences.shape[1] <= 1 + batch["input_ids"].shape[1] + 50
        return output.sequences_scores.tolist()

    # The stored penalty is dropped with the stored search, unless the call gives one.
    assert of_the_library() == of_the_library(length_penalty=1.0) != of_the_library(length_penalty=1.6)
    given = of_the_library(generation_config=GenerationConfig(length_penalty=1.6))
    assert given == of_the_library(length_penalty=1.6)
    greedy = {"num_beams": 1, "max_new_tokens": 20}
    assert generated(**greedy) == translator(TEXTS, **greedy) == generated(**greedy, search=None)
    model.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=2, decoder_start_token_id=1)
    assert generated(search="vanilla_beam_search") == Translator(model, tokenizer)(TEXTS)  # the paper's values
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE, str(saved)],
        input=json.dumps(TEXTS),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert json.loads(done.stdout.splitlines()[-1]) == expected, done.stderr[-2000:]


def test_what_only_the_librarys_search_has_works_or_is_refused_by_name(saved):
    model = AutoModelForSeq2SeqLM.from_pretrained(saved)
    batch = {"input_ids": torch.tensor([[5, 6, 2]])}
    sampled = model.generate(**batch, do_sample=True, num_beams=1, top_k=5, max_new_tokens=4)
    assert sampled.shape[0] == 1
    greedy = model.generate(**batch, num_beams=1, max_new_tokens=8)
    assert model.generate(**batch, num_beams=1, max_new_tokens=8, assistant_model=model).tolist() == greedy.tolist()
    traced = model.generate(
        **batch, num_beams=1, output_attentions=True, return_dict_in_generate=True, max_new_tokens=3
    )
    assert traced.cross_attentions
    for options, sentence in [
        ({"do_sample": True}, "do_sample=True with num_beams=5.*set num_beams=1 to sample"),
        (
            {"num_beam_groups": 5, "diversity_penalty": 0.5},
            "num_beam_groups=5",
        ),
        ({"force_words_ids": [[5]]}, "force_words_ids=.*give glossary="),
        ({"top_k": 5}, "top_k=5 is for sampling and does nothing in a search"),
        ({"synced_gpus": True}, "synced_gpus=True: under FSDP"),
        ({"synced_gpus": True, "num_beams": 1}, "synced_gpus=True: under FSDP"),
        ({"synced_gpus": True, "custom_generate": model.search}, "synced_gpus=True: under FSDP"),
        ({"assistant_model": model}, "assistant_model with num_beams=5.*Set num_beams=1"),
        ({"assistant_model": model, "search": None}, "assistant_model with num_beams=5.*Set num_beams=1"),
        (
            {"assistant_model": model, "custom_generate": model.search},
            "assistant_model does nothing beside custom_gen",
        ),
        ({"search": "other"}, "names the search 'other'"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "does not support output_attentions"),
    ]:
        with pytest.raises(ValueError, match=f"(?i){sentence}"):
            model.generate(**batch, **options)


# --- the encoder alone ---


FEATURES = """
import json, sys
if sys.argv[2] == "no":
    sys.modules["vanilla_transformer"] = None
else:
    import vanilla_transformer
from transformers import AutoModelForTextEncoding, AutoTokenizer, pipeline
remote = {"trust_remote_code": True} if sys.argv[2] == "no" else {}
texts = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], **remote)
encoder = AutoModelForTextEncoding.from_pretrained(sys.argv[1], **remote)
batch = tokenizer(texts, padding=True, return_tensors="pt")
states = encoder(**batch).last_hidden_state
features = pipeline("feature-extraction", model=encoder, tokenizer=tokenizer)(texts)
print(json.dumps([states.tolist(), features]))
"""


@pytest.mark.parametrize("package", ["yes", "no"])
def test_features_of_a_text_are_the_encoders_states_with_the_package_and_without_it(saved, tmp_path, package):
    translator = Translator.from_pretrained(saved, backend="torch")
    batch = translator.tokenizer(TEXTS, padding=True, return_tensors="pt")
    expected = translator.model.get_encoder()(**batch).last_hidden_state
    done = subprocess.run(
        [sys.executable, "-c", FEATURES, str(saved), package],
        input=json.dumps(TEXTS),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    states, features = json.loads(done.stdout.splitlines()[-1])
    assert_close(torch.tensor(states), expected)
    for row, of_text in zip(expected, features, strict=True):  # the pipeline takes one text at a time
        assert_close(torch.tensor(of_text[0]), row[: len(of_text[0])])


# --- a core without annexes, and configs without layers ---


CORE_ONLY = """
import torch
from core_only.beam_search import search
from core_only.configuration_vanilla_transformer import VanillaTransformerConfig
from core_only.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
config = VanillaTransformerConfig.from_preset("tiny", vocab_size=50, **sizes)
model = VanillaTransformerForConditionalGeneration(config)
ids = torch.tensor([[5, 6, 7, 2]])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(20):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(losses[-1] < losses[0], model.eval().generate(ids, custom_generate=search, num_beams=3).shape[0])
"""


def test_the_core_trains_and_decodes_with_the_annexes_deleted(tmp_path):
    package = shutil.copytree(MODELS, tmp_path / "core_only", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ANNEXES:
        (package / f"{name}.py").unlink()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CORE_ONLY], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["True", "1"], done.stderr


CONFIGURATION_FILES = [
    *(path.stem for path in MODELS.glob("configuration_*.py")),
    *("shared_configuration", "presets", "spelling", "variants"),
]
# The library's base class of configs, its activations and its function that saves code.
OF_THE_LIBRARY = {
    *("transformers", "transformers.activations", "transformers.dynamic_module_utils"),
    "huggingface_hub.dataclasses",
}


@pytest.mark.parametrize("name", CONFIGURATION_FILES)
def test_configuration_files_import_the_librarys_base_and_each_other_only(name):
    tree = ast.parse((MODELS / f"{name}.py").read_text(encoding="utf-8"))
    for node in tree.body:  # imports inside functions run only when a choice is loaded
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.module in CONFIGURATION_FILES
        elif isinstance(node, ast.ImportFrom):
            assert node.module in OF_THE_LIBRARY or node.module.split(".")[0] in sys.stdlib_module_names
            if node.module == "transformers":
                assert [alias.name for alias in node.names] == ["PreTrainedConfig"]
