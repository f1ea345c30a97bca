"""The real client of the Hub pushes to a server on loopback and loads from it: nothing is mocked."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import torch

from tests.hub_server import HubServer
from vanilla_transformer import (
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    Translator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.hub.check_export import check
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer


TEXTS = ["The cat sleeps.", "A dog runs in the garden."]
PUSH = "vanilla_transformer.scripts.export_to_hub"
REPO = "someone/model"


@pytest.fixture(scope="module")
def translator():
    tokenizer = train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)
    torch.manual_seed(1)
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1
    )
    model = VanillaTransformerForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return Translator(model, tokenizer)


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    export(translator.model, folder, translator.tokenizer, card="---\nlicense: mit\n---\n# model\n")
    return folder


@pytest.fixture
def hub():
    with HubServer(token="hf_test", user="someone") as server:
        yield server


@pytest.fixture
def run(hub, tmp_path):
    """Runs Python with the server as its Hub; each home is a machine that has seen nothing before."""

    def run(*arguments: str, home: str = "home", token: str | None = "hf_test", **more) -> subprocess.CompletedProcess:
        environment = {**hub.environment(tmp_path / home, token), "OMP_NUM_THREADS": "1", **more}
        return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd="/")

    return run


def push(run, folder, *options: str, **more) -> subprocess.CompletedProcess:
    return run("-m", PUSH, "--exported", str(folder), "--push_to", REPO, *options, **more)


WITH_THE_PACKAGE = f"""
import json
from vanilla_transformer import Translator
print(json.dumps(Translator.from_pretrained({REPO!r})({TEXTS!r})))
"""
WITHOUT_THE_PACKAGE = f"""
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer, model = (
    auto.from_pretrained({REPO!r}, trust_remote_code=True) for auto in (AutoTokenizer, AutoModelForSeq2SeqLM)
)
outputs = [model.generate(**tokenizer(text, return_tensors="pt"))[0] for text in {TEXTS!r}]
print(json.dumps(tokenizer.batch_decode(outputs, skip_special_tokens=True)))
"""


def published(hub, **options) -> set[str]:
    return set(hub.files(REPO, **options)) - {".gitattributes"}


def test_what_is_pushed_translates_the_same_elsewhere(hub, run, folder, translator, tmp_path):
    local = shutil.copytree(folder, tmp_path / "local")
    pushed = push(run, local)
    assert pushed.returncode == 0, pushed.stderr
    assert f"pushed: {hub.url}/{REPO}/commit/" in pushed.stdout
    shutil.rmtree(local)
    shutil.rmtree(tmp_path / "home", ignore_errors=True)
    for code in (WITH_THE_PACKAGE, WITHOUT_THE_PACKAGE):
        found = run("-c", code, home="elsewhere")
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout.splitlines()[-1]) == [translator(text) for text in TEXTS]
    # Everything arrived in one commit of a private repository.
    assert len(hub.history(REPO)) == 2  # the repository's first, and this one
    assert published(hub) == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert hub.files(REPO)["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    refused = run("-c", WITH_THE_PACKAGE, home="stranger", token=None)
    assert refused.returncode != 0


@pytest.mark.slow
def test_an_upload_that_is_cut_publishes_nothing_and_the_next_completes_it(hub, run, folder):
    hub.cut_upload_after(1000)
    cut = push(run, folder)
    assert cut.returncode == 1
    assert "Traceback" not in cut.stderr
    assert f"was not pushed to {REPO}" in cut.stderr
    assert published(hub) == set()
    assert push(run, folder).returncode == 0
    assert "model.safetensors" in published(hub)


def test_a_commit_that_fails_publishes_nothing(hub, run, folder):
    hub.fail_next_commit()
    assert f"was not pushed to {REPO}" in push(run, folder).stderr
    assert published(hub) == set()


@pytest.mark.slow
def test_branches_and_pull_requests(hub, run, folder):
    assert push(run, folder, "--revision", "v2").returncode == 0
    assert "model.safetensors" in published(hub, revision="v2")
    assert published(hub) == set()
    request = push(run, folder, "--create_pr")
    assert request.returncode == 0, request.stderr
    assert "model.safetensors" in published(hub, revision="refs/pr/1")
    assert published(hub) == set()


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"token": None}, "needs a valid token. Run `hf auth login`"),
        pytest.param({"token": "hf_wrong"}, "needs a valid token", marks=pytest.mark.slow),
        ({"token": "hf_reader"}, "the token can't write there"),
        ({"HF_ENDPOINT": closed_port()}, "the Hub was not reached"),
        pytest.param({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set", marks=pytest.mark.slow),
    ],
    ids=["no token", "wrong token", "read-only token", "no network", "offline"],
)
def test_why_a_push_failed_is_said_in_a_sentence(hub, run, folder, more, message):
    hub.add_token("hf_reader", role="read")
    failed = push(run, folder, **more)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_name_that_is_none_is_refused(run, folder):
    failed = run("-m", PUSH, "--exported", str(folder), "--push_to", "no/such/name")
    assert failed.returncode == 1
    assert "'no/such/name' is not a valid repository name" in failed.stderr


ORDINARY = """
import sys, torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer
import vanilla_transformer
folder, repo = sys.argv[1:]
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
model.push_to_hub(repo)
tokenizer.push_to_hub(repo)
model.config.push_to_hub(f"{repo}-config")
back = AutoModelForSeq2SeqLM.from_pretrained(repo)
assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), back.state_dict().values(), strict=True))
assert AutoTokenizer.from_pretrained(repo)("A dog").input_ids == tokenizer("A dog").input_ids
known = AutoConfig.from_pretrained(f"{repo}-config")
assert all(getattr(known, name) == getattr(model.config, name) for name in type(known).__annotations__)
"""


def test_model_tokenizer_and_config_push_themselves(run, folder):
    done = run("-c", ORDINARY, str(folder), REPO)
    assert done.returncode == 0, done.stderr
    elsewhere = run("-c", WITHOUT_THE_PACKAGE, home="elsewhere")
    assert elsewhere.returncode == 0, elsewhere.stderr


TRAINER = """
import sys
from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, Seq2SeqTrainer
from transformers import Seq2SeqTrainingArguments
import vanilla_transformer
folder, repo, output = sys.argv[1:]
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
pairs = Dataset.from_list([dict(tokenizer("A dog", text_target="runs"))] * 8)
args = Seq2SeqTrainingArguments(output, max_steps=2, push_to_hub=True, hub_model_id=repo, use_cpu=True)
collator = DataCollatorForSeq2Seq(tokenizer, model=model)
trainer = Seq2SeqTrainer(model, args, train_dataset=pairs, data_collator=collator, processing_class=tokenizer)
trainer.train()
trainer.push_to_hub()
AutoModelForSeq2SeqLM.from_pretrained(repo)
"""


def test_a_stock_trainer_pushes(hub, run, folder, tmp_path):
    done = run("-c", TRAINER, str(folder), REPO, str(tmp_path / "output"))
    assert done.returncode == 0, done.stderr
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= published(hub)
    elsewhere = run("-c", WITHOUT_THE_PACKAGE, home="elsewhere")
    assert elsewhere.returncode == 0, elsewhere.stderr


def test_nothing_is_unpickled(hub, run, folder, tmp_path):
    """A repository whose weights are a pickle is refused, and what the pickle would have done is not done."""

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    local = shutil.copytree(folder, tmp_path / "local")
    (local / "model.safetensors").unlink()
    torch.save({"model.encoder.embed_tokens.weight": Trap()}, local / "pytorch_model.bin")
    loading = f"from vanilla_transformer import Translator; Translator.from_pretrained({str(local)!r})"
    refused = run("-c", loading)
    assert refused.returncode != 0
    assert not (tmp_path / "sprung").exists()
    assert "is not a complete safetensors file" in push(run, local).stderr


def test_rnn_search_is_exported_with_its_own_code_only(tmp_path):
    tokenizer = train_tokenizer(TEXTS, vocab_size=300, min_frequency=1, show_progress=False)
    torch.manual_seed(1)
    sizes = {"embedding_size": 12, "hidden_size": 12, "attention_size": 12, "readout_size": 12}
    model = RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=len(tokenizer), **sizes))
    translator = Translator(model, tokenizer)
    export(model, tmp_path, tokenizer, card="# model\n")
    # Compares the translations of a process that can't import this package.
    assert check(tmp_path, translator, TEXTS) == [translator(text) for text in TEXTS]
    assert (tmp_path / "modeling_rnn_search.py").is_file()
    assert not (tmp_path / "modeling_vanilla_transformer.py").exists()
