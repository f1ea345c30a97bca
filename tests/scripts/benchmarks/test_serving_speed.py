"""The server is measured with the offline translations as the reference."""

from vanilla_transformer.scripts.benchmarks.serving_speed import Run, row


def test_a_row_has_speed_latency_and_differences():
    reference = [Run(1.0, ["a", "b"]), Run(3.0, ["a", "b"])]
    runs = [Run(2.0, ["a", "b"], [0.1, 0.1]), Run(4.0, ["b", "a"], [0.1, 0.1])]
    measured = row(runs, reference)
    assert measured["sentences/s"] == 0.75
    assert (measured["to offline"], measured["spread"]) == (0.625, [0.5, 0.75])
    assert (round(measured["p50 ms"]), round(measured["p95 ms"])) == (100, 100)
    assert measured["differ"] == 2
    assert "p50 ms" not in row(reference, reference)
