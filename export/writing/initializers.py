"""Constants of the IR as initializers: the original's own where nothing changed, new ones where something did."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.ops.constants import constant_array
from ...dialect.ops.graphs import graph_of
from ...sparse.csr import CscMatrix
from ..original import Array, Original, content_key
from .compact_weights import compact_edges
from .constant_origins import ConstantOrigin, Form, form_of
from .node_names import Names

LITERAL = "constant"
"""Names of the shapes and bounds that an operator of a later opset takes as inputs."""


class Initializers:
    """The constants of the new model, made when they are first asked for."""

    def __init__(
        self, original: Original, names: Names, origins: Mapping[SSAValue, ConstantOrigin], stored: Set[str]
    ) -> None:
        """Put initializers into the graph of `original`; `origins` are those of all constants of the IR.

        `stored` are names of constants that other nodes read as they are.
        """
        self._original = original
        self._names = names
        self._origins = origins
        self._stored = {name for name in stored if name in original.graph.initializers} - original.variables
        self._made: dict[tuple[SSAValue, Form], ir.Value] = {}
        self._adopted: dict[str, ir.Value] = {}
        self._edges: dict[SSAValue, tuple[ir.Value, ir.Value]] = {}
        self._literals: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def plain(self, value: SSAValue) -> ir.Value:
        """Return the constant `value` in the shape that it has in the IR."""
        return self._formed(value, Form.SAME)

    def matrix(self, value: SSAValue) -> tuple[ir.Value, bool]:
        """Return the constant weight `value`, and whether it lies as [outputs, inputs], as it did in the original."""
        transposed = self.lies_transposed(value)
        return self._formed(value, Form.TRANSPOSED if transposed else Form.SAME), transposed

    def lies_transposed(self, value: SSAValue) -> bool:
        """Return whether the weight `value` would be [outputs, inputs], as it was in the original."""
        name, form = self._origins[value]
        return form is Form.TRANSPOSED or (form is Form.CHANGED and name in self._original.transposed_by_gemm)

    def add_part(self, value: SSAValue, part: str, array: NDArray[Any]) -> ir.Value:
        """Return a new constant of the shape of `array`, called after `value` and what it holds of it."""
        return self._add(self._names.invent(f"{self._origins[value].name}.{part}"), array)

    def add_sparse(self, value: SSAValue, part: str, matrix: CscMatrix) -> ir.Value:
        """Return the same for a matrix [inputs, outputs], with its zeros."""
        return self.add_part(value, part, matrix.to_dense())

    def edges(self, value: SSAValue) -> tuple[ir.Value, ir.Value]:
        """Return weights [edges, 1] and gaps [edges] of the graph `value`, target by target."""
        if value not in self._edges:
            packed = compact_edges(graph_of(value))
            weights = self.add_part(value, "weights", packed.values.reshape(-1, 1))
            self._edges[value] = weights, self.add_part(value, "gaps", packed.gaps)
        return self._edges[value]

    def stored_matrix(self, value: SSAValue) -> tuple[ir.Value, bool] | None:
        """Return the value that already holds the constant `value`, and whether transposed; None if there is none."""
        array = constant_array(value)
        if array is None or array.ndim != 2:
            return None
        for name, other in self._original.constants_of_size(array.size, self._stored):
            form = form_of(other, array)
            if form in (Form.SAME, Form.TRANSPOSED):
                return self._adopt(name), form is Form.TRANSPOSED
        return None

    def row(self, value: SSAValue) -> ir.Value:
        """Return the constant vector `value` [N], as [1, N] where the original has it so."""
        form = self._origins[value].form
        return self._formed(value, Form.ROW if form is Form.ROW else Form.SAME)

    def literal(self, array: Array) -> ir.Value:
        """Return a constant that an operator asks for (a shape, a bound): the original's own, if it has the same."""
        key = content_key(array)
        if key not in self._literals:
            name = self._original.small_constants.get(key)
            made = self._add(self._names.invent(LITERAL), array) if name is None else self._adopt(name)
            self._literals[key] = made
        return self._literals[key]

    def _formed(self, value: SSAValue, form: Form) -> ir.Value:
        """Return the constant `value` in a form: the original's own, where it has this form."""
        key = (value, form)
        if key not in self._made:
            name, found = self._origins[value]
            array = constant_array(value)
            if found is form or array is None:
                self._made[key] = self._adopt(name)
            else:
                unique = self._names.invent(name) if found is Form.NEW else self._names.claim(name)
                self._made[key] = self._add(unique, array.T if form is Form.TRANSPOSED else array)
        return self._made[key]

    def _adopt(self, name: str) -> ir.Value:
        """Return the original's constant `name`; the output of a Constant becomes an initializer."""
        if name not in self._adopted:
            self._names.take(name)
            listed, array = self._original.graph.initializers.get(name), self._original.constant(name)
            if listed is not None and listed is self._original.values[name]:
                self._adopted[name] = listed
            elif array is not None:
                free = listed is None
                self._adopted[name] = self._add(name if free else self._names.claim(name), array)
        return self._adopted[name]

    def _add(self, name: str, array: NDArray[Any]) -> ir.Value:
        # `ir.tensor` asks for six protocols, which takes longer than all else here
        tensor = ir.Tensor(np.asarray(array, order="C"), name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
        before = self._original.values.get(name)
        if before is not None:
            value.doc_string = before.doc_string
            value.metadata_props.update(before.metadata_props)
        self._original.graph.initializers.add(value)
        return value
