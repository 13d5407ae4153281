"""A step of training on the parts of a graph: every rank owns some nodes, all ranks have the same weights.

Forward, ranks send each other the values of nodes that sums over remote edges read. Backward, all steps run in the
opposite order: a function computes the gradients of what it reads, those of received nodes return to their owners, and
these add them up. Each rank finds the gradients of weights by its own nodes; the sum over ranks is that of all nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.ops.graphs import OverEdgesOp
from ...dialect.ops.layers import LayerNormOp, LinearOp, RmsNormOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp
from ...dialect.tensors import f32_tensor, shape_of
from ...passes.runner import context
from ...training.native_step import StepOptions
from ...training.steps import Batch
from ..graph.row_graph import features_of
from ..parts.module_text import OWN, TRAINED, module_of, put_constants
from ..parts.node_program import GIVE, TAKE
from ..parts.steps import Call, Receive, Send
from ..run.load_part import LoadedPart
from ..run.node_steps import check_node_steps
from .trained_function import FlatCall, TrainedFunction, bound, sparse_where_zeros
from .trained_part import TrainedPart, ending_of

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = NDArray[np.float32]
Do = Callable[[], object]


class NodeRows(NamedTuple):
    """The first rows of a buffer."""

    buffer: int
    rows: int


class NodeStep(TrainedPart[NodeRows]):
    """The step of one rank, which all ranks run together, on the nodes that it owns.

    The gradient is that of the own nodes: `redpebble.training.replicas` adds those of all ranks up.
    """

    def __init__(self, comm: "Intracomm", loaded: LoadedPart, options: StepOptions) -> None:
        """Make the code of all functions; all ranks make theirs together.

        Raises:
            PartError: on all ranks, when the part of one has something without a derivative, or nothing to train.
        """
        super().__init__(comm, loaded, options)
        self.own: NDArray[np.int64] = np.array(loaded.part.outputs[0])
        self.make_together()
        self._share_values()

    def make(self) -> None:
        """Make the code.

        Raises:
            ValueError: something has no derivative, or the network is none that is trained.
        """
        module = module_of(self.part.text, context())
        put_constants(module, self.part.constants)
        functions = {func.sym_name.data: func for func in module.body.block.ops if isinstance(func, FuncOp)}
        self.shapes: dict[int, tuple[int, int]] = {}
        """Rows and features of the array of each buffer: a function may read or write more than the buffer keeps."""
        self.active: set[int] = set()
        """Buffers whose gradients are of use."""
        calls = [step for step in self.part.steps if isinstance(step, Call)]
        self.first, self.last = calls[0], calls[-1]
        for step in calls[1:-1]:
            if step.function not in functions:
                raise ValueError(f"the part is damaged: {step.function!r} is called, which does not exist")
            call = _flat(functions[step.function], step.buffers)
            function = TrainedFunction(call, lambda place: place.buffer in self.active, self.options)
            self.functions[step.function] = function
            if function.backward is not None:
                self.active |= {place.buffer for place in function.writes}
            values = (*call.func.args, *_returned(call.func))
            for place, value in zip((*call.reads, *call.writes), values, strict=True):
                self._widen(place.buffer, place.rows, features_of(value))
            if set(self.last.buffers) & {place.buffer for place in call.writes}:
                self.ending = ending_of(_returned(call.func))
        check_node_steps(self.part, {name: function.forward for name, function in self.functions.items()})
        for ends, ports in ((self.first, self.plan.inputs), (self.last, self.plan.outputs)):
            for buffer, port in zip(ends.buffers, ports, strict=True):
                self._widen(buffer, len(self.own), port.shape[-1].constant or 0)
        for number, buffer in enumerate(self.part.buffers):
            if number in self.shapes:
                self._widen(number, buffer.features, self.shapes[number][1])
        self.take_values()
        if self.functions and not len(self.values):
            raise ValueError("expected layers with weights to train, got none")

    def _widen(self, buffer: int, rows: int, features: int) -> None:
        """Let the array of a buffer have so many rows at least.

        Raises:
            ValueError: it has other features.
        """
        before, known = self.shapes.get(buffer, (0, features))
        if known != features:
            raise ValueError(f"the part is damaged: buffer {buffer} has {known} features, and {features}")
        self.shapes[buffer] = (max(before, rows), features)

    def _share_values(self) -> None:
        """Let all ranks begin with the same values; one without nodes has no functions, and takes those of others."""
        counts: list[int] = self.comm.allgather(len(self.values))
        first = next((rank for rank, count in enumerate(counts) if count), 0)
        held: Floats = self.comm.bcast(self.values if self.comm.rank == first else None, first)
        self.values, self.gradient = held, np.zeros(len(held), np.float32)
        self.put()

    def bind(self, feeds: Mapping[str, Floats], target: Floats) -> Batch:
        """Return the step for arrays of the own nodes, which are read at each run."""
        return BoundNodes(self, feeds, target).batch()


class BoundNodes:
    """The values of nodes on one rank, and what is done with them in order."""

    def __init__(self, step: NodeStep, feeds: Mapping[str, Floats], target: Floats) -> None:
        """Make the arrays, and bind all calls to them."""
        self.step, self.part, self.wire, self.feeds = step, step.part, step.wire, feeds
        self.values = {buffer: np.zeros(shape, np.float32) for buffer, shape in step.shapes.items()}
        self.gradients = {buffer: np.zeros(step.shapes[buffer], np.float32) for buffer in step.active}
        self.filled = set[int]()
        (output,) = step.last.buffers
        self.outputs = self.values[output][: len(step.own)]
        forward = [do for one in self.part.steps for do in self._forward(one)]
        backward = self._loss(output, target) if len(step.own) else []
        backward += [do for one in reversed(self.part.steps) for do in self._backward(one)]
        # where there are no nodes no call writes the gradient, which holds the sum over ranks of the step before
        clear: list[Do] = [] if step.functions else [lambda: step.gradient.fill(0)]
        self.all: list[Do] = [*clear, *forward, *backward, self.wire.finish]

    def batch(self) -> Batch:
        """Return the step."""

        def run() -> None:
            for do in self.all:
                do()

        return Batch(run, self.outputs)

    def _loss(self, output: int, target: Floats) -> list[Do]:
        """Return what writes the gradient of the loss at the own outputs."""
        loss = self.step.loss
        inputs = [tensor.name for tensor in loss.program.inputs]
        written, clear = self._first(NodeRows(output, len(target)))
        result = {loss.program.outputs[0].name: written}
        call = loss.bind(dict(zip(inputs, (self.outputs, target), strict=True)), result)
        return [*clear, call.run]

    def _first(self, place: NodeRows) -> tuple[Floats, list[Do]]:
        """Return where the first summand of a gradient is written, and what clears the rows behind it."""
        self.filled.add(place.buffer)
        array = self.gradients[place.buffer]
        behind = array[place.rows :]
        return array[: place.rows], [lambda: behind.fill(0)] if len(behind) else []

    def _forward(self, step: Call | Send | Receive) -> list[Do]:
        if isinstance(step, Call):
            return self._call(step)
        array, tag = self.values[step.buffer], 2 * step.tag
        kind = "forward" if step.buffer in self.gradients else "inputs"
        return [self._sending(step, array, tag, kind) if isinstance(step, Send) else self._receiving(step, array, tag)]

    def _call(self, step: Call) -> list[Do]:
        if step.function == GIVE:
            return []
        if step.function == TAKE:
            pairs = [
                (self.values[buffer][: len(self.step.own)], self.feeds[port.name])
                for buffer, port in zip(step.buffers, self.step.plan.inputs, strict=True)
            ]
            return [lambda: [np.copyto(array, feed) for array, feed in pairs]]
        function = self.step.functions[step.function]
        read, written = ([self.values[buffer][:rows] for buffer, rows in some] for some in _places(function))
        return [bound(function.forward, read, written).run]

    def _backward(self, step: Call | Send | Receive) -> list[Do]:
        if isinstance(step, Call):
            return self._call_back(self.step.functions[step.function]) if step.function in self.step.functions else []
        if step.buffer not in self.gradients:
            return []
        array, tag = self.gradients[step.buffer], 2 * step.tag + 1
        if isinstance(step, Receive):
            return [self._returning(step, array, tag)]
        clear: list[Do] = [] if step.buffer in self.filled else self._first(NodeRows(step.buffer, 0))[1]
        return [*clear, self._adding(step, array, tag)]

    def _sending(self, step: Send, array: Floats, tag: int, kind: str) -> Do:
        messages = [(route, np.empty((len(route.rows), array.shape[1]), np.float32)) for route in step.routes]

        def send() -> None:
            for route, message in messages:
                np.take(array, route.rows, axis=0, out=message, mode="clip")
                self.wire.send(message, route.rank, tag, kind)

        return send

    def _receiving(self, step: Receive, array: Floats, tag: int) -> Do:
        ranks = [route.rank for route in step.routes]
        places = [array[int(route.rows[0]) : int(route.rows[-1]) + 1] for route in step.routes]
        return lambda: self.wire.receive(places, ranks, tag)

    def _returning(self, step: Receive, array: Floats, tag: int) -> Do:
        """Send gradients of received nodes to their owners; what is behind in the order finds none."""
        places = [array[int(route.rows[0]) : int(route.rows[-1]) + 1] for route in step.routes]
        messages = [(route.rank, place, np.empty_like(place)) for route, place in zip(step.routes, places, strict=True)]

        def give_back() -> None:
            for rank, place, message in messages:
                message[...] = place
                place.fill(0)
                self.wire.send(message, rank, tag, "backward")

        return give_back

    def _adding(self, step: Send, array: Floats, tag: int) -> Do:
        """Add the gradients that return of own nodes."""
        ranks = [route.rank for route in step.routes]
        messages = [np.empty((len(route.rows), array.shape[1]), np.float32) for route in step.routes]

        def add() -> None:
            self.wire.receive(messages, ranks, tag)
            for route, message in zip(step.routes, messages, strict=True):
                array[route.rows] += message

        return add

    def _call_back(self, function: TrainedFunction[NodeRows]) -> list[Do]:
        """Return the steps that compute the gradients of a call's arguments and constants, and accumulate them."""
        if function.backward is None:
            return []
        read, written = ([self.values[buffer][:rows] for buffer, rows in some] for some in _places(function))
        read += [*written, *(self.gradients[buffer][:rows] for buffer, rows in function.writes)]
        before, found, added = list[Do](), list[Floats](), list[tuple[Floats, Floats]]()
        for place in function.wanted:
            if place.buffer not in self.filled:
                array, clear = self._first(place)
                before += clear
            else:
                total = self.gradients[place.buffer][: place.rows]
                array = np.empty_like(total)
                added.append((total, array))
            found.append(array)
        call = bound(function.backward, read, [*found, *self.step.gradients_of(function)])

        def add() -> None:
            for total, one in added:
                np.add(total, one, out=total)

        return [*before, call.run, add]


def _places(function: TrainedFunction[NodeRows]) -> tuple[Sequence[NodeRows], Sequence[NodeRows]]:
    return function.reads, function.writes


def _flat(func: FuncOp, buffers: Sequence[int]) -> FlatCall[NodeRows]:
    """Return the call of a function on buffers, its ops outside tiles and its trained constants marked as such."""
    for op in func.walk():
        for constant in _parameters(op):
            constant.attributes[TRAINED] = IntAttr(OWN)
    block = Block(arg_types=[value.type for value in func.args])
    mapped: dict[SSAValue, SSAValue] = dict(zip(func.args, block.args, strict=True))
    for op in func.body.block.ops:
        match op:
            case ConstantOp() | SparseConstantOp():
                copy = sparse_where_zeros(op)
                block.add_op(copy)
                mapped[op.results[0]] = copy.results[0]
            case TileOp():
                _add_tile(block, op, mapped)
            case _:
                block.add_op(op.clone(mapped))
    flat = FuncOp("main", func.function_type, Region(block))
    values = (*flat.args, *_returned(flat))
    if len(values) != len(buffers):
        raise ValueError(f"the part is damaged: {len(buffers)} operands for {len(values)} arguments and results")
    places = [NodeRows(buffer, shape_of(value)[0]) for buffer, value in zip(buffers, values, strict=True)]
    return FlatCall(flat, places[: len(flat.args)], places[len(flat.args) :])


def _add_tile(block: Block, tile: TileOp, mapped: dict[SSAValue, SSAValue]) -> None:
    """Add the ops of a tile for as many rows as it has."""
    rows = shape_of(tile.inputs[0])[0]
    mapped |= {inner: mapped[outer] for inner, outer in zip(tile.body.block.args, tile.inputs, strict=True)}
    for op in tile.body.block.ops:
        if isinstance(op, YieldOp):
            mapped |= {outer: mapped[inner] for outer, inner in zip(tile.outputs, op.operands, strict=True)}
            return
        copy = op.clone(mapped)
        for result, copied in zip(op.results, copy.results, strict=True):
            if not isinstance(op, ConstantOp | SparseConstantOp):
                kind = f32_tensor((rows, features_of(result)))
                mapped[result] = Rewriter.replace_value_with_new_type(copied, kind)
        block.add_op(copy)


def _parameters(op: Operation) -> list[ConstantOp | SparseConstantOp]:
    """Return the constants of an op that are trained: weights, biases, and scales of more than one value."""
    match op:
        case LinearOp():
            operands = [op.weight, op.bias]
        case OverEdgesOp():
            operands = [op.bias]
        case LayerNormOp() | RmsNormOp():
            operands = list(op.operands[1:])
        case _:
            operands = []
    owners = [operand.owner for operand in operands if operand is not None]
    return [
        owner
        for owner in owners
        if isinstance(owner, SparseConstantOp) or (isinstance(owner, ConstantOp) and owner.array.size > 1)
    ]


def _returned(func: FuncOp) -> list[SSAValue]:
    end = func.body.block.last_op
    return list(end.operands) if isinstance(end, ReturnOp) else []
