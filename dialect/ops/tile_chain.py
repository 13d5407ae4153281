"""Chains of layers, which tiles run: as a list, on codes with the rounding at their ends, and as a graph of neurons.

```mlir
%q = pebble.convert %x : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<u8 scale 0.05 zero 128>>
%h = pebble.linear %q, %w bias %b times %m activation <relu> : ... -> tensor<?x3x!pebble.codes<u8 scale 0.1 zero 0>>
%y = pebble.linear %h, %v bias %c times %n : ... -> tensor<?x2xf32>
```

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from ...sparse.csr import CscMatrix
from ...sparse.neuron_graph import chain_graph
from ..attributes.codes import CodesAttr, codes_in
from ..attributes.kernels import KernelAttr
from ..attributes.weighted_graph import WeightedGraph
from ..tensors import shape_of
from .constants import SparseConstantOp, constant_array
from .elementwise import ConvertOp
from .layers import LinearOp
from .quantized_layers import QuantizedLayer


def chain_of(body: Block) -> list[LinearOp]:
    """Return the layers of a tile's body that is nothing but a chain of them from its argument to its result.

    Layers on codes may have what rounds their input before them, and what makes floats of their codes behind them.
    Nothing is returned for any other body.
    """
    *ops, end = body.ops
    if len(body.args) != 1 or len(end.operands) != 1:
        return []
    steps: list[LinearOp | ConvertOp] = []
    reader = only_reader(body.args[0])
    while isinstance(reader, LinearOp | ConvertOp):
        steps.append(reader)
        reader = only_reader(reader.result)
    layers = [step for step in steps if isinstance(step, LinearOp)]
    on_floats = len(layers) == len(steps) and all(layer.times is None for layer in layers)
    on_codes = [chain.ops for chain in code_chains(steps)] == [tuple(steps)]
    return layers if reader is end and len(steps) == len(ops) and (on_floats or on_codes) else []


def only_reader(value: SSAValue) -> Operation | None:
    """Return the op that alone reads a value, as its first operand."""
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 and uses[0].index == 0 else None


@dataclass(frozen=True)
class CodeChain:
    """Layers on codes, each of which reads what the one before it yields, and the rounding before and behind them."""

    ops: tuple[Operation, ...]

    @cached_property
    def linears(self) -> list[LinearOp]:
        """The layers in the order in which they run."""
        return [op for op in self.ops if isinstance(op, LinearOp)]

    @cached_property
    def layers(self) -> list[QuantizedLayer]:
        """The same as parameters of sums."""
        return [op.on_codes for op in self.linears]

    @property
    def x(self) -> SSAValue:
        """The input."""
        return self.ops[0].operands[0]

    @property
    def result(self) -> SSAValue:
        """The result."""
        return self.ops[-1].results[0]

    @property
    def kernel(self) -> KernelAttr | None:
        """The families by rows, the same for all layers."""
        return self.linears[0].kernel

    @property
    def codes(self) -> CodesAttr:
        """The codes of the input."""
        return self.layers[0].codes

    @property
    def output(self) -> CodesAttr | None:
        """The codes that the result is rounded to, or None."""
        return codes_in(self.linears[-1].result.type)

    @property
    def is_dynamic(self) -> bool:
        """Whether the codes of the input are found at each call."""
        return self.codes.is_dynamic

    @property
    def reads_bytes(self) -> bool:
        """Whether the input is codes."""
        return codes_in(self.x.type) is not None

    @property
    def yields_bytes(self) -> bool:
        """Whether the result is codes."""
        return codes_in(self.result.type) is not None

    def following(self, index: int) -> CodesAttr | None:
        """Return the codes to which the results of a layer are rounded, or None."""
        return codes_in(self.linears[index].result.type)


def code_chains(ops: Iterable[Operation]) -> list[CodeChain]:
    """Return the chains of layers among ops in block order, each as long as values have one reader."""
    chains: list[CodeChain] = []
    taken: set[Operation] = set()
    for op in ops:
        if not isinstance(op, LinearOp) or op.codes is None or op in taken:
            continue
        chain: list[Operation] = [op]
        if isinstance(op.x.owner, ConvertOp) and op.x.has_one_use() and not op.finds_codes:
            chain.insert(0, op.x.owner)
        following = _following(op)
        while following is not None:
            chain.append(following)
            following = _following(following)
        taken.update(chain)
        chains.append(CodeChain(tuple(chain)))
    return chains


def _following(op: Operation) -> Operation | None:
    """Return what alone reads the codes that a layer yields, and computes with them."""
    reader = only_reader(op.results[0])
    if not isinstance(op, LinearOp) or codes_in(op.result.type) is None or reader is None:
        return None
    return reader if isinstance(reader, LinearOp | ConvertOp) and reader.parent is op.parent else None


def weighted_graph_of(layers: Sequence[LinearOp]) -> WeightedGraph:
    """Return a chain of layers as one graph: the inputs are the first neurons, then the outputs of each layer.

    Raises:
        ValueError: a weight is not stored sparse, or a bias is no constant.
    """
    weights, biases = [_weight(layer) for layer in layers], [_bias(layer) for layer in layers]
    activations = tuple(dict.fromkeys(layer.activation for layer in layers if layer.activation is not None))
    numbers = [-1 if layer.activation is None else activations.index(layer.activation) for layer in layers]
    return WeightedGraph(
        chain_graph([weight.pattern for weight in weights]),
        np.concatenate([weight.values for weight in weights]),
        np.concatenate(biases),
        activations,
        np.repeat(numbers, [len(bias) for bias in biases]),
    )


def _weight(layer: LinearOp) -> CscMatrix:
    constant = layer.weight.owner
    if isinstance(constant, SparseConstantOp):
        return constant.weight
    raise ValueError("a weight is not stored sparse")


def _bias(layer: LinearOp) -> NDArray[np.float32]:
    bias = np.zeros(shape_of(layer.weight)[1], dtype=np.float32) if layer.bias is None else constant_array(layer.bias)
    if bias is None:
        raise ValueError("a bias is no constant")
    return bias
