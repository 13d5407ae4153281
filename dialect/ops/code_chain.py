"""Chains of layers on codes: what a tile of bytes holds, from what it reads to what it yields, floats or codes.

```mlir
%q = pebble.convert %x : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<u8 scale 0.05 zero 128>>
%h = pebble.linear %q, %w bias %b times %m activation <relu> : ... -> tensor<?x3x!pebble.codes<u8 scale 0.1 zero 0>>
%y = pebble.linear %h, %v bias %c times %n : ... -> tensor<?x2xf32>
```
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Operation, SSAValue

from ..attributes.codes import CodesAttr, codes_in
from ..attributes.kernels import KernelAttr
from .elementwise import ConvertOp
from .layers import LinearOp
from .quantized_layers import QuantizedLayer
from .tile import TileOp
from .tile_chain import only_reader


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


def chain_in(op: Operation) -> CodeChain | None:
    """Return the chain that a step computes: that of a tile, or a layer by itself that finds its codes; else None."""
    if isinstance(op, LinearOp):
        return CodeChain((op,)) if op.codes is not None else None
    if not isinstance(op, TileOp):
        return None
    *inner, _ = op.body.block.ops
    chains = code_chains(inner)
    return chains[0] if len(chains) == 1 and len(chains[0].ops) == len(inner) else None
