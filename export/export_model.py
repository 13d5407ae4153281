"""A standard ONNX model from the `pebble` dialect: the IR says which nodes there are, the original all else."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.foreign import ForeignOp
from ..dialect.ops.sparse_network import SparseNetworkOp
from .graph_writer import GraphWriter
from .original import Original
from .save_model import has_external_weights, remember_external_weights
from .sparse_networks.node_and_function import allow_functions


class Exported(NamedTuple):
    """A model, and the identities of the nodes that stand for sparse networks."""

    model: ir.Model
    identities: Mapping[SparseNetworkOp, str]


def export_model(module: ModuleOp, original: ir.Model) -> ir.Model:
    """Return the model of `exported`."""
    return exported(module, original).model


def exported(module: ModuleOp, original: ir.Model) -> Exported:
    """Return a model that computes what `module` says, in standard operators and nodes of ours.

    Everything that the IR does not hold comes from `original`, which stays as it is: graph inputs and outputs with
    their names, types and symbolic sizes, metadata, doc strings, functions, foreign nodes, IR version (raised
    where sparse networks need functions) and opsets.

    Raises:
        ValueError: the module is not one of `original`, or holds an op that ONNX has no form for.
    """
    main = _main(module)
    arguments = _argument_names(main)
    copy = original.clone()
    if any(isinstance(op, SparseNetworkOp) for op in main.body.block.ops):
        allow_functions(copy)
    taken_apart = Original(copy, frozenset(arguments))
    writer = GraphWriter(taken_apart, main.body.block)
    writer.bind_arguments(arguments)
    for op in main.body.block.ops:
        match op:
            case ConstantOp() | SparseConstantOp():
                continue
            case ForeignOp():
                writer.place_foreign(op)
            case SparseNetworkOp():
                writer.write_network(op)
            case ReturnOp():
                writer.finish(op)
            case _:
                writer.write(op)
    if has_external_weights(original):
        remember_external_weights(taken_apart.model)
    return Exported(taken_apart.model, writer.identities)


def _main(module: ModuleOp) -> FuncOp:
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main":
            return op
    raise ValueError("the module has no function @main")


def _argument_names(main: FuncOp) -> Sequence[str]:
    attributes = main.arg_attrs
    names = [_name(entry) for entry in attributes] if isa(attributes, ArrayAttr[DictionaryAttr]) else []
    if len(names) != len(main.body.block.args) or not all(names):
        raise ValueError("function @main has arguments without pebble.name, expected one for each")
    return names


def _name(entry: DictionaryAttr) -> str:
    name: Attribute | None = entry.data.get("pebble.name")
    return name.data if isinstance(name, StringAttr) else ""
