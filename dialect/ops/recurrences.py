"""Recurrences: layers whose state at one step is an input of the next one, and the loop that they become."""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr, UnitAttr, f64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    EqAttrConstraint,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..tensors import DENSE_TENSOR, DYNAMIC, Shape, compatible, f32_tensor, shape_of, shape_text
from .axis_maps import Axes, AxisMap, HasAxisMap, RowMajor, own_axes
from .constants import constant_array
from .foreign import INT32
from .regions import verify_operands, verify_yield, yielded_by


class CellKind(NamedTuple):
    """Facts of a kind of cell: gates, states, the activations of a direction by default, and the operator of ONNX."""

    gates: int
    states: int
    activations: tuple[str, ...]
    operator: str


CELLS: Final = {
    "lstm": CellKind(4, 2, ("sigmoid", "tanh", "tanh"), "LSTM"),
    "gru": CellKind(3, 1, ("sigmoid", "tanh"), "GRU"),
    "rnn": CellKind(1, 1, ("tanh",), "RNN"),
}
"""Kind of a cell -> its facts; gates follow each other as ONNX has them: i o f c, z r h."""

DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Direction -> whether each of the recurrences side by side begins with the last step."""


class Cell(NamedTuple):
    """A cell of a recurrence; see `RecurrenceOp`."""

    kind: str
    direction: str
    activations: tuple[ActivationAttr, ...]
    clip: float = 0.0
    linear_before_reset: bool = False


class RecurrenceInputs(NamedTuple):
    """Operands of a recurrence, those that may be left out last."""

    x: SSAValue
    weight: SSAValue
    recurrent: SSAValue
    bias: SSAValue | None = None
    lengths: SSAValue | None = None
    start_h: SSAValue | None = None
    start_c: SSAValue | None = None
    peepholes: SSAValue | None = None


class _RecurrenceAxes(HasAxisMap):
    """Samples stay apart; all other axes have an order that the op relies on."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, RecurrenceOp)
        axes: dict[SSAValue, Axes] = {op.x: ("t", "b", "i"), op.weight: ("d", "g", "i"), op.recurrent: ("d", "g", "h")}
        axes |= {value: ("d", "b", "h") for value in (op.start_h, op.start_c) if value is not None}
        if op.lengths is not None:
            axes[op.lengths] = ()  # no tensor of the IR
        operands = [
            axes[value] if value in axes else own_axes(value, f"p{index}.") for index, value in enumerate(op.operands)
        ]
        constants = {op.weight, op.recurrent, op.bias, op.peepholes}
        parameters = frozenset(index for index, value in enumerate(op.operands) if value in constants)
        results: list[Axes] = [("t", "d", "b", "h"), *[("d", "b", "h")] * (len(op.results) - 1)]
        return AxisMap.in_order(operands, results, "b", parameters)


@irdl_op_definition
class RecurrenceOp(IRDLOperation):
    """LSTM, GRU or RNN as ONNX defines them: x [T, B, I] gives the states of all steps, and those after the last one.

    With G gates of H values and D directions: weight [D, G H, I], recurrent weight [D, G H, H], bias [D, 2 G H],
    lengths [B] of the sequences, states before the first step [D, B, H], peepholes [D, 3 H]. Results are the states h
    of all steps [T, D, B, H], 0 behind the end of a sequence, and the last h, of an LSTM also the last c, [D, B, H].
    `activations` are those of one direction after the other. `clip` bounds what gates are made of, to both sides.

    ```mlir
    %y, %h = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>,
        #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x24x4xf32>, tensor<1x24x8xf32>)
        -> (tensor<?x1x?x8xf32>, tensor<1x?x8xf32>)
    ```
    """

    name = "pebble.recurrence"

    x = operand_def(DENSE_TENSOR)
    weight = operand_def(DENSE_TENSOR)
    recurrent = operand_def(DENSE_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    lengths = opt_operand_def(EqAttrConstraint(INT32))
    start_h = opt_operand_def(DENSE_TENSOR)
    start_c = opt_operand_def(DENSE_TENSOR)
    peepholes = opt_operand_def(DENSE_TENSOR)
    kind = prop_def(StringAttr)
    direction = prop_def(StringAttr)
    activations = prop_def(ArrayAttr[ActivationAttr])
    clip = opt_prop_def(FloatAttr.constr(f64))
    linear_before_reset = opt_prop_def(UnitAttr)
    outputs = var_result_def(DENSE_TENSOR)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), _RecurrenceAxes())
    assembly_format: ClassVar = (
        "$kind $direction $x `,` $weight `,` $recurrent (`bias` $bias^ `:` type($bias))? (`lengths` $lengths^)? "
        "(`start_h` $start_h^ `:` type($start_h))? (`start_c` $start_c^ `:` type($start_c))? "
        "(`peepholes` $peepholes^ `:` type($peepholes))? `activations` $activations "
        "(`clip` $clip^)? (`linear_before_reset` $linear_before_reset^)? attr-dict "
        "`:` `(` type($x) `,` type($weight) `,` type($recurrent) `)` `->` `(` type($outputs) `)`"
    )

    def __init__(self, inputs: RecurrenceInputs, cell: Cell) -> None:
        (steps, samples, _), (directions, _, hidden) = shape_of(inputs.x), shape_of(inputs.recurrent)
        last = f32_tensor((directions, samples, hidden))
        super().__init__(
            operands=list(inputs),
            properties={
                "kind": StringAttr(cell.kind),
                "direction": StringAttr(cell.direction),
                "activations": ArrayAttr(cell.activations),
                "clip": FloatAttr(cell.clip, f64) if cell.clip else None,
                "linear_before_reset": UnitAttr() if cell.linear_before_reset else None,
            },
            result_types=[[f32_tensor((steps, directions, samples, hidden)), *[last] * CELLS[cell.kind].states]],
        )

    @property
    def cell(self) -> Cell:
        """The cell, and the order of steps."""
        clip = 0.0 if self.clip is None else self.clip.value.data
        before = self.linear_before_reset is not None
        return Cell(self.kind.data, self.direction.data, self.activations.data, clip, before)

    @property
    def hidden(self) -> int:
        """Values of a state of one direction."""
        return shape_of(self.recurrent)[2]

    @property
    def weight_arrays(self) -> list[NDArray[np.float32]]:
        """The weights of inputs and of states, as far as they are constants."""
        arrays = (constant_array(value) for value in (self.weight, self.recurrent))
        return [array for array in arrays if array is not None]

    @property
    def starts(self) -> list[SSAValue]:
        """The states before the first step, as far as they are operands."""
        return [value for value in (self.start_h, self.start_c) if value is not None]

    def verify_(self) -> None:
        kind, directions = CELLS.get(self.kind.data), DIRECTIONS.get(self.direction.data)
        if kind is None:
            raise VerifyException(f"expected a cell of {', '.join(CELLS)}, got {self.kind.data!r}")
        if directions is None:
            raise VerifyException(f"expected a direction of {', '.join(DIRECTIONS)}, got {self.direction.data!r}")
        count, expected = len(directions), len(directions) * len(kind.activations)
        if len(self.activations) != expected:
            raise VerifyException(f"expected {expected} activations, got {len(self.activations)}")
        if self.start_c is not None and (self.start_h is None or kind.states < 2):
            raise VerifyException("expected start_c beside the start_h of an lstm alone")
        if self.peepholes is not None and self.kind.data != "lstm":
            raise VerifyException(f"expected peepholes of an lstm, got those of a {self.kind.data}")
        x, recurrent = shape_of(self.x), shape_of(self.recurrent)
        if len(x) != 3 or x[2] == DYNAMIC:
            raise VerifyException(f"expected x of steps by samples by a known number, got {shape_text(x)}")
        if len(recurrent) != 3 or recurrent[2] < 1:
            raise VerifyException(f"expected a recurrent weight of rank 3, got {shape_text(recurrent)}")
        hidden, gates, state = recurrent[2], kind.gates * recurrent[2], (count, x[1], recurrent[2])
        wanted: list[tuple[str, SSAValue | None, Shape]] = [
            ("weight", self.weight, (count, gates, x[2])),
            ("recurrent weight", self.recurrent, (count, gates, hidden)),
            ("bias", self.bias, (count, 2 * gates)),
            ("start_h", self.start_h, state),
            ("start_c", self.start_c, state),
            ("peepholes", self.peepholes, (count, 3 * hidden)),
            *(("last state", value, state) for value in self.outputs[1:]),
        ]
        if len(self.outputs) != 1 + kind.states:
            raise VerifyException(f"expected {1 + kind.states} results, got {len(self.outputs)}")
        wanted.append(("states", self.outputs[0], (x[0], *state)))
        for word, value, shape in wanted:
            if value is not None and not compatible(shape_of(value), shape):
                raise VerifyException(f"expected {word} {shape_text(shape)}, got {shape_text(shape_of(value))}")


class _ScanAxes(HasAxisMap):
    """Samples stay apart; steps and features have an order that the op relies on."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, ScanOp)
        count = len(op.finals)
        starts: list[Axes] = [("b", f"k{index}") for index in range(len(op.starts))]
        operands: list[Axes] = [("t", "b", "k"), *starts, *[()] * (op.lengths is not None)]
        results: list[Axes] = [("t", "b", "k0"), *[("b", f"k{index}") for index in range(count)]]
        return AxisMap.in_order(operands, results, "b")


@irdl_op_definition
class ScanOp(IRDLOperation):
    """A loop over the steps of x [T, B, K]: the body makes the states of a step from x and the states before it.

    States are [B, H]; `starts` are the first ones before the first step, and those that are left out are 0. Results are
    the first state of all steps [T, B, H], and all states after the last one. With `reverse` the last step comes first.
    Of sample b only the first `lengths[b]` steps count: the others change no state, and their results are 0; so are the
    last states of a sample without steps, where there are lengths. Inside,
    values have rows of unknown number; only constants are used from outside. What runs there stays in the cache from
    step to step, if it fits.

    ```mlir
    %y, %h = pebble.scan %x : tensor<?x?x8xf32> -> (tensor<?x?x8xf32>, tensor<?x8xf32>) {
    ^bb0(%step : tensor<?x8xf32>, %before : tensor<?x8xf32>):
      %r = pebble.linear %before, %w : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
      %after = pebble.add %step, %r : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
      pebble.yield %after : tensor<?x8xf32>
    }
    ```
    """

    name = "pebble.scan"

    x = operand_def(DENSE_TENSOR)
    starts = var_operand_def(DENSE_TENSOR)
    lengths = opt_operand_def(EqAttrConstraint(INT32))
    reverse = opt_prop_def(UnitAttr)
    sequence = result_def(DENSE_TENSOR)
    finals = var_result_def(DENSE_TENSOR)
    body = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure(), _ScanAxes(), RowMajor())
    assembly_format: ClassVar = (
        "$x (`starts` $starts^ `:` type($starts))? (`lengths` $lengths^)? (`reverse` $reverse^)? attr-dict "
        "`:` type($x) `->` `(` type($sequence) `,` type($finals) `)` $body"
    )

    def __init__(
        self, x: SSAValue, starts: Sequence[SSAValue], lengths: SSAValue | None, body: Region, *, reverse: bool = False
    ) -> None:
        steps, samples, _ = shape_of(x)
        features = [shape_of(value)[-1] for value in yielded_by(body)]
        super().__init__(
            operands=[x, list(starts), lengths],
            properties={"reverse": UnitAttr() if reverse else None},
            result_types=[
                f32_tensor((steps, samples, features[0])),
                [f32_tensor((samples, count)) for count in features],
            ],
            regions=[body],
        )

    @staticmethod
    def body_for(x: SSAValue, states: Sequence[int]) -> Region:
        """Return an empty body for steps of x, and states of these numbers of features."""
        return Region(Block(arg_types=[f32_tensor((DYNAMIC, count)) for count in (shape_of(x)[-1], *states)]))

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The states after a step."""
        return yielded_by(self.body)

    def verify_(self) -> None:
        verify_yield(self.body)
        shape, block, states = shape_of(self.x), self.body.block, self.yielded
        if len(shape) != 3 or shape[2] == DYNAMIC:
            raise VerifyException(f"expected x of steps by samples by a known number, got {shape_text(shape)}")
        if not states or len(block.args) != 1 + len(states) or len(self.finals) != len(states):
            counts = f"{len(block.args)} arguments, {len(states)} states, {len(self.finals)} results"
            raise VerifyException(
                f"expected a step, and as many states before it, after it and as results, got {counts}"
            )
        if len(self.starts) > len(states):
            raise VerifyException(f"expected {len(states)} states to start with at most, got {len(self.starts)}")
        features = [shape_of(value)[-1] for value in states]
        wanted = [
            *(
                ("argument", value, (DYNAMIC, count))
                for value, count in zip(block.args, (shape[2], *features), strict=True)
            ),
            *(("state", value, (DYNAMIC, count)) for value, count in zip(states, features, strict=True)),
            *(("start", value, (shape[1], count)) for value, count in zip(self.starts, features, strict=False)),
            *(("result", value, (shape[1], count)) for value, count in zip(self.finals, features, strict=True)),
            ("result", self.sequence, (*shape[:2], features[0])),
        ]
        for word, value, expected in wanted:
            if not compatible(shape_of(value), expected) or DYNAMIC in shape_of(value)[-1:]:
                raise VerifyException(f"expected {word} {shape_text(expected)}, got {shape_text(shape_of(value))}")
        for op in block.ops:
            verify_operands(op, block)
