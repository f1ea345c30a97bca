"""A trained run becomes a repository of the Hub that loads anywhere and says nothing it does not know."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.hub.check_export import SENTENCES, check, require_whole
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.hub.loading import load_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET, train_tokenizer
from vanilla_transformer.scripts import evaluate_bleu, export_to_hub
from vanilla_transformer.training import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of a few steps."""
    folder = tmp_path_factory.mktemp("runs")
    for language in ("en", "de"):
        (folder / f"pairs.{language}").write_text("".join(f"word {n} {language}\n" for n in range(60)))
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    recipe = {
        "source_lang": "en",
        "target_lang": "de",
        "train_files": [str(folder / "pairs")],
        "validation_files": [str(folder / "pairs")],
        "vocab_size": 300,
        "preset": "tiny",
        "model_config": sizes,
        "output_dir": str(folder / "run"),
        "max_steps": 60,
        "save_steps": 30,
        "warmup_steps": 20,
        "max_tokens": 128,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    train.main([str(folder / "recipe.yaml")])
    return folder / "run"


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "hub"
    export_to_hub.main(["--run", str(run), "--output_dir", str(folder), "--license", "apache-2.0"])
    return folder


@pytest.fixture
def copy(exported, tmp_path):
    """A folder to spoil."""
    return shutil.copytree(exported, tmp_path / "copy")


# --- the folder ---


def test_the_folder_has_all_that_loading_needs(exported):
    names = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= names
    config = json.loads((exported / "config.json").read_text())
    assert config["auto_map"] == {
        "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
        "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
        "AutoModelForSeq2SeqLM": "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration",
        "AutoModelForTextEncoding": "text_encoder.VanillaTransformerEncoderModel",
    }
    decoding = json.loads((exported / "generation_config.json").read_text())
    assert (decoding["num_beams"], decoding["length_penalty"]) == (4, 0.6)
    assert "local_files_only" not in json.loads((exported / "tokenizer_config.json").read_text())
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]


def test_it_loads_with_this_package_and_without_remote_code(exported, run):
    expected = Translator.from_pretrained(run / "model", backend="torch", device="cpu")(list(SENTENCES))
    assert Translator.from_pretrained(exported, device="cpu")(list(SENTENCES)) == expected
    before, after = load_file(run / "model" / "model.safetensors"), load_file(exported / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_it_translates_the_same_where_this_package_is_unknown(exported, run):
    translator = Translator.from_pretrained(run / "model", backend="torch", device="cpu")
    texts = ["word 7 en", "🙂", "word " * 30]
    assert check(exported, translator, texts) == [translator(text) for text in texts]


@pytest.mark.slow
def test_a_model_that_went_on_from_another_run_says_so(run, tmp_path):
    later = shutil.copytree(run, tmp_path / "later")
    recipe = yaml.safe_load((later / "recipe.yaml").read_text())
    kept = {name: value for name, value in recipe.items() if name not in ("preset", "vocab_size")}
    changed = {**kept, "model_name_or_path": str(run / "model"), "seed": 77}
    (later / "recipe.yaml").write_text(yaml.safe_dump(changed))
    export_to_hub.main(["--run", str(later), "--output_dir", str(tmp_path / "hub")])
    card = (tmp_path / "hub" / "README.md").read_text()
    first, then = card.split("Next stage, starting from the model")
    assert "preset: tiny" in first
    assert f"model_name_or_path: {run.name}/model" in then
    assert "seed: 77" in then
    assert str(tmp_path) not in card
    # The corpus that the user names is that of the last run's files: another run's text may be another's.
    (later / "recipe.yaml").write_text(yaml.safe_dump({**changed, "train_files": ["elsewhere/pairs"]}))
    named = ["--run", str(later), "--output_dir", str(tmp_path / "named"), "--dataset", "someone/corpus"]
    export_to_hub.main(named)
    first, then = (tmp_path / "named" / "README.md").read_text().split("Next stage, starting from the model")
    assert "| data | someone/corpus, pairs" in then
    assert "| data | someone/corpus" not in first


@pytest.mark.slow
def test_a_model_s_own_decoding_goes_along(run, tmp_path):
    own = shutil.copytree(run, tmp_path / "run")
    settings = GenerationConfig.from_pretrained(own / "model")
    settings.search = "vanilla_beam_search"
    settings._from_model_config = False  # with this mark, the library drops names that it does not know
    for number, (asked, kept) in enumerate(
        [({"num_beams": 5, "length_penalty": 1.1}, (5, 1.1)), ({"num_beams": 1}, (1, None))]
    ):
        settings.update(**{"length_penalty": None, **asked})
        settings.save_pretrained(own / "model")
        export_to_hub.main(["--run", str(own), "--output_dir", str(tmp_path / f"hub{number}")])
        decoding = json.loads((tmp_path / f"hub{number}" / "generation_config.json").read_text())
        assert (decoding["num_beams"], decoding.get("length_penalty")) == kept
    card = " ".join((tmp_path / "hub0" / "README.md").read_text().split())
    assert "a beam of 5, the length penalty ((5 + length) / 6)^1.1" in card


@pytest.mark.parametrize(
    "fields",
    [{"norm_placement": "pre", "position_encoding": "learned"}, {"tie_word_embeddings": False, "d_k": 3, "d_v": 5}],
)
def test_variants_and_two_vocabularies_come_along(fields, tmp_path):
    source = train_tokenizer(["a b c"], vocab_size=270, min_frequency=1, show_progress=False)
    target = train_tokenizer(["d e f g h"], vocab_size=280, min_frequency=1, show_progress=False)
    torch.manual_seed(1)
    config = VanillaTransformerConfig.from_preset(
        "tiny", vocab_size=len(source), target_vocab_size=len(target), d_model=16, encoder_layers=1, decoder_layers=1,
        **fields,
    )  # fmt: skip
    model = VanillaTransformerForConditionalGeneration(config)
    export(model, tmp_path, source, target, card="---\n---\n")
    check(tmp_path, Translator(model, source, target), ["a b", "c"])
    assert model.generation_config.num_beams in (None, 1)  # exporting leaves the model as it was


@pytest.mark.slow
def test_half_precision_halves_the_weights(run, exported, tmp_path):
    folder = tmp_path / "half"
    export_to_hub.main(["--run", str(run), "--output_dir", str(folder), "--dtype", "float16"])
    sizes = [(place / "model.safetensors").stat().st_size for place in (folder, exported)]
    assert sizes[0] < 0.6 * sizes[1]
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).dtype == torch.float16


# --- the card ---


def metadata(folder) -> dict:
    return yaml.safe_load((folder / "README.md").read_text().split("---")[1])


def test_every_number_of_the_card_comes_from_the_run(exported, run):
    results, description = (json.loads((run / name).read_text()) for name in ("results.json", "run.json"))
    card, data = (exported / "README.md").read_text(), metadata(exported)
    assert f"{description['parameters']:,} parameters" in card
    assert f"{description['pairs']['train']:,} pairs" in card
    assert results["validation"]["sacrebleu"]["signature"].replace("|", "\\|") in card
    (entry,) = data["model-index"][0]["results"]
    assert entry["metrics"][0]["value"] == round(results["validation"]["sacrebleu"]["score"], 2)
    assert data["pipeline_tag"] == "translation"
    assert data["license"] == "apache-2.0"
    assert data["language"] == ["en", "de"]
    assert str(run.parent) not in card  # no paths of one machine
    translation = Translator.from_pretrained(run / "model", backend="torch", device="cpu")(
        "When does the train arrive in Berlin?"
    )
    assert translation
    assert f"prints `{translation}`" in card


@pytest.mark.slow
def test_what_is_not_known_is_left_out(run, tmp_path):
    poorer = shutil.copytree(run, tmp_path / "run")
    for name in ("results.json", "metrics.jsonl", "learning_curve.png"):
        (poorer / name).unlink(missing_ok=True)
    export_to_hub.main(["--run", str(poorer), "--output_dir", str(tmp_path / "hub")])
    card, data = (tmp_path / "hub" / "README.md").read_text(), metadata(tmp_path / "hub")
    assert "## Results" not in card
    assert "minutes" not in card
    assert "model-index" not in data
    assert "license" not in data
    assert "None" not in card


def test_evaluations_and_notes_go_into_the_card(run, tmp_path):
    (tmp_path / "notes.md").write_text("It does not know the word *zebra*.\n")
    evaluate_bleu.main(
        ["--model", str(run / "model"), "--test_files", str(run.parent / "pairs"), "--device", "cpu",
         "--output_dir", str(tmp_path / "evaluation")]
    )  # fmt: skip
    export_to_hub.main(
        ["--run", str(run), "--output_dir", str(tmp_path / "hub"), "--evaluations", str(tmp_path / "evaluation"),
         "--notes", str(tmp_path / "notes.md")]
    )  # fmt: skip
    found = json.loads((tmp_path / "evaluation" / "results.json").read_text())
    card = (tmp_path / "hub" / "README.md").read_text()
    for name, label in (("sacrebleu", "sacreBLEU"), ("chrf", "chrF"), ("tokenized_bleu", "tokenised BLEU")):
        assert f"| pairs (en-de), 60 sentences | {label} | {found[name]['score']:.2f} |" in card
    assert "the word *zebra*" in card
    # The evaluation repeats the run's score on the same pairs: it is listed once.
    results = metadata(tmp_path / "hub")["model-index"][0]["results"]
    assert [entry["dataset"]["split"] for entry in results] == ["test"]


def test_an_evaluation_of_another_model_or_by_other_means_is_not_passed_off_as_ours(run, tmp_path):
    evaluation = {
        "sacrebleu": {"score": 12.345, "signature": "s"},
        "model": "another/model",
        "decoding": {"num_beams": 1, "length_penalty": 0.6},
        "loading": {"backend": "torch", "quantization": "int8", "device": None},
        "corpus": {"dataset": "wmt/wmt14", "test_split": "newstest", "source_lang": "en", "target_lang": "de"},
        "sentences": 3003,
    }
    (tmp_path / "results.json").write_text(json.dumps(evaluation))
    arguments = ["--run", str(run), "--output_dir", str(tmp_path / "hub"), "--evaluations", str(tmp_path)]
    with pytest.raises(SystemExit, match="is an evaluation of another/model, not of"):
        export_to_hub.main(arguments)
    (tmp_path / "results.json").write_text(json.dumps({**evaluation, "model": str(run / "model")}))
    export_to_hub.main(arguments)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "| wmt/wmt14 (en-de), 3,003 sentences, beam 1, alpha 0.6, int8 | sacreBLEU | 12.35 |" in card
    (entry,) = [
        entry
        for entry in metadata(tmp_path / "hub")["model-index"][0]["results"]
        if entry["dataset"]["type"] == "wmt/wmt14"
    ]
    assert entry["dataset"]["split"] == "newstest"


def test_the_cards_example_is_of_the_runs_validation_set(run, exported):
    example = json.loads((run / "run.json").read_text())["example"]
    files = yaml.safe_load((run / "recipe.yaml").read_text())["validation_files"]
    assert example in Path(f"{files[0]}.en").read_text().splitlines()
    assert json.dumps(example) in (exported / "README.md").read_text()


def test_the_cards_program_runs_whatever_the_example(run, tmp_path):
    export_to_hub.main(
        ["--run", str(run), "--output_dir", str(tmp_path / "hub"), "--example", 'He said "hi" to \\ me.']
    )
    code = (tmp_path / "hub" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    compile(code, "card", "exec")
    assert json.dumps('He said "hi" to \\ me.') in code.replace("\\u0022", '\\"')


def test_weights_can_be_read_by_whoever_can_read_the_folder(exported):
    modes = {path.stat().st_mode & 0o444 for path in exported.iterdir() if path.is_file()}
    assert len(modes) == 1


# --- what is broken is refused ---


def spoil_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def drop_a_tensor(folder):
    state = load_file(folder / "model.safetensors")
    del state["model.encoder.layers.0.feed_forward.fc1.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def change_the_config(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "encoder_ffn_dim": 64}))


def swap_the_tokenizer(folder):
    train_tokenizer(["a b"] * 9 + [f"x{n}" for n in range(999)], vocab_size=400, show_progress=False).save_pretrained(
        folder
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"The tokenizer in .* can't be loaded"),
        (lambda folder: (folder / "modeling_vanilla_transformer.py").unlink(), "has no modeling_vanilla_transf"),
        (lambda folder: (folder / "model.safetensors").unlink(), "not a complete safetensors file"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": '), "not valid JSON"),
        (spoil_weights, "not a complete safetensors file"),
        (drop_a_tensor, "has no weights model.encoder.layers.0.feed_forward.fc1.weight"),
        (change_the_config, r"is \[32, 16\] in .* but \[64, 16\] by its config.json"),
        (swap_the_tokenizer, "more tokens than the model's vocabulary"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(copy, spoil, message):
    require_whole(copy)
    spoil(copy)
    with pytest.raises(ValueError, match=message):
        require_whole(copy)
    with pytest.raises(SystemExit, match=message):
        export_to_hub.main(["--exported", str(copy), "--push_to", "user/model", "--dry_run"])


def test_a_translator_does_not_make_up_missing_weights(copy):
    drop_a_tensor(copy)
    with pytest.raises(ValueError, match=r"has no weights model\.encoder\.layers\.0\.feed_forward\.fc1\.weight"):
        Translator.from_pretrained(copy, device="cpu")


def test_a_changed_model_is_found_out(exported, run):
    other = Translator.from_pretrained(run / "model", backend="torch", device="cpu")
    with torch.no_grad():
        other.model.lm_head.weight.mul_(-1)
    with pytest.raises(ValueError, match="but before the export it was"):
        check(exported, other)


def test_code_that_does_not_run_is_found_out(copy, run):
    code = copy / "modeling_vanilla_transformer.py"
    code.write_text(f"import a_module_that_is_not_there\n{code.read_text()}")
    with pytest.raises(ValueError, match=r"without this package: .*a_module_that_is_not_there"):
        check(copy, Translator.from_pretrained(run / "model", backend="torch", device="cpu"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give either --run"),
        (["--run", "a", "--exported", "b"], "Give either --run"),
        (["--run", "nowhere"], "Give --output_dir"),
        (["--run", "nowhere", "--output_dir", "x"], "nowhere holds no finished run"),
        (["--exported", "nowhere"], "Give --push_to"),
        (["--exported", "a", "--push_to", "b", "--license", "mit"], "--license does nothing without --run"),
        (["--run", "a", "--output_dir", "b", "--dry_run"], "--dry_run does nothing without --push_to"),
        (["--run", "a", "--output_dir", "b", "--license_name", "x"], "needs --license other"),
        (
            ["--run", "a", "--output_dir", "b", "--license", "Apache 2.0"],
            "license='Apache 2.0' is no identifier of a licence on the Hub: give one such as apache-2.0",
        ),
        (["--exported", "nowhere", "--push_to", "user/x"], "There is no folder nowhere"),
        (["--run", "a", "--output_dir", "b", "--space", "--push_to", "user/x"], "--repo-type space"),
    ],
)
def test_mistakes_get_a_sentence(arguments, message):
    with pytest.raises(SystemExit, match=message):
        export_to_hub.main(arguments)


def test_a_dry_run_lists_the_files_and_pushes_nothing(exported, capsys):
    export_to_hub.main(["--exported", str(exported), "--push_to", "user/x", "--dry_run"])
    printed = capsys.readouterr().out
    assert "model.safetensors" in printed
    assert "would be pushed to user/x (private if it is new)" in printed


@pytest.mark.slow
def test_a_space_has_the_model_and_its_page(run, tmp_path):
    export_to_hub.main(["--run", str(run), "--space", "--output_dir", str(tmp_path / "space")])
    require_whole(tmp_path / "space" / "model")
    assert "name='run'" in (tmp_path / "space" / "app.py").read_text()
    assert (tmp_path / "space" / "vanilla_transformer" / "serving" / "web" / "index.html").is_file()


def test_target_tokenizers_are_where_loading_looks(tmp_path):
    tokenizer = train_tokenizer(["a b c"], vocab_size=270, min_frequency=1, show_progress=False)
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizers(tmp_path)[1] is None
    tokenizer.save_pretrained(tmp_path / TARGET)
    assert len(load_tokenizers(tmp_path)[1]) == len(AutoTokenizer.from_pretrained(tmp_path))
