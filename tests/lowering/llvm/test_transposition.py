"""Rows that leave a large tile are the same wherever they are written to."""

import numpy as np
import pytest
from llvmlite import ir

from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import call
from redpebble.lowering.llvm.transposition import columns_to_far_rows
from redpebble.lowering.llvm.values import Bytes, Number
from redpebble.runtime.jit import MachineCode, emit_object, host_target, load_object
from redpebble.runtime.memory import address_of, aligned_bytes

WIDTH = 64


@pytest.fixture(scope="module")
def transposition() -> MachineCode:
    code = Code(host_target(), ir.Module("transpose"))
    function = columns_to_far_rows(code, WIDTH)

    @code.kernel("transpose", exported=True, rest=4)
    def _(columns: Bytes, rows: Bytes, *numbers: Number) -> None:
        call(function, columns, rows, *numbers)

    return load_object(emit_object(str(code.module), host_target()), {"transpose": (2, 4)})


CASES = [(64, 0, 64), (64, 1, 64), (70, 0, 50), (80, 0, 13), (7, 3, 1)]


@pytest.mark.parametrize(("features", "offset", "rows"), CASES)
def test_columns_become_rows_at_any_address(transposition: MachineCode, features: int, offset: int, rows: int) -> None:
    columns = aligned_bytes(4 * WIDTH * features).view(np.float32)
    columns[:] = np.arange(len(columns))
    columns.reshape(features, WIDTH)[:, rows:] = columns.reshape(features, WIDTH)[:, rows - 1 : rows]
    room = aligned_bytes(4 * (rows * features + 32)).view(np.float32)
    room[:] = -1
    transpose = transposition.functions["transpose"]
    transpose(address_of(columns), address_of(room) + 4 * offset, features, features, rows, WIDTH)
    expected = columns.reshape(features, WIDTH).T[:rows]
    np.testing.assert_array_equal(room[offset : offset + rows * features].reshape(rows, features), expected)
    assert (room[:offset] == -1).all()
    assert (room[offset + rows * features :] == -1).all()
