import pytest
import torch

from vanilla_transformer.training.run_folder.checkpoints import (
    checkpoint_of_step,
    complete_checkpoints,
    last_good_checkpoint,
    mark_complete,
    require_readable,
    scheduled_checkpoints,
    step_of,
)


def test_a_half_written_checkpoint_does_not_count(tmp_path):
    assert last_good_checkpoint(tmp_path) == "There was no checkpoint yet."
    for step in (5, 10, 15, 20):
        checkpoint_of_step(tmp_path, step).mkdir()
        if step < 20:
            mark_complete(checkpoint_of_step(tmp_path, step), scheduled=step != 15)
    assert [step_of(path) for path in complete_checkpoints(tmp_path)] == [5, 10, 15]
    assert [step_of(path) for path in scheduled_checkpoints(tmp_path)] == [5, 10]
    assert last_good_checkpoint(tmp_path) == f"The last good checkpoint is {tmp_path / 'checkpoint-15'}."


def test_one_wrong_byte_of_a_training_state_is_found(tmp_path):
    path = tmp_path / "optimizer.pt"
    torch.save({"moments": torch.ones(1000)}, path)
    require_readable(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged \(a wrong checksum in optimizer.pt\): move it away"):
        require_readable(tmp_path)
