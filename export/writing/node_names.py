"""Names, doc strings and metadata for new nodes: from the original's nodes that they stand for."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir
from xdsl.ir import Operation, SSAValue

from ...dialect.provenance import node_name, value_name
from ...dialect.tensors import DYNAMIC, shape_of
from ..original import Original

# Unique names: old values keep their names, new values get names that the original never used.


class Names:
    """The names in use. Asking for one takes it."""

    def __init__(self, taken: Iterable[str], avoided: Iterable[str] = ()) -> None:
        """Start with the names `taken`; invented names stay clear of the `avoided` ones, too."""
        self._taken = set(taken)
        self._avoided = set(avoided)

    def is_free(self, name: str) -> bool:
        """Return whether nothing has this name yet (the empty name is nobody's)."""
        return bool(name) and name not in self._taken

    def claim(self, wanted: str) -> str:
        """Take the name `wanted`, or `wanted_1`, `wanted_2`, ... when it is taken."""
        name = wanted if self.is_free(wanted) else self._numbered(wanted)
        self._taken.add(name)
        return name

    def take(self, name: str) -> None:
        """Take a name that was kept for its owner, who may come more than once."""
        self._taken.add(name)

    def invent(self, stem: str) -> str:
        """Take a new name like `stem`, one that the original used for nothing."""
        fresh = self.is_free(stem) and stem not in self._avoided
        name = stem if fresh else self._numbered(stem)
        self._taken.add(name)
        return name

    def _numbered(self, stem: str) -> str:
        number = 1
        while (name := f"{stem}_{number}") in self._taken or name in self._avoided:
            number += 1
        return name


class Naming:
    """Gives the nodes of one op and their outputs the names of what they stand for."""

    def __init__(self, original: Original, values: Names, outputs: dict[SSAValue, ir.Value]) -> None:
        """Name after `original`; `outputs` are the results that become graph outputs, and what these were."""
        self._original = original
        self._values = values
        self._nodes = Names(())
        self._outputs = outputs
        self._output_names = frozenset(output.name for output in outputs.values())

    def keep_node(self, node: ir.Node) -> None:
        """Take the name of a node that stays as it is."""
        if node.name:
            node.name = self._nodes.claim(node.name)

    def keep_value(self, result: SSAValue, value: ir.Value) -> None:
        """Leave the output of a node that stays its name, unless it becomes, or is in the way of, a graph output."""
        output = self._outputs.get(result)
        if output is not None:
            value.name = output.name
            _copy_description(output, value)
        elif value.name in self._output_names:
            value.name = self._values.invent(value.name or "")

    def name_result(self, result: SSAValue, value: ir.Value, stem: str) -> None:
        """Name the ONNX value of a result, and describe it as the original described the value of this name."""
        output = self._outputs.get(result)
        if output is not None:
            value.name = output.name
            _copy_description(output, value)
            return
        wanted = value_name(result)
        value.name = self._values.claim(wanted) if wanted else self._values.invent(stem)
        before = self._original.values.get(wanted)
        if before is not None:
            _copy_description(before, value)
            value.shape = _described_shape(result, before)

    def name_nodes(self, op: Operation, nodes: Sequence[ir.Node], results: Sequence[ir.Value]) -> None:
        """Name the nodes that stand for `op`, and all their outputs, of which `results` are the op's.

        A node that has a name already takes what the original's node of this name has.
        """
        own = node_name(op)
        stem = f"{own}_output" if own else op.name.removeprefix("pebble.")
        meant = {node: node.name for node in nodes if node.name}
        for node in nodes:
            node.name = ""
        left = set(nodes)
        for node, before in meant.items():
            left.remove(node)
            self._become(node, self._original.nodes_by_name.get(before, node))
            node.name = node.name or self._nodes.claim(before)
        for result, value in zip(op.results, results, strict=True):
            self.name_result(result, value, stem)
            before = self._original.producer(value_name(result))
            if before is not None:
                self._align(value, before, left)
        self._name_rest(own, nodes, left)

    def _align(self, value: ir.Value, before: ir.Node, left: set[ir.Node]) -> None:
        """Let the node behind `value` be `before`, and go on with its inputs, as long as the operators are the same."""
        node = value.producer()
        if node is None or node not in left or node.op_type != before.op_type:
            return
        left.remove(node)
        self._become(node, before)
        for part, source in zip(node.inputs, before.inputs, strict=False):
            if part is None or source is None or part.producer() not in left:
                continue
            behind, expected = part.producer(), source.producer()
            certain = len(before.inputs) == 1 or _same_operator(behind, expected)
            if part.name is None and certain and self._values.is_free(source.name or ""):
                part.name = self._values.claim(source.name or "")
            if expected is not None and certain:
                self._align(part, expected, left)

    def _become(self, node: ir.Node, before: ir.Node) -> None:
        node.name = self._nodes.claim(before.name) if before.name else ""
        node.doc_string = before.doc_string
        node.metadata_props.update(before.metadata_props)

    def _name_rest(self, own: str, nodes: Sequence[ir.Node], left: set[ir.Node]) -> None:
        """Name what is not in the original: the first node after the op, the others after both."""
        taken = own in {node.name for node in nodes}
        for node in nodes:
            if node in left and own and not taken:
                self._become(node, self._original.nodes_by_name.get(own, node))
                node.name = node.name or self._nodes.claim(own)
                taken = True
            elif node in left and own:
                node.name = self._nodes.claim(f"{own}_{node.op_type.lower()}")
            for index, value in enumerate(node.outputs):
                if value.name is None:
                    stem = nodes[-1].outputs[0].name or own
                    value.name = self._values.invent(f"{stem}_{node.op_type.lower()}" + (f"_{index}" if index else ""))


def _same_operator(left: ir.Node | None, right: ir.Node | None) -> bool:
    return left is not None and right is not None and left.op_type == right.op_type


def _copy_description(source: ir.Value, target: ir.Value) -> None:
    target.type, target.shape = source.type, source.shape
    target.doc_string = source.doc_string
    target.metadata_props.update(source.metadata_props)


def _described_shape(result: SSAValue, before: ir.Value) -> ir.Shape | None:
    """Return the sizes that the IR knows, with the original's symbols for the others; None where it had no shape."""
    if before.shape is None:
        return None
    sizes, symbols = shape_of(result), before.shape
    fits = len(sizes) == len(symbols)
    return ir.Shape(
        [
            size if size != DYNAMIC else symbols[axis] if fits and not isinstance(symbols[axis], int) else None
            for axis, size in enumerate(sizes)
        ]
    )
