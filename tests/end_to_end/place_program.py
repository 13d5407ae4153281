"""What a user does, in one process: a program, to run where nothing can be written.

`python -m tests.end_to_end.place_program FOLDER CPU WHAT...`; it prints what warnings say, and ends with 0 where all
went well. `CPU` is "host", or "generic" for one that tells LLVM of no vectors beyond SSE2.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from llvmlite import binding

SPEC = "ffnn(depth=2,width=256,density=0.1)"


def is_generic() -> None:
    """Describe this CPU to all that ask LLVM as one without AVX."""
    vectors = ("avx", "fma", "f16c", "xop")
    found = binding.get_host_cpu_features()
    features = type(found)({name: there and not name.startswith(vectors) for name, there in found.items()})
    binding.get_host_cpu_features = lambda: features
    binding.get_host_cpu_name = lambda: "x86-64"


def in_python(folder: Path) -> None:
    """`compile`, `optimize` and `session` agree with onnxruntime."""
    import redpebble
    from redpebble.frontend.reading.model_source import read_model
    from redpebble.models.zoo import build
    from redpebble.verification.oracle import Oracle

    model = build(SPEC)
    network = redpebble.compile(model, threads=2)
    feeds = {network.get_inputs()[0].name: np.random.default_rng(0).standard_normal((9, 256), dtype=np.float32)}
    (expected,) = Oracle(read_model(model)).run(feeds)
    for found in (
        network.run(None, feeds),
        redpebble.session(model).run(None, feeds),
        Oracle(redpebble.optimize(model).model).run(feeds),
    ):
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


def provider(folder: Path) -> None:
    """A session of the execution provider is made, and runs."""
    import onnx_ir
    import onnxruntime

    import redpebble
    from redpebble.models.zoo import build

    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(redpebble.register(), {})
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(build(SPEC)).SerializeToString(), options)
    x = np.ones((3, 256), np.float32)
    assert np.isfinite(session.run(None, {session.get_inputs()[0].name: x})[0]).all()


def orders(folder: Path) -> None:
    """The transfers of two orders are counted, by the same compiled loops."""
    from redpebble.theory import Memory, count_transfers, from_layers, pull_order, push_order

    network = from_layers([np.eye(8, dtype=np.float32), np.ones((8, 3), np.float32)])
    for order in (pull_order(network), push_order(network)):
        assert count_transfers(network, order, Memory(5)).reads > 0


def commands(folder: Path) -> None:
    """Every command ends with 0, but `run`: MPI needs /dev/shm."""
    from redpebble.tools import main as cli

    m = folder / "m.onnx"
    for line in (
        f"zoo {SPEC} -o {m}",
        f"optimize {m} {folder / 'o.onnx'} --library",
        f"optimize {m} {folder / 'p.onnx'} --target portable",
        f"compile {m} -o {folder / 'code.pebble'}",
        f"compile {m} --tune",
        f"check {m} --runs 1",
        f"check {m} --against {folder / 'p.onnx'} --runs 1",
        f"bench {m} --seconds 0.1 --batch 1",
        f"tune {m} --seconds 0.1",
        f"explain {m} --memory 100 --report {folder / 'report.html'}",
        f"schedule {m} --memory 100 --seconds 0.2 --save {folder / 'order.npz'}",
        f"partition {m} -p 1 -o {folder / 'parts'}",
        f"simulate {m}",
        "cache show",
        "cache clean",
    ):
        sys.argv = ["redpebble", *line.split()]
        if code := ended(cli.main):
            raise SystemExit(f"{line} ended with {code}")


def ended(command: Callable[[], None]) -> str | int | None:
    """The exit code of a command."""
    try:
        command()
    except SystemExit as end:
        return end.code
    return 0


DEEDS: Mapping[str, Callable[[Path], None]] = {
    "python": in_python,
    "provider": provider,
    "orders": orders,
    "commands": commands,
}

if __name__ == "__main__":
    place, cpu, *deeds = sys.argv[1:]
    if cpu == "generic":
        is_generic()
    with warnings.catch_warnings(record=True) as said:
        for deed in deeds:
            DEEDS[deed](Path(place))
    for warning in said:
        print("warning:", warning.message)
