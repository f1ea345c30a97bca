"""A model with several directions: from files to results, with tags where they are needed."""

import json
import random
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training.runs import final_weights, losses
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.hub.languages import Languages, load_directions
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_language_tags
from vanilla_transformer.scripts import evaluate_bleu
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.build_model import carry_embeddings
from vanilla_transformer.training.data.parallel_corpus import load_corpus
from vanilla_transformer.training.data.vocabulary import with_merges
from vanilla_transformer.training.reports.model_card import CardOptions, model_card


DIRECTIONS = ["en-de", "de-en", "en-fr", "fr-en"]


@pytest.fixture
def texts(tmp_path):
    """Writes English with German (reversed words) and with French (upper case), and returns the pattern.

    The validation set, under the pattern with `val` for `pairs`, is the first 6 pairs of each.
    """
    draw = random.Random(0)
    for language, number in (("de", 200), ("fr", 50)):
        lines = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 7))] for _ in range(number)]
        other = [line[::-1] if language == "de" else [word.upper() for word in line] for line in lines]
        for code, side in (("en", lines), (language, other)):
            for split, chosen in (("pairs", side), ("val", side[:6])):
                path = tmp_path / f"{split}.en-{language}.{code}"
                path.write_text("".join(" ".join(words) + "\n" for words in chosen))
    return str(tmp_path / "pairs.{source}-{target}")


def several(recipe, texts, **keys) -> list[str]:
    """The words of a command line with a recipe for several directions."""
    files = {"train_files": [texts], "validation_files": [texts.replace("pairs", "val")], "eval_beams": 1}
    (path,) = recipe(**{**files, "directions": DIRECTIONS, "temperature": 5, "vocab_size": 320, **keys})
    content = json.loads(Path(path).read_text())
    del content["source_lang"], content["target_lang"]
    Path(path).write_text(json.dumps(content))
    return [path]


def test_a_bitext_serves_both_directions(texts, tmp_path):
    for files in ([texts], [f"en-{code}={tmp_path}/pairs.en-{code}" for code in ("de", "fr")]):
        corpus = load_corpus(CorpusArguments(directions=DIRECTIONS, train_files=files), ("train",))
        rows = corpus["train"].to_list()
        pairs = {name: [] for name in DIRECTIONS}
        for row in rows:
            pairs[DIRECTIONS[row["direction"]]].append((row["source"], row["target"]))
        assert list(map(len, pairs.values())) == [200, 200, 50, 50]
        assert pairs["de-en"] == [(target, source) for source, target in pairs["en-de"]]
        assert all(target == source.upper() for source, target in pairs["en-fr"])
        assert corpus.report.loaded == corpus.report.kept == 500


def test_a_table_of_all_languages_serves_every_direction(tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("en\tde\tfr\none\teins\tun\n")
    corpus = load_corpus(CorpusArguments(directions=["de-fr", "fr-en"], train_files=[str(table)]), ("train",))
    assert [(row["source"], row["target"]) for row in corpus["train"]] == [("eins", "un"), ("un", "one")]
    table.write_text("source\ttarget\none\teins\n")
    with pytest.raises(ValueError, match=r"no 'de' and 'fr' among its columns"):
        load_corpus(CorpusArguments(directions=["de-fr", "fr-en"], train_files=[str(table)]), ("train",))


def test_a_run_has_a_score_for_each_direction_and_their_mean(recipe, texts, tmp_path, capsys):
    train_script.main(several(recipe, texts))
    run = tmp_path / "run"
    assert load_directions(run / "model") == tuple(map(Languages.parse, DIRECTIONS))
    results = json.loads((run / "results.json").read_text())["validation"]
    scores = [results["directions"][name]["sacrebleu"]["score"] for name in DIRECTIONS]
    assert results["sacrebleu"]["score"] == pytest.approx(sum(scores) / 4)
    assert results["sacrebleu"]["signature"].startswith("mean of 4 directions: nrefs:1")
    (logged, *_) = [line for line in (run / "metrics.jsonl").read_text().splitlines() if "eval_bleu" in line]
    logged = json.loads(logged)
    assert logged["eval_bleu"] == pytest.approx(sum(logged[f"eval_bleu_{name}"] for name in DIRECTIONS) / 4)
    assert len((run / "validation.en-fr.hypotheses.txt").read_text().splitlines()) == 6
    rows = json.loads((run / "run.json").read_text())["cleaning"]["directions"]
    assert rows["en-fr"]["pairs"] == 50
    assert rows["en-fr"]["times"] == pytest.approx(4**0.8, abs=0.01)
    assert "en-fr" in capsys.readouterr().out
    words = ["--model", str(run / "model"), "--test_files", texts.replace("pairs", "val")]
    evaluate_bleu.main([*words, "--output_dir", str(tmp_path / "evaluation")])
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[1:6]] == [*DIRECTIONS, "mean"]
    evaluation = json.loads((tmp_path / "evaluation" / "directions.json").read_text())
    for name in DIRECTIONS:
        assert evaluation["directions"][name]["sacrebleu"] == results["directions"][name]["sacrebleu"]
        assert (tmp_path / "evaluation" / name / "results.json").is_file()
    assert evaluation["mean"]["sacrebleu"] == results["sacrebleu"]
    assert (tmp_path / "evaluation" / "directions.png").stat().st_size > 1000
    evaluate_bleu.main([*words, "--target_lang", "fr", "--output_dir", str(tmp_path / "one")])
    assert json.loads((tmp_path / "one" / "results.json").read_text())["corpus"]["source_lang"] == "en"
    model, tokenizer = (each.from_pretrained(run / "model") for each in (AutoModelForSeq2SeqLM, AutoTokenizer))
    tags = [tokenizer.convert_tokens_to_ids(f">>{code}<<") for code in ("de", "en", "fr")]
    assert tokenizer(">>fr<< a b")["input_ids"] == [tags[2], *tokenizer("a b")["input_ids"]]
    with torch.no_grad():
        model.get_output_embeddings().weight[tags] = 100 * model.get_output_embeddings().weight[4:].mean(0)
    written = model.generate(**tokenizer([">>fr<< a b", ">>de<< c"], padding=True, return_tensors="pt"))
    assert not set(tags) & set(written.flatten().tolist()), "a tag is never produced"


def test_a_run_with_several_directions_resumes_exactly(recipe, texts, tmp_path):
    keys = {"bpe_dropout": 0.1, "max_tokens": 256}
    train_script.main(several(recipe, texts, output_dir=str(tmp_path / "whole"), max_steps=8, **keys))
    train_script.main(several(recipe, texts, output_dir=str(tmp_path / "parts"), max_steps=4, **keys))
    words = several(recipe, texts, output_dir=str(tmp_path / "parts"), max_steps=8, **keys)
    train_script.main([*words, "--resume_from_checkpoint", "last"])
    assert losses(tmp_path / "parts")[-4:] == losses(tmp_path / "whole")[-4:]
    assert_close(final_weights(tmp_path / "parts"), final_weights(tmp_path / "whole"), rtol=0, atol=0)
    with pytest.raises(SystemExit, match=r"started with temperature=5"):
        train_script.main([*words, "--temperature", "2", "--resume_from_checkpoint", "last"])


def test_one_target_language_needs_no_tag(recipe, texts, tmp_path):
    train_script.main(several(recipe, texts, directions=["de-en", "fr-en"], max_steps=1, eval_strategy="no"))
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert config["directions"] == ["de-en", "fr-en"]
    assert ">>" not in (tmp_path / "run" / "model" / "tokenizer.json").read_text().replace(">>>", "")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"directions": ["en-de", "ende"]}, "'ende' is not a direction"),
        ({"directions": ["en-de", "en-de"]}, "one of them twice"),
        ({"directions": ["en-de", "de-en"], "source_lang": "en"}, "leave out one of them"),
        ({"source_lang": "en", "target_lang": "de", "temperature": 5.0}, "for several directions"),
        ({"directions": ["en-de", "de-en"], "temperature": 0.5}, "at least 1"),
        ({"directions": ["en-de", "de-en"], "streaming": True}, "corpus on disk"),
    ],
)
def test_mistakes_are_named(keys, message):
    with pytest.raises(ValueError, match=message):
        CorpusArguments(train_files=["x"], **keys)


def test_several_languages_on_the_command_line_are_directions(recipe):
    with pytest.raises(SystemExit, match=r"'fr': several languages are directions, for example --directions"):
        train_script.main([*recipe(), "--target_lang", "de", "fr"])


def test_a_direction_without_files_is_named(texts):
    with pytest.raises(ValueError, match=r"pairs\.en-es"):
        load_corpus(CorpusArguments(directions=["en-de", "en-es"], train_files=[texts]))


def test_a_language_is_added_to_a_trained_model(recipe, texts, tmp_path):
    train_script.main(several(recipe, texts, directions=["en-de", "de-en"], eval_strategy="no"))
    words = several(recipe, texts, output_dir=str(tmp_path / "more"), max_steps=2, eval_strategy="no")
    options = ["--model_name_or_path", str(tmp_path / "run" / "model"), "--added_subwords", "5", "--save_steps", "1"]
    train_script.main([*words, *options])
    (old, before), (new, after) = (
        [each.from_pretrained(tmp_path / run / "model") for each in (AutoTokenizer, AutoModelForSeq2SeqLM)]
        for run in ("run", "more")
    )
    assert old.get_vocab().items() < new.get_vocab().items()
    assert len(new) == after.config.vocab_size > before.config.vocab_size + 5  # the tag of French is one more
    assert ">>fr<<" in new.get_vocab()
    assert load_directions(tmp_path / "more" / "model") == tuple(map(Languages.parse, DIRECTIONS))
    train_script.main([*words, *options, "--resume_from_checkpoint", "last", "--max_steps", "3"])


def test_one_direction_of_a_model_with_tags_keeps_its_tag(recipe, texts, tmp_path):
    train_script.main(several(recipe, texts, max_steps=1, eval_strategy="no"))
    words = several(recipe, texts, directions=["en-fr"], temperature=1, output_dir=str(tmp_path / "one"))
    *recipes, corpus, vocabulary, args = train_script.parse_recipe("", words)
    recipes[0].model_name_or_path = str(tmp_path / "run" / "model")
    data = train_script.prepare_text(recipes[0], corpus, vocabulary, args)
    datasets, (tokenizer, _) = data.datasets, data.tokenizers
    for split in ("train", "validation"):
        assert all(row["source"].startswith(">>fr<< ") for row in datasets[split])
        assert {row["input_ids"][0] for row in datasets[split]} == {tokenizer.convert_tokens_to_ids(">>fr<<")}


def test_new_tokens_start_as_the_mean_of_their_parts():
    tokenizer = train_tokenizer(["ab ab ab cd cd"], vocab_size=262, min_frequency=1, show_progress=False)
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=16)
    model = VanillaTransformerForConditionalGeneration(config)
    old = model.get_input_embeddings().weight.detach().clone()
    longer = with_language_tags(with_merges(tokenizer, [("x", "y"), ("xy", "z")]), ["de"])
    carry_embeddings(model, tokenizer, longer)
    new, ids = model.get_input_embeddings().weight.detach(), longer.get_vocab()
    assert_close(new[: len(old)], old)
    assert_close(new[ids["xy"]], (old[ids["x"]] + old[ids["y"]]) / 2)
    assert_close(new[ids["xyz"]], (old[ids["x"]] + old[ids["y"]] + old[ids["z"]]) / 3)
    assert_close(new[ids[">>de<<"]], old.mean(0))
    assert model.get_output_embeddings().weight.shape == new.shape


def test_a_new_vocabulary_keeps_the_embeddings_of_known_tokens():
    """A token in capitals starts as the one in small letters, and tags that stay are still never written."""
    old_tokenizer = with_language_tags(train_tokenizer(["haus über haus über"], vocab_size=290), ["de", "fr"])
    new_tokenizer = with_language_tags(train_tokenizer(["HAUS ÜBER HAUS ÜBER haus"], vocab_size=275), ["fr", "es"])
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(old_tokenizer), d_model=16)
    model = VanillaTransformerForConditionalGeneration(config)
    old, (was, now) = model.lm_head.weight.detach().clone(), (t.get_vocab() for t in (old_tokenizer, new_tokenizer))
    model.generation_config.bad_words_ids = [[was[">>de<<"]], [was[">>fr<<"]]]
    carry_embeddings(model, old_tokenizer, new_tokenizer)
    new = model.lm_head.weight.detach()
    assert new.shape == (len(new_tokenizer), 16)
    assert model.config.vocab_size == len(new_tokenizer)
    assert model.get_encoder().get_input_embeddings().weight is model.lm_head.weight
    for token in was.keys() & now.keys():
        assert_close(new[now[token]], old[was[token]])
    assert "ĠHAUS" not in was
    assert_close(new[now["ĠHAUS"]], old[was["Ġhaus"]])
    upper, lower = (
        old_tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(f" {word}")[0][0] for word in ("ÜBER", "über")
    )
    assert_close(new[now[upper]], old[was[lower]])
    assert_close(new[now[">>es<<"]], (old[was[">>de<<"]] + old[was[">>fr<<"]]) / 2)
    assert model.generation_config.bad_words_ids == [[now[">>fr<<"]]]


def test_a_trained_model_gets_a_new_vocabulary(recipe, texts, tmp_path):
    train_script.main(several(recipe, texts, eval_strategy="no"))
    words = several(recipe, texts, directions=["en-de"], temperature=1, output_dir=str(tmp_path / "new"), max_steps=1)
    options = ["--model_name_or_path", str(tmp_path / "run" / "model"), "--new_vocabulary", "--vocab_size", "266"]
    train_script.main([*words, *options, "--mark_capitals", "--eval_strategy", "no"])
    tokenizer, model = (
        each.from_pretrained(tmp_path / "new" / "model") for each in (AutoTokenizer, AutoModelForSeq2SeqLM)
    )
    assert len(tokenizer) == model.config.vocab_size == 266
    assert tokenizer("A B")["input_ids"][-2] == tokenizer("b")["input_ids"][-2]
    assert not [token for token in tokenizer.get_vocab() if token.startswith(">>")], "one target language has no tag"
    assert model.generation_config.bad_words_ids is None
    with pytest.raises(SystemExit, match="new_vocabulary is for a trained model"):
        train_script.main(several(recipe, texts, new_vocabulary=True, output_dir=str(tmp_path / "none")))


def test_the_card_lists_directions_with_a_score_each(recipe, texts, tmp_path):
    train_script.main(several(recipe, texts, max_steps=1, eval_strategy="no"))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "model")
    card = model_card(tmp_path / "run", model, CardOptions("me/many", example=("a b", None)))
    assert "4 directions: en-de, de-en, en-fr, fr-en." in card
    assert 'tokenizer(">>de<< a b"' in card
    entries = ModelCard(card).data.to_dict()["model-index"][0]["results"]
    for name in (*DIRECTIONS, "mean of 4 directions"):
        assert f"({name}), validation set | sacreBLEU |" in card
        assert [f"({name})" in each["dataset"]["name"] for each in entries].count(True) == 1
    assert ">>de<<, >>en<<, >>fr<<" in card


def test_files_in_the_other_order_are_the_other_direction(tmp_path):
    config = VanillaTransformerConfig(source_lang="en", target_lang="cs")
    config.save_pretrained(tmp_path)
    continued = ModelArguments(model_name_or_path=str(tmp_path))
    for files, languages in (
        (["cs", "en"], ("cs", "en")),
        (["cs", "en"] * 2, ("cs", "en")),
        (["en", "cs"], ("en", "cs")),
    ):
        corpus = CorpusArguments(train_files=[f"{tmp_path}/train.{code}" for code in files])
        assert train_script.with_languages(corpus, continued).languages == languages
    given = CorpusArguments(train_files=["train.cs", "train.en"], source_lang="en", target_lang="de")
    assert train_script.with_languages(given, continued).languages == ("en", "de"), "transfer to another pair"
