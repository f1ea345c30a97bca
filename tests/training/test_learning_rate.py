import pytest
import torch

from vanilla_transformer.training.learning_rate import inverse_sqrt_schedule, peak_rate


def paper(step: int, d_model: int, warmup: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (1024, 4000), (128, 10)])
def test_the_rate_is_the_papers_at_every_step(d_model, warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak_rate(d_model, warmup))
    schedule = inverse_sqrt_schedule(optimizer, warmup)
    for step in range(1, 3 * warmup):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(paper(step, d_model, warmup), rel=1e-9)
        optimizer.step()
        schedule.step()


def test_the_peaks_of_the_paper():
    assert peak_rate(512, 4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert peak_rate(1024, 4000) == pytest.approx(4.94e-4, rel=1e-3)


def test_no_warm_up_is_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="warmup_steps=0"):
        inverse_sqrt_schedule(optimizer, 0)
