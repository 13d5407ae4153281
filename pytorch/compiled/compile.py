"""`redpebble.torch.compile`: a module whose calls run a session of the module as it is now."""

import inspect
from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...foundation.errors import RedpebbleError
from ..batches import Batch, Output
from ..torch_zeros import is_sparse
from .onnx_bytes import Shapes, evaluating, exportable, onnx_bytes
from .tensor_session import Session, TensorSession, difference

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class CompiledModule(nn.Module):
    """A module that answers as the one it was made of, in evaluation mode, by a session of onnxruntime with our code.

    It has no parameters, and is copied and pickled as its ONNX model: `torch.save(compiled, path)` makes one file.
    """

    def __init__(self, running: TensorSession, signature: inspect.Signature, call: "_Call", outputs: "_Call") -> None:
        super().__init__()
        self._running, self._signature = running, signature
        self._call, self._outputs = call, outputs

    @property
    def model(self) -> bytes:
        """The ONNX model, which `redpebble optimize`, `bench` and all others take from a file."""
        return self._running.model

    @property
    def session(self) -> Session:
        """The session of onnxruntime."""
        return self._running.session

    def forward(self, *arguments: Any, **named: Any) -> Output:  # noqa: ANN401
        """Return what the module returns; outputs have no gradients.

        Raises:
            ValueError: arguments are not those of the example, or inputs are to have gradients.
        """
        if named or len(arguments) != self._call.plain_tensors or not all(isinstance(one, Tensor) for one in arguments):
            arguments = self._call.tensors_of(_flat(self._signature, arguments, named))
        if torch.is_grad_enabled() and any(one.requires_grad for one in arguments):
            raise ValueError("inputs: expected tensors without gradients, or torch.no_grad(), got one with a gradient")
        return self._outputs.filled(self._running(arguments))


class _Call:
    """The form of arguments or of results: where tensors are, and what stands between them."""

    def __init__(self, values: Output) -> None:
        self._form: Any
        leaves, self._form = pytree.tree_flatten(values)
        self._rest = [None if isinstance(one, Tensor) else (one,) for one in leaves]
        self.plain_tensors = -1
        """The number of tensors in a call that has nothing else, and no names; -1 for other calls."""
        if pytree.tree_structure(((0,) * len(leaves), {})) == self._form and not any(self._rest):
            self.plain_tensors = len(leaves)
        self._is_tensor = isinstance(values, Tensor)

    def tensors_of(self, values: Arguments) -> tuple[Tensor, ...]:
        leaves, form = pytree.tree_flatten(values)
        if form != self._form:
            raise ValueError(f"arguments: expected {_words(self._form)}, as in the example, got {_words(form)}")
        for rest, leaf in zip(self._rest, leaves, strict=True):
            if rest is None and not isinstance(leaf, Tensor):
                raise ValueError(f"argument: expected a tensor, as in the example, got {leaf!r}")
            if rest is not None and (isinstance(leaf, Tensor) or leaf != rest[0]):
                got = f"a tensor {list(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)
                raise ValueError(f"argument: expected {rest[0]!r}, as in the example, got {got}")
        return tuple(leaf for rest, leaf in zip(self._rest, leaves, strict=True) if rest is None)

    def filled(self, tensors: list[Tensor]) -> Output:
        if self._is_tensor:
            return tensors[0]
        found = iter(tensors)
        return pytree.tree_unflatten([next(found) if rest is None else rest[0] for rest in self._rest], self._form)


class _TensorsOnly(nn.Module):
    """A module without those of its outputs that are no tensors, which torch does not export."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

        @wraps(module.forward)  # of the same signature, by which axes are named
        def forward(*arguments: object, **named: object) -> tuple[Tensor, ...]:
            return tuple(one for one in pytree.tree_leaves(module(*arguments, **named)) if isinstance(one, Tensor))

        self.forward = forward


def compile(  # noqa: A001
    module: nn.Module,
    example: Batch,
    *,
    dynamic_shapes: Shapes = None,
    threads: int | None = None,
    rows: int = 0,
) -> CompiledModule:
    """Return a module that runs a session of `module` as it is now: its weights, in evaluation mode, on the CPU.

    The `example` is a batch as `prune` takes it: a mapping of keyword arguments, a tuple of arguments, or one tensor.
    First axes of its tensors are free; so are axes that `torch._dynamo.mark_dynamic` marked, and not those marked
    as static. `dynamic_shapes`, as `torch.export.export` takes them, say it otherwise. All that is no tensor is part
    of the module. `threads` are torch's where none are said, and `rows` is that of `redpebble.session`.

    Masks of `torch.nn.utils.prune`, parametrizations and sparse layouts are read as weights. Layers that do not gain
    are left to onnxruntime. The session's answer to the example is compared with the module's.

    Raises:
        UnsupportedModelError: torch cannot export the module.
        RedpebbleError: the session's answer is not the module's.
        ValueError: threads are negative.
    """
    count: int = torch.get_num_threads() if threads is None else threads
    if count < 0:
        raise ValueError(f"threads: expected 0 or more, got {count}")
    name = type(module).__name__
    arguments, named = _arguments_of(example)
    signature = inspect.signature(module.forward)
    form = _flat(signature, arguments, named)
    call = _Call(form)
    with evaluating(module):
        answer = _answer(module, form)
        with exportable(module):
            answer = module(*form[0], **form[1]) if answer is None else answer
            outputs, tensors = _Call(answer), _TensorsOnly(module)
            free = _free_axes(signature, form) if dynamic_shapes is None else dynamic_shapes
            several = form if dynamic_shapes is not None else pytree.tree_map(_of_two, form)
            try:
                model = onnx_bytes(tensors, several[0], several[1], free, name)
            except RedpebbleError:
                if several is form:
                    raise
                # an argument whose first axis is one is not always a batch of one
                model = onnx_bytes(tensors, form[0], form[1], free, name)
    running = TensorSession(model, count, rows)
    expected = [one for one in pytree.tree_leaves(answer) if isinstance(one, Tensor)]
    differs = difference(expected, running(call.tensors_of(form)))
    if differs:
        raise RedpebbleError(f"{name}: {differs}")
    return CompiledModule(running, signature, call, outputs)


def _answer(module: nn.Module, form: Arguments) -> Output:
    """Return what a module answers; None where torch has no product with one of its sparse layouts."""
    try:
        return module(*form[0], **form[1])
    except RuntimeError:
        if not any(is_sparse(one) for one in module.parameters()):
            raise
        return None


def _arguments_of(example: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), {**cast("Mapping[str, Any]", example)}
    return (tuple(cast("Sequence[Any]", example)) if isinstance(example, tuple | list) else (example,)), {}


def _flat(signature: inspect.Signature, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Arguments:
    """Return arguments in the order of their names, however a call states them."""
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:
        raise ValueError(f"arguments: expected {signature}, got {error}") from error
    return bound.args, bound.kwargs


def _free_axes(signature: inspect.Signature, form: Arguments) -> Shapes:
    return pytree.tree_map(_marked, dict(signature.bind(*form[0], **form[1]).arguments))


def _marked(value: object) -> dict[int, Any] | None:
    if not isinstance(value, Tensor):
        return None
    marks = {axis for kind in ("", "_weak") for axis in getattr(value, f"_dynamo{kind}_dynamic_indices", ())}
    first = {0} if value.dim() else set[int]()
    static = getattr(value, "_dynamo_static_indices", set[int]())
    return dict.fromkeys(sorted((first | marks) - static), torch.export.Dim.AUTO)


def _of_two(value: object) -> object:
    """Return a batch of two for a batch of one: torch takes an axis of one for one that is always so."""
    if not isinstance(value, Tensor) or not value.dim() or value.shape[0] != 1:
        return value
    if 0 in getattr(value, "_dynamo_static_indices", ()):
        return value
    return torch.cat([value, value])


def _words(form: pytree.TreeSpec) -> str:
    return f"{form.num_leaves} values"
