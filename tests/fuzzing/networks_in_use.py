"""Networks as programs use them: by many threads with many shapes at once, and from a cache, or with
what others measured, that was damaged."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import redpebble
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from redpebble.tuning.calibration import machine_name
from redpebble.tuning.exchange import export_machines
from redpebble.tuning.machines import KnownMachine, machine_for, remember_machine
from tests.fuzzing.damage import damaged_bytes, damaged_json
from tests.fuzzing.damaged_models import ended
from tests.fuzzing.fuzzer import Fuzzer
from tests.fuzzing.random_masks import check_network, draw_network
from tests.support.lowering_modules import TARGETS, Floats

CALLERS = 6
CALLS = 300
"""Calls of each caller."""


def draw(seed: int, folder: Path) -> None:
    """A network, and the seed of what is done with it."""
    draw_network(seed, folder)
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps(settings | {"seed": seed}))


def compiled(folder: Path, threads: int) -> Network:
    """The network of a case, from its cache where it is there."""
    target = TARGETS[json.loads((folder / "settings.json").read_text())["target"]]
    return redpebble.compile(folder / "model.onnx", target=target, cache=folder / "cache", threads=threads)


def rows(network: Network, batch: int) -> Floats:
    """Inputs, the same ones for the same batch."""
    width = network.get_inputs()[0].shape[1]
    assert isinstance(width, int)
    return np.random.default_rng(batch).standard_normal((batch, width)).astype(np.float32)


def check_calls(folder: Path) -> str:
    """Calls at once give the bits of calls one after another, whatever the others do."""
    seed = json.loads((folder / "settings.json").read_text())["seed"]
    network = compiled(folder, 2)
    batches = [int(batch) for batch in np.random.default_rng(seed).integers(0, 200, 45)]
    inputs = {batch: rows(network, batch) for batch in batches}
    alone = {batch: network.run(None, {"x": x})[0].tobytes() for batch, x in inputs.items()}

    def call(caller: int) -> list[str]:
        rng, mine, wrong = np.random.default_rng((seed, caller)), network, list[str]()
        for _ in range(CALLS):
            # some shapes are frequent, so that calls with the same one meet
            batch, threads = batches[int(len(batches) * rng.random() ** 3)], int(rng.integers(1, 3))
            x, what = inputs[batch], rng.random()
            if what < 0.005:
                mine = compiled(folder, 2)
            if what < 0.3:
                (found,) = mine.bind({"x": x}, threads=threads).run()
            else:
                (found,) = mine.run(None, {"x": x}, threads=threads)
            if found.tobytes() != alone[batch]:
                wrong.append(f"caller {caller}, batch {batch}, {threads} threads: other bits than alone")
        return wrong

    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(CALLERS) as pool:
        wrong = [line for lines in pool.map(call, range(CALLERS)) for line in lines]
    assert not wrong, f"{len(wrong)} of {CALLERS * CALLS} calls: {wrong[0]}"
    return f"{CALLERS * CALLS} calls right"


def check_cache(folder: Path) -> str:
    """A damaged file in the cache is not used: the code is made anew, and gives the same bits."""
    rng = np.random.default_rng(json.loads((folder / "settings.json").read_text())["seed"])
    network = compiled(folder, 1)
    x = rows(network, 17)
    before = network.run(None, {"x": x})[0].tobytes()
    files = sorted(path for path in (folder / "cache").rglob("*") if path.is_file())
    assert files
    for path in files:
        content = path.read_bytes()
        path.write_bytes(damaged_bytes(content, rng))
    assert compiled(folder, 1).run(None, {"x": x})[0].tobytes() == before, "other bits after the cache was damaged"
    return f"{len(files)} files damaged"


def draw_tuning(seed: int, folder: Path) -> None:
    """A network, and a damaged file of what was measured of this machine."""
    draw(seed, folder)
    rng = np.random.default_rng(seed)
    here = KnownMachine(machine_name(host_target()), "a CPU", machine_for(host_target(), None))
    remember_machine(folder / "there", here)
    export_machines(folder / "there", folder / "shared.json")
    content = (folder / "shared.json").read_bytes()
    (folder / "shared.json").write_bytes(
        damaged_json(content, rng) if rng.random() < 0.7 else damaged_bytes(content, rng)
    )


def check_tuning(folder: Path) -> str:
    """What others measured is refused in one line, or taken; either way networks are right."""
    os.environ["REDPEBBLE_CACHE"] = str((folder / "cache").absolute())
    code, error = ended(["tune", "--import", str(folder / "shared.json")], folder)
    assert code in (0, 2), f"tune ended with {code}: {error[-200:]}"
    assert code == 0 or error.startswith("error: "), error[-200:]
    assert error.count("\n") == (code == 2), f"not one line: {error[-200:]}"
    check_network(folder)
    return "refused" if code else "taken"


CALLING = Fuzzer("calls", draw, check_calls)
CACHES = Fuzzer("caches", draw, check_cache)
TUNING = Fuzzer("tuning", draw_tuning, check_tuning)
