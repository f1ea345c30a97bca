import sys

import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq

from tests.training.runs import final_weights, losses
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.data import word_links
from vanilla_transformer.training.data.collators import TokenColumns
from vanilla_transformer.training.data.word_links import LINKS, align, with_links


PAIRS = Dataset.from_list(
    [
        {"input_ids": [5, 6, 7, 2], "labels": [8, 9, 2], "source": "a b c", "target": "d e"},
        {"input_ids": [5, 2], "labels": [8, 2], "source": "a", "target": "d"},
    ]
)


def diagonal(sources, targets):
    return (" ".join(f"{i}-{i}" for i in range(min(map(len, pair)))) for pair in zip(sources, targets, strict=True))


def test_links_are_computed_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(word_links, "align", diagonal)
    first = with_links(PAIRS, tmp_path)
    assert first[LINKS][:] == [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1]]
    assert first["source"][:] == PAIRS["source"][:]
    monkeypatch.delattr(word_links, "align")
    assert with_links(PAIRS, tmp_path, compute=False)[LINKS][:] == first[LINKS][:]
    with pytest.raises(ValueError, match=r"links\.\w+\.txt is missing: restore it, or train again"):
        with_links(PAIRS.select([0]), tmp_path, compute=False)
    with pytest.raises(ValueError, match="needs the corpus on disk"):
        with_links(PAIRS.to_iterable_dataset(), tmp_path)


def test_pharaoh_s_links_become_a_matrix_whose_rows_sum_to_one(tmp_path, monkeypatch):
    """By hand: token 0 is linked with 0 and 2, token 1 with nothing, the ends with each other."""
    monkeypatch.setattr(word_links, "align", lambda sources, targets: iter(["0-0 2-0 3-2", "0-0 1-1"]))
    tokenizer = train_tokenizer(["a b c"], vocab_size=300, min_frequency=1, show_progress=False)
    batch = TokenColumns(DataCollatorForSeq2Seq(tokenizer))(list(with_links(PAIRS, tmp_path)))
    expected = torch.zeros(2, 3, 4)
    expected[0, 0, 0] = expected[0, 0, 2] = 0.5
    expected[0, 2, 3] = expected[1, 0, 0] = expected[1, 1, 1] = 1
    assert torch.equal(batch[LINKS], expected)
    assert LINKS not in TokenColumns(DataCollatorForSeq2Seq(tokenizer))(list(PAIRS))


@pytest.mark.parametrize("main", ["trainer", "loop"])
def test_a_resumed_run_has_the_same_losses_and_weights(recipe, tmp_path, monkeypatch, main):
    """The aligner draws at random, so a resumed run must not ask it again."""
    if main == "loop":
        from vanilla_transformer.training import accelerate_loop as script
    else:
        script = train_script
    monkeypatch.setattr(word_links, "align", diagonal)
    keys = {"guided_alignment": 0.5, "max_steps": 6, "save_steps": 3, "average_checkpoints": 0}
    script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    script.main(recipe(output_dir=str(tmp_path / "parts"), **{**keys, "max_steps": 3}))
    monkeypatch.setattr(word_links, "align", lambda *sides: pytest.fail("the links were computed again"))
    script.main([*recipe(output_dir=str(tmp_path / "parts"), **keys), "--resume_from_checkpoint", "last"])
    if main == "trainer":
        assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    for name, tensor in final_weights(tmp_path / "parts").items():
        assert torch.equal(tensor, final_weights(tmp_path / "whole")[name])


def test_eflomal_aligns_a_language_that_is_spoken_backwards():
    pytest.importorskip("eflomal")
    draw = torch.Generator().manual_seed(0)
    sources = [torch.randint(10, 30, (n % 6 + 2,), generator=draw).tolist() for n in range(1000)]
    targets = [[100 + token for token in reversed(ids)] for ids in sources]
    lines = list(align([[*ids, 2] for ids in sources], [[*ids, 2] for ids in targets]))
    assert all(line.endswith(f"{len(ids)}-{len(ids)}") for line, ids in zip(lines, sources, strict=True))
    right = total = 0
    for line, ids in zip(lines, sources, strict=True):
        links = set(line.split()[:-1])
        right += len(links & {f"{len(ids) - 1 - target}-{target}" for target in range(len(ids))})
        total += len(ids)
    assert right / total > 0.8  # a word may be twice in a sentence


def test_without_eflomal_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "eflomal", None)
    with pytest.raises(ImportError, match=r"eflomal: pip install 'vanilla-transformer\[alignment\]'"):
        list(align([[5, 2]], [[5, 2]]))
