"""WordPiece as trained by `tokenizers` learns the subwords of BPE. Larger vocabularies split less."""

from vanilla_transformer.scripts.explain import subwords


def test_wordpiece_shares_the_subwords_of_bpe_and_larger_vocabularies_split_less(quick):
    split, examples = subwords.explain(quick).tables
    small, large = split.rows.values()
    for name in subwords.ALGORITHMS:
        assert large[name] < small[name]
    assert min(small[subwords.SHARED], large[subwords.SHARED]) > 0.9
    for word, row in examples.rows.items():
        assert {pieces.replace("|", "") for pieces in row.values()} == {word}
