"""The demonstration: a network that was really trained and pruned, optimized, checked and measured.

`python -m redpebble.tools.demo` writes its models to the folder given, or to a temporary one.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .. import compile as compile_model
from .. import get_library_path
from ..models.digits import digits_accuracy, digits_record
from ..models.zoo import build, save
from ..options import Options
from ..verification.compare import CheckPlan
from ..verification.measuring import Budget, interleave
from ..verification.oracle import Oracle, Tolerance
from .benching.model_bench import BenchPlan, bench_and_print
from .commands import OptimizeRequest, OutputFiles, optimize_model
from .comparing.checking import check_model
from .console.console import console

PLAN = CheckPlan(batches=(1, 7, 64), runs=3, seed=0, tolerance=Tolerance())


def main(folder: Path) -> bool:
    """Run the demonstration in `folder`; return whether everything agrees with onnxruntime."""
    pruned, optimized, quantized = (folder / f"digits{what}.onnx" for what in ("", "-optimized", "-int8"))
    save(build("digits"), pruned)
    save(build("digits_int8"), quantized)
    console.rule("optimize: dead neurons out, constants folded, layers fused")
    files = OutputFiles(optimized, external_data=None, report=None, library=False)
    agreed = optimize_model(OptimizeRequest(pruned, Options("optimize"), files), PLAN)
    console.rule("check: our native code against onnxruntime")
    agreed = check_model(pruned, PLAN, ("compile",), None) and agreed
    console.rule("accuracy on 360 images that training never saw")
    print_accuracies(pruned, optimized, quantized)
    console.rule("speed: redpebble.session, and native code alone; medians of interleaved runs, one thread")
    bench_and_print(pruned, BenchPlan(batches=(1, 32, 128, 512)), None)
    console.rule("onnxruntime itself, with one more line: register_custom_ops_library")
    return run_in_onnxruntime(pruned, optimized) and agreed


def run_in_onnxruntime(pruned: Path, optimized: Path) -> bool:
    """Run the optimized file in a plain session, with our library and without, beside the original; print speeds."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    original, without = (onnxruntime.InferenceSession(path, options) for path in (pruned, optimized))
    options.register_custom_ops_library(get_library_path())
    within = onnxruntime.InferenceSession(optimized, options)
    rng = np.random.default_rng(0)
    agreed = True
    for batch in (1, 32, 128, 512):
        feeds = {"x": rng.random((batch, 64), dtype=np.float32)}
        sessions = {"original": original, "without": without, "within": within}
        outputs = {name: one.run(None, feeds)[0] for name, one in sessions.items()}
        agreed &= all(np.allclose(outputs["original"], other, 1e-4, 1e-5) for other in outputs.values())
        times = interleave({name: partial(one.run, None, feeds) for name, one in sessions.items()}, Budget(0.3))
        ratios = [times["original"].median_us / times[name].median_us for name in ("without", "within")]
        line = f"batch {batch:4d}: the optimized file {ratios[0]:5.2f}x, with our library {ratios[1]:5.2f}x"
        console.print(line, highlight=False)
    console.print(f"outputs {'agree' if agreed else 'DIFFER'}", highlight=False)
    return agreed


def print_accuracies(pruned: Path, optimized: Path, quantized: Path) -> None:
    """Show the accuracy of the network before pruning, after it, after our work, and with eight bits."""
    lines = {
        "dense, as recorded when it was trained": float(digits_record()["accuracy_dense"]),
        "pruned to 95 %, onnxruntime": digits_accuracy(_in_onnxruntime(pruned)),
        "optimized model, onnxruntime": digits_accuracy(_in_onnxruntime(optimized)),
        "our native code": digits_accuracy(_in_native_code(pruned)),
        "pruned and quantized, onnxruntime": digits_accuracy(_in_onnxruntime(quantized)),
        "pruned and quantized, our native code": digits_accuracy(_in_native_code(quantized)),
    }
    for line, accuracy in lines.items():
        console.print(f"{line:40s} {100 * accuracy:.2f} %", highlight=False)


def _in_native_code(path: Path) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    network = compile_model(path)
    name = network.get_inputs()[0].name
    return lambda images: network.run(None, {name: images})[0]


def _in_onnxruntime(path: Path) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    oracle = Oracle(path)
    name = oracle.session.get_inputs()[0].name
    return lambda images: oracle.run({name: images})[0]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(0 if main(Path(sys.argv[1])) else 1)
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(0 if main(Path(temporary)) else 1)
