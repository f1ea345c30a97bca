"""Pairs with one side written by a model: what is counted, and tags."""

from vanilla_transformer.training.data.synthetic_corpus import PairCounts, tagged


def test_counts_and_tags():
    pairs, counts = [{"source": "a b", "target": "c"}, {"source": "d e", "target": "f g"}], PairCounts()
    assert list(counts.count(pairs)) == pairs
    assert counts.mean_words() == {"source": 2.0, "target": 1.5}
    assert [pair["source"] for pair in tagged(pairs, "<BT>")] == ["<BT> a b", "<BT> d e"]
    assert list(tagged(pairs, None)) == pairs
