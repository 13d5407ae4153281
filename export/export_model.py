"""A standard ONNX model from the `pebble` dialect: the IR says which nodes there are, the original all else."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import onnx_ir as ir
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.utils.hints import isa

from ..dialect.attributes.codes import codes_in
from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.foreign import ForeignOp
from ..dialect.ops.sparse_network import SparseNetworkOp
from ..frontend.reading.model_file import OVERRIDABLE_SINCE
from .node_reads import defined_inside, replace_reads, values_read
from .operators.table import emit
from .original import Original
from .save_model import has_external_weights, remember_external_weights
from .sparse_networks.node_and_function import SparseNetworks, allow_functions
from .sparse_networks.node_content import written
from .sparse_networks.node_format import node_identity
from .writing.constant_origins import ConstantOrigin, Form, origin_of
from .writing.initializers import Initializers
from .writing.node_builder import NodeBuilder
from .writing.node_names import Names, Naming


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
        raise ValueError("function @main: expected a pebble.name for each argument, got arguments without")
    return names


def _name(entry: DictionaryAttr) -> str:
    name: Attribute | None = entry.data.get("pebble.name")
    return name.data if isinstance(name, StringAttr) else ""


# The graph under construction: values of the IR and their ONNX values, node after node.

CODE_TYPES: Final = {"u8": ir.DataType.UINT8, "s8": ir.DataType.INT8}


class GraphWriter:
    """Puts nodes into the graph of an original that was taken apart."""

    def __init__(self, original: Original, body: Block) -> None:
        """Start with the graph of `original`, without nodes, to write the ops of `body` into it."""
        self._original = original
        self._body = body
        self._values: dict[SSAValue, ir.Value] = {}
        outputs = dict(_result_outputs(body, original.outputs))
        constants = (op for op in body.ops if isinstance(op, ConstantOp | SparseConstantOp))
        origins: dict[SSAValue, ConstantOrigin] = {op.result: origin_of(op, original) for op in constants}
        taken = {value.name or "" for value in (*original.outputs, *self._kept_values())}
        taken |= original.variables
        taken |= {name for name, form in origins.values() if form not in (Form.CHANGED, Form.NEW)}
        names = Names(taken, original.all_names)
        self._naming = Naming(original, names, outputs)
        self._initializers = Initializers(original, names, origins, frozenset(self._read_outside(origins)))
        self._networks = SparseNetworks(original, self._initializers)
        self.identities: dict[SparseNetworkOp, str] = {}

    def bind_arguments(self, names: Sequence[str]) -> None:
        """Let the arguments of the function be the graph inputs called `names`.

        Raises:
            ValueError: the original has no such input.
        """
        inputs = {value.name: value for value in self._original.graph.inputs}
        for name, argument in zip(names, self._body.args, strict=True):
            if name not in inputs:
                raise ValueError(f"argument {name!r} is no input of the original model, its inputs are {list(inputs)}")
            self._values[argument] = inputs[name]

    def write(self, op: Operation) -> None:
        """Add the nodes that stand for `op`."""
        builder = NodeBuilder(self._original.opset, self._initializers, self._value)
        results = emit(op, builder)
        if builder.nodes:
            # a result without nodes is another value, which has its name
            self._naming.name_nodes(op, builder.nodes, results)
        self._original.graph.extend(builder.nodes)
        self._values.update(zip(op.results, results, strict=True))

    def write_network(self, op: SparseNetworkOp) -> None:
        """Add the node that stands for a sparse network."""
        node = self._networks.node(op, [self._value(value) for value in op.inputs])
        self.identities[op] = node_identity(*written(node))
        self._naming.name_nodes(op, [node], node.outputs)
        self._original.graph.append(node)
        for result, value in zip(op.results, node.outputs, strict=True):
            codes = codes_in(result.type)
            if codes is not None:
                # the operator yields any type: the model says which
                value.type = ir.TensorType(CODE_TYPES[codes.kind])
        self._values.update(zip(op.results, node.outputs, strict=True))

    def place_foreign(self, op: ForeignOp) -> None:
        """Put the original's node back, with its operands as the IR has them.

        Raises:
            ValueError: the original has another node, or none, at the op's position.
        """
        node = self._foreign_node(op)
        replace_reads(node, self._replacements(op))
        self._add_after_operands(node)
        for result, value in zip(op.results, _outputs_of(node, op), strict=True):
            self._naming.keep_value(result, value)
            self._values[result] = value

    def finish(self, op: ReturnOp) -> None:
        """Set the graph's outputs, and drop what nothing reads any more.

        Raises:
            ValueError: the function returns more or fewer values than the original.
        """
        if len(op.arguments) != len(self._original.outputs):
            raise ValueError(
                f"function @main returns {len(op.arguments)} values, the original has {len(self._original.outputs)}"
            )
        for index, (operand, before) in enumerate(zip(op.arguments, self._original.outputs, strict=True)):
            value = self._value(operand)
            named = value if value.name == before.name else self._identity(value, before)
            self._original.graph.outputs[index] = named
        for node in self._original.nodes:
            if node.graph is None:
                _detach(node)
        self._drop_unread()

    def _value(self, value: SSAValue) -> ir.Value:
        if isinstance(value.owner, ConstantOp | SparseConstantOp):
            return self._initializers.plain(value)
        return self._values[value]

    def _foreign_node(self, op: ForeignOp) -> ir.Node:
        nodes, position = self._original.nodes, op.position.value.data
        if not 0 <= position < len(nodes):
            raise ValueError(f"{op.operator.data} at {position}, the original has {len(nodes)} nodes")
        node = nodes[position]
        if op.operator.data.rpartition("::")[2] != node.op_type:
            raise ValueError(f"{op.operator.data} at {position}, the original has {node.op_type} there")
        return node

    def _replacements(self, op: ForeignOp) -> dict[ir.Value, ir.Value]:
        """Return the value of the new graph for each value of the original that a foreign node reads."""
        replaced: dict[ir.Value, ir.Value] = {}
        for name, operand in zip(op.names, op.reads, strict=True):
            before = self._original.values.get(name.data)
            if before is None:
                raise ValueError(f"{op.operator.data} reads {name.data!r}, which the original does not have")
            replaced[before] = self._value(operand)
        return replaced

    def _add_after_operands(self, node: ir.Node) -> None:
        """Append a node of the original, after the nodes that compute constants which no other node reads."""
        # not by recursion: there may be thousands of nodes one behind the other
        pending = [(node, iter(values_read(node)))]
        while pending:
            current, values = pending[-1]
            value = next(values, None)
            if value is None:
                pending.pop()
                self._naming.keep_node(current)
                self._original.graph.append(current)
                continue
            producer = value.producer()
            if producer is not None and self._original.left_out(producer):
                pending.append((producer, iter(values_read(producer))))

    def _kept_values(self) -> Iterator[ir.Value]:
        """Yield the values whose names are fixed: what foreign nodes make, define inside, and read beside the IR."""
        for op in self._body.ops:
            if isinstance(op, ForeignOp):
                yield from self._values_kept_by(op)

    def _values_kept_by(self, op: ForeignOp) -> Iterator[ir.Value]:
        waiting = [self._foreign_node(op)]
        held = {name.data for name in op.names}
        while waiting:
            node = waiting.pop()
            yield from (*node.outputs, *defined_inside(node))
            beside = [value for value in values_read(node) if value.name not in held]
            yield from beside
            behind = (value.producer() for value in beside)
            waiting += [producer for producer in behind if producer and self._original.left_out(producer)]
            held = set[str]()

    def _read_outside(self, origins: Mapping[SSAValue, ConstantOrigin]) -> Iterator[str]:
        """Yield the names of constants that foreign nodes read, which therefore are stored as they are.

        Those that bodies read may go: their layers are still to become networks.
        """
        for op in self._body.ops:
            if isinstance(op, ForeignOp) and not _holds_graphs(self._foreign_node(op)):
                yield from (value.name or "" for value in self._values_kept_by(op))
                yield from (origins[value].name for value in op.reads if value in origins)

    def _identity(self, value: ir.Value, before: ir.Value) -> ir.Value:
        node = ir.Node("", "Identity", [value], name="")
        output = node.outputs[0]
        output.name, output.type, output.shape = before.name, before.type, before.shape
        output.doc_string = before.doc_string
        output.metadata_props.update(before.metadata_props)
        self._original.graph.append(node)
        return output

    def _drop_unread(self) -> None:
        """Drop the initializers that nothing reads."""
        graph = self._original.graph
        read = {value for node in graph for value in values_read(node)} | set(graph.outputs)
        for name, value in list(graph.initializers.items()):
            if value not in read and name not in self._original.variables:
                del graph.initializers[name]
        if self._original.model.ir_version < OVERRIDABLE_SINCE:
            self._list_initializers_as_inputs()

    def _list_initializers_as_inputs(self) -> None:
        """Before IR version 4, the graph inputs are the caller's and all initializers."""
        graph, variables = self._original.graph, self._original.variables
        kept = [graph.initializers.get(value.name or "", value) for value in graph.inputs]
        kept = [value for value in kept if value.name in graph.initializers or value.name in variables]
        graph.inputs[:] = dict.fromkeys((*kept, *graph.initializers.values()))


def _result_outputs(body: Block, outputs: Sequence[ir.Value]) -> Iterator[tuple[SSAValue, ir.Value]]:
    """Yield the results that become graph outputs themselves, the last of several outputs first come."""
    last = body.last_op
    operands = last.operands if last is not None else ()
    for operand, output in reversed(list(zip(operands, outputs, strict=False))):
        if isinstance(operand, OpResult) and not isinstance(operand.op, ConstantOp | SparseConstantOp):
            yield operand, output


def _outputs_of(node: ir.Node, op: ForeignOp) -> Sequence[ir.Value]:
    """Return the outputs of a foreign node that are results of its op: the outputs with a name."""
    outputs = [value for value in node.outputs if value.name] if len(op.results) < len(node.outputs) else node.outputs
    if len(outputs) != len(op.results):
        raise ValueError(f"{op.operator.data} has {len(op.results)} results, its node has {len(node.outputs)} outputs")
    return outputs


def _detach(node: ir.Node) -> None:
    """Let a node that was left out read nothing, so that no value counts it as a user."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)


def _holds_graphs(node: ir.Node) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attributes.values())
