from vanilla_transformer.training.reports.tables import aligned


ROWS = [("name", "score"), ("a", "1.5"), ("longer name", "10.25")]


def test_columns_are_aligned_to_the_left():
    assert aligned(ROWS).splitlines() == ["name         score", "a            1.5", "longer name  10.25"]


def test_numbers_can_be_aligned_to_the_right():
    assert aligned(ROWS, numbers_right=True).splitlines() == [
        "name         score",
        "a              1.5",
        "longer name  10.25",
    ]
