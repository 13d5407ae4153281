"""A sparse network as a module of its own, with the function that code is made for."""

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialect.ops.constants import is_constant
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.symbolic_sizes import DIMS, NAME
from ...dialect.wanted_kernels import want_kernels, wanted_kernels


def network_module(network: SparseNetworkOp) -> ModuleOp:
    """Return a module whose function @main computes what a network does, of copies of its ops and constants."""
    body, block = network.body.block, Block(arg_types=[value.type for value in network.inputs])
    known: dict[SSAValue, SSAValue] = dict(zip(body.args, block.args, strict=True))
    for op in _with_constants(body):
        block.add_op(op.clone(value_mapper=known))
    results = [known[value] for value in network.yielded]
    block.add_op(ReturnOp(*results))
    arguments = [
        DictionaryAttr({NAME: StringAttr(f"x{index}"), DIMS: words}) for index, words in enumerate(network.dims)
    ]
    function = FuncOp(
        "main",
        FunctionType.from_lists([value.type for value in block.args], [value.type for value in results]),
        Region(block),
        arg_attrs=ArrayAttr(arguments),
        res_attrs=ArrayAttr([DictionaryAttr({NAME: StringAttr(f"y{index}")}) for index in range(len(results))]),
    )
    module = ModuleOp([function])
    want_kernels(module, wanted_kernels(network))
    return module


def _with_constants(body: Block) -> list[Operation]:
    """Return the ops of a body, before each the constants outside that it reads first, and without the yield."""
    found: dict[Operation, None] = {}
    for op in body.ops:
        found |= {
            value.owner: None for value in op.operands if is_constant(value) and isinstance(value.owner, Operation)
        }
        found[op] = None
    return [op for op in found if not isinstance(op, YieldOp)]
