import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.training.run_folder.weight_ema import ExponentialMovingAverage


def test_the_moving_average_by_hand():
    model = torch.nn.Linear(2, 1)
    average = ExponentialMovingAverage(0.9)
    average.on_train_begin(None, None, None, model=model)
    expected = model.weight.detach().clone()
    for _ in range(5):
        torch.nn.init.normal_(model.weight)
        average.on_step_end(None, None, None, model=model)
        expected = 0.9 * expected + 0.1 * model.weight.detach()
    assert_close(average.state["weight"], expected)
    with pytest.raises(ValueError, match=r"ema_decay=1.5"):
        ExponentialMovingAverage(1.5)
