"""What an update costs on a device, counted on any machine: kernels, memory traffic, moments when the host waits for
the device, peak memory and FLOPs.

The model and its batch are on the meta device, which computes shapes and no numbers. A base model is counted in
seconds there, and reading a number, for which the host would wait, is an error. Work that depends on numbers, such as
a search, is counted on tensors of the CPU that stand for a device's (`Count("cpu")`).

Counted are: a kernel for each operation that is not a view; as traffic, the bytes that it reads and writes; as memory,
the tensors that are alive. Not seen are a kernel's own workspace, and what the allocator rounds up and keeps.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel

from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.training.objectives.cross_entropy import CriterionObjective, Objective, takes_criterion


Batch = dict[str, torch.Tensor]

# Operations without a kernel, beside views.
NO_KERNEL = {
    *("detach", "alias", "lift_fresh", "_unsafe_view", "_local_scalar_dense"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
}
# Operations that read as much of their first argument as they return, and those that write to it without reading it.
GATHERS = {"gather", "index", "embedding", "index_select"}
WRITES = {"copy_", "fill_", "zero_", "bernoulli_", "uniform_", "normal_"}
# The FLOPs of matrix products that torch's counter leaves out, from the shapes of their arguments.
IN_PLACE = {torch.ops.aten.addmm_: lambda out, left, right, **_: 2 * left[0] * left[1] * right[1]}
# Operations whose result the host must know before it continues.
READS = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "bincount", "_unique2", "unique_dim"}


@dataclass(frozen=True)
class Costs:
    """What some work costs.

    Args:
        kernels: Operations that the device runs.
        traffic: Bytes that they read and write.
        waits: How often the host waits for the device, by operation.
        peak_memory: Most bytes that tensors took at one time, those that were there before included.
        flops: Floating-point operations of matrix products and attention.
    """

    kernels: int
    traffic: int
    waits: dict[str, int]
    peak_memory: int
    flops: int


class Count(TorchDispatchMode):
    """Counts the operations inside a `with` block.

    Args:
        device: The type of the device. `"cpu"` stands for any device: there, every tensor that is made of Python's
            numbers counts as a copy that the host waits for.
        alive: Tensors that take memory from the start, such as weights.
        answers_reads: Whether to answer reads of tensors without numbers: each is 1, and masks hide nothing. Otherwise
            they are errors.
    """

    def __init__(self, device: str = "meta", alive: Iterable[torch.Tensor] = (), *, answers_reads: bool = False):
        super().__init__()
        self.device, self.answers_reads = device, answers_reads
        self.kernels = self.traffic = self.memory = self.peak_memory = 0
        self.waits: Counter[str] = Counter()
        self._alive: set[int] = set()
        self._allocate(alive)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        self.waits[name] += self._waits(name, args, kwargs)
        output = self._run(func, name, args, kwargs)
        read = {key: value for key, value in kwargs.items() if key != "out"}
        inputs, outputs = self._tensors((args, read)), self._tensors(output)
        if inputs + outputs and not func.is_view and name not in NO_KERNEL:
            self.kernels += 1
            self.traffic += _bytes_moved(name, inputs, outputs)
        self._allocate(outputs)
        return output

    def _run(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if not self.answers_reads or not self._waits(name, args, kwargs):
            return func(*args, **kwargs)
        if name == "_local_scalar_dense":
            return 1
        if name == "index":
            return args[0].flatten(0, args[1][0].dim() - 1).clone()
        if name == "index_put":
            return args[2].reshape(args[0].shape).clone()
        return func(*args, **kwargs)

    def _tensors(self, values: Any) -> list[torch.Tensor]:
        """The tensors on the device among some values."""
        return [leaf for leaf in tree_leaves(values) if torch.is_tensor(leaf) and leaf.device.type == self.device]

    def _waits(self, name: str, args: Any, kwargs: Any) -> bool:
        if name in ("index", "index_put_", "index_put"):  # a mask becomes a list of places
            return any(place.dtype == torch.bool for place in self._tensors(args[1]))
        if name == "lift_fresh":  # of `torch.tensor`
            return self.device == "cpu"
        if name in ("_to_copy", "copy_"):
            source = args[1] if name == "copy_" else args[0]
            goal = args[0].device if name == "copy_" else torch.device(kwargs.get("device") or source.device)
            is_asynchronous = kwargs.get("non_blocking") or (name == "copy_" and True in args[2:])
            return source.device.type != goal.type and not is_asynchronous
        return name in READS and bool(self._tensors(args))

    def _allocate(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self._alive:
                self._alive.add(key)
                self.memory += size
                weakref.finalize(storage, self._free, key, size)
        self.peak_memory = max(self.peak_memory, self.memory)

    def _free(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.memory -= size


def _bytes_moved(name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    if name in GATHERS:
        return sum(map(_bytes, inputs[1:])) + 2 * sum(map(_bytes, outputs))
    if name in ("scatter_", "index_put_"):
        return 2 * sum(map(_bytes, inputs[1:]))
    read = inputs[1:] if name in WRITES else inputs
    return sum(map(_bytes, read)) + sum(map(_bytes, outputs or inputs[:1]))


def _bytes(tensor: torch.Tensor) -> int:
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())  # the former if expanded


class Accelerated(TorchFunctionMode):
    """Makes the meta device compute as a GPU does under autocast, with fused attention. The meta device has neither.

    Args:
        dtype: Type of matrix products; float32 for no autocast.
    """

    PRODUCTS = {
        *(F.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.bmm),
        *(torch.addmm, torch.baddbmm),
    }
    IN_FLOAT32 = {
        *(torch.layer_norm, torch.log_softmax, torch.Tensor.log_softmax, torch.softmax, torch.Tensor.softmax),
        *(F.layer_norm, F.log_softmax, F.softmax, F.cross_entropy),
    }

    def __init__(self, dtype: torch.dtype = torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self._weights: dict[int, torch.Tensor] = {}  # each is converted once, as autocast does

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _fused_attention(*(self._converted(states) for states in args[:3]), **kwargs)
        if self.dtype != torch.float32 and func in self.PRODUCTS:
            args = [self._converted(value) for value in args]
        elif self.dtype != torch.float32 and func in self.IN_FLOAT32:
            args = [value.float() if _is_floating(value) else value for value in args]
        return func(*args, **kwargs)

    def __exit__(self, *error: Any) -> None:
        self._weights.clear()
        super().__exit__(*error)

    def _converted(self, value: Any) -> Any:
        if not _is_floating(value) or value.dtype == self.dtype:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(self.dtype)
        if id(value) not in self._weights:
            self._weights[id(value)] = value.to(self.dtype)
        return self._weights[id(value)]


def _is_floating(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point()


def _fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **options: Any,
) -> torch.Tensor:
    """The kernel that a GPU chooses: flash attention in half precision without a mask, or else the efficient one.
    (Flash attention has one width for keys and values.)"""
    if attn_mask is None and query.dtype != torch.float32 and query.shape[-1] == value.shape[-1]:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, attn_mask, query.requires_grad, dropout_p, is_causal, scale=scale)[0]


# --- updates ---

CROSS_ENTROPY = CriterionObjective(LabelSmoothedCrossEntropy())


def shape_of_model(config: PreTrainedConfig) -> PreTrainedModel:
    """The model of a config on the meta device: shapes without numbers."""
    with torch.device("meta"):
        return AutoModelForSeq2SeqLM.from_config(config)


def shape_of_batch(rows: int, source_length: int, target_length: int, *, padding: bool = False) -> Batch:
    """A batch on the meta device; with padding, it has a mask."""
    shapes = {"input_ids": (rows, source_length), "labels": (rows, target_length)}
    if padding:
        shapes["attention_mask"] = shapes["input_ids"]
    return {name: torch.empty(shape, dtype=torch.long, device="meta") for name, shape in shapes.items()}


def costs_of_update(
    model: PreTrainedModel,
    batch: Batch,
    objective: Objective = CROSS_ENTROPY,
    *,
    dtype: torch.dtype = torch.bfloat16,
    training: bool = True,
    device: str = "meta",
    answers_reads: bool = False,
) -> Costs:
    """Counts one update: forward, loss, backward and a fused Adam whose moments exist already.

    Args:
        model: A model on the meta device, such as `shape_of_model`.
        batch: A batch on the meta device, such as `shape_of_batch`.
        objective: What is minimised.
        dtype: Type of matrix products (autocast); float32 for no autocast. Weights are in float32.
        training: Whether to update. Otherwise only the loss is computed, as evaluation does it during training.
        device: `"meta"` for a GPU. `"cpu"` counts what a CPU would compute, also without its numbers.
        answers_reads: As for `Count`; this package's models need no answer.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) if device == "cpu" else nullcontext():
        if device == "cpu":
            model.to_empty(device=device)
            model.tie_weights()
            batch = {name: torch.empty_like(tensor, device=device) for name, tensor in batch.items()}
        weights = _trained(model)
        moments = [torch.empty_like(weight) for weight in (*weights, *weights)]
        count = Count(
            device, (*model.parameters(), *moments, *batch.values()), answers_reads=answers_reads or device == "cpu"
        )
        with count, FlopCounterMode(display=False, custom_mapping=IN_PLACE) as flops:
            if training:
                _update(model, batch, objective, moments, _autocast(device, dtype))
            else:
                _evaluate(model, batch, _autocast(device, dtype))
    waits = {name: number for name, number in count.waits.items() if number}
    return Costs(count.kernels, count.traffic, waits, count.peak_memory, flops.get_total_flops())


def _autocast(device: str, dtype: torch.dtype) -> AbstractContextManager[Any]:
    return torch.autocast(device, dtype, enabled=dtype != torch.float32) if device == "cpu" else Accelerated(dtype)


def _update(
    model: PreTrainedModel,
    batch: Batch,
    objective: Objective,
    moments: list[torch.Tensor],
    autocast: AbstractContextManager[Any],
) -> None:
    with autocast:
        loss = objective(model.train(), batch, batch["labels"].numel())
    with autocast:  # gradient checkpointing computes some of the forward pass again
        loss.backward()
    weights = _trained(model)
    gradients = [weight.grad for weight in weights]
    steps = [torch.empty((), device=loss.device) for _ in weights]
    rates = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9, "weight_decay": 0.0}
    options = {"amsgrad": False, "maximize": False}
    with torch.no_grad():
        half = len(weights)
        torch._fused_adam_(weights, gradients, moments[:half], moments[half:], [], steps, **rates, **options)
    model.zero_grad()


def _trained(model: PreTrainedModel) -> list[torch.Tensor]:
    return [weight for weight in model.parameters() if weight.requires_grad]


@torch.no_grad()
def _evaluate(model: PreTrainedModel, batch: Batch, autocast: AbstractContextManager[Any]) -> None:
    with autocast:
        model.eval()(**batch, **({"skip_logits": True} if takes_criterion(model) else {}))


def peak_memory_of_graph(
    config: PreTrainedConfig, rows: int, source_length: int, target_length: int, *, compiled: bool
) -> int:
    """Peak memory in bytes of forward and backward of the graph that `torch.compile` is given, before it fuses
    anything: in float32, with attention in single operations. Or, to compare, that of the same without a compiler."""
    model, batch = shape_of_model(config).train(), shape_of_batch(rows, source_length, target_length)
    count = Count("meta", (*model.parameters(), *batch.values()))

    def counted(graph: Callable[..., Any], inputs: Any = None) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            with count:
                return graph(*values)

        return make_boxed_func(run)

    if compiled:
        model.compile(backend=aot_autograd(fw_compiler=counted, bw_compiler=counted), fullgraph=True)
    with nullcontext() if compiled else count:
        CROSS_ENTROPY(model, batch, batch["labels"].numel()).backward()
    return count.peak_memory
