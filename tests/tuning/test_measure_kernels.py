"""Kernels are measured where they can run alone."""

from pathlib import Path

from xdsl.context import Context

from redpebble.dialect.ops.layers import LinearOp
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.passes.kernels.choose_quantized_kernels import ChooseQuantizedKernels
from redpebble.tuning.measure_kernels import Tuning, measure_chosen
from tests.support.quantized_layers import CODES, Layers


def test_layers_on_codes_keep_what_was_predicted(tmp_path: Path) -> None:
    module = Layers([37, 50, 19], CODES, None).module()
    ChooseQuantizedKernels().apply(Context(), module)
    kernels = [op.kernel for op in module.walk() if isinstance(op, LinearOp)]
    measure_chosen(module, Tuning.on(CpuTarget.generic(), tmp_path, 0.1))
    assert [op.kernel for op in module.walk() if isinstance(op, LinearOp)] == kernels
    assert all(kernel is not None and not kernel.measured for kernel in kernels)
