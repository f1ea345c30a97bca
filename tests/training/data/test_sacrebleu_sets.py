"""sacreBLEU's files, as if they were downloaded, and what happens if they are not."""

from urllib.error import URLError

import pytest
from sacrebleu.dataset import DATASETS

from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.parallel_corpus import load_corpus, references_of


WMT14 = "sacrebleu:wmt14/en-de"


def corpus(*sets):
    return CorpusArguments(source_lang="en", target_lang="de", test_sets=list(sets))


@pytest.mark.parametrize("references", [1, 3])
def test_a_test_set_by_its_name_with_all_its_references(tmp_path, monkeypatch, references):
    texts = {"src": "A dog.\nTwo.\n", **{f"ref-{n}": f"Ein Hund {n}.\nZwei {n}.\n" for n in range(references)}}
    paths = [tmp_path / f"wmt14.en-de.{field}" for field in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    monkeypatch.setattr(DATASETS["wmt14"], "get_source_file", lambda languages: str(paths[0]))
    monkeypatch.setattr(DATASETS["wmt14"], "get_reference_files", lambda languages: list(map(str, paths[1:])))
    arguments = corpus(WMT14, f"news={WMT14}")
    assert list(arguments.further_test_sets) == ["wmt14.en_de", "news"]
    splits = load_corpus(arguments, splits=("test",)).splits
    for name in ("wmt14.en_de", "news"):
        rows = list(splits[name])
        assert rows[0] == {"source": "A dog.", "target": "Ein Hund 0."}
        found = references_of(arguments, name, [row["target"] for row in rows])
        several = [[f"Ein Hund {n}." for n in range(references)], [f"Zwei {n}." for n in range(references)]]
        assert found == (several if references > 1 else [row["target"] for row in rows])


def test_what_there_is_not_is_a_sentence(tmp_path, monkeypatch):
    def without_network():
        raise URLError("no network")

    monkeypatch.setattr(DATASETS["wmt14"], "_outdir", str(tmp_path))
    monkeypatch.setattr(DATASETS["wmt14"], "maybe_download", without_network)
    for word, sentence in (
        (WMT14, r"wmt14/en-de can't be downloaded \(.*no network.*\): run sacrebleu --download wmt14 --language-pair"),
        ("sacrebleu:wmt41/en-de", r"sacreBLEU has no test set 'wmt41' \(did you mean 'wmt24'\?\)"),
        ("sacrebleu:wmt14/de-en", r"is not from en into de: wmt14 has cs-en, .*en-de"),
        ("sacrebleu:wmt14", "sacreBLEU has no test set ''"),
    ):
        with pytest.raises(ValueError, match=sentence):
            load_corpus(corpus(word), splits=("test",))
