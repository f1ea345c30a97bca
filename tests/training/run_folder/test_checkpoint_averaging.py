import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.training.run_folder.checkpoint_averaging import average


def states(number: int) -> list[dict[str, torch.Tensor]]:
    return [{"a": torch.randn(3, 4), "b": torch.randn(5).bfloat16()} for _ in range(number)]


def test_the_mean_of_each_tensor():
    given = states(5)
    mean = average(iter(given))
    assert_close(mean["a"], torch.stack([state["a"] for state in given]).mean(0))
    assert mean["b"].dtype == torch.bfloat16
    assert_close(average(given[:1])["a"], given[0]["a"], rtol=0, atol=0)


def test_states_of_different_models_are_refused():
    with pytest.raises(ValueError, match=r"a is \[4, 3\] in state 2 but \[3, 4\] in the first"):
        average([{"a": torch.zeros(3, 4)}, {"a": torch.zeros(4, 3)}])
    with pytest.raises(ValueError, match=r"b is in not the first but state 2"):
        average([{"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}])
    with pytest.raises(ValueError, match=r"nothing to average"):
        average([])
