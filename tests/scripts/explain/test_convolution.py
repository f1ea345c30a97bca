"""Self-attention with fixed offsets is a convolution."""

from vanilla_transformer.scripts.explain import convolution


def test_sharp_heads_equal_conv1d_to_1e_5(quick):
    (table,) = convolution.explain(quick).tables
    differences = [row["largest difference"] for row in table.rows.values()]
    assert differences[:6] == sorted(differences[:6], reverse=True)
    assert differences[0] > 0.1
    assert max(differences[-2:]) < 1e-5
    assert table.rows["32"]["weight at the offset"] > 0.9999
