"""The graphs compute the logits of the model. They run in torch here, because ONNX Runtime is optional."""

import torch
from torch.testing import assert_close

from vanilla_transformer.scripts.benchmarks import onnx_model


@torch.no_grad()
def test_the_graphs_compute_the_logits_of_the_model(make_model, batch):
    model = make_model()
    ids, mask = batch["input_ids"], batch["attention_mask"]
    tokens = torch.randint(3, 23, (3, 4))
    expected = model(input_ids=ids, attention_mask=mask, decoder_input_ids=tokens).logits

    source = list(onnx_model._source_keys(model, onnx_model._encode(model, ids, mask)))
    past = [torch.zeros(3, 4, 0, 4) for _ in range(2 * model.config.decoder_layers)]
    for step in range(tokens.shape[1]):
        logits, *new = onnx_model._decode(model, tokens[:, step : step + 1], mask, past, source)
        assert_close(logits[:, -1], expected[:, step])
        past = [torch.cat(tensors, dim=2) for tensors in zip(past, new, strict=True)]
