import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from redpebble.dialect.ops.constants import SparseConstantOp
from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.built_in_examples import built_in_examples
from redpebble.kernels.measured.neighbours import Example, Examples
from redpebble.kernels.prediction import candidates
from redpebble.kernels.prices import PRICES
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.kernels.work import Layer
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.kernels.timed_kernels import RepeatedKernel
from redpebble.passes.analysis.layer_costs import layers_of
from redpebble.runtime.jit import host_target
from redpebble.runtime.store.json_cache import recall, remember
from redpebble.sparse.csr import CscMatrix
from redpebble.tuning import machines
from redpebble.tuning.calibration import CacheSizes, cache_sizes, cpu_model, machine_name, prices_of_cpu
from redpebble.tuning.kernel_timing import KernelClock
from redpebble.tuning.machines import (
    calibrate,
    machine_for,
    measured_before,
    of_this_cpu,
    packed_layer,
    remember_examples,
)
from redpebble.tuning.probe_layers import PROBES

FEW = PROBES[-5:]
"""Layers with panels, and one without."""


def a_file(folder: Path) -> Path:
    (file,) = folder.glob("machine-*.json")
    return file


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Machine]:
    folder = tmp_path_factory.mktemp("calibrated")
    return folder, calibrate(folder, FEW)


@pytest.mark.slow
def test_a_calibrated_machine_is_known_from_then_on(calibrated: tuple[Path, Machine]) -> None:
    folder, machine = calibrated
    assert measured_before(folder) == machine
    assert machine_for(host_target(), folder) == machine


@pytest.mark.slow
def test_every_kernel_that_can_be_chosen_was_measured_somewhere(calibrated: tuple[Path, Machine]) -> None:
    machine = calibrated[1]
    layer = Layer(8, np.ones(8, dtype=np.int64), stored="panels", panel_reads=4)
    kernels = {f"{name}@{width}" for width in WIDTHS for name in candidates(layer, width, machine)}
    assert {name for word in machine.examples.words for name in Example.parse(word).factors} == kernels
    assert len(machine.examples.words) == len(FEW)


@pytest.mark.slow
def test_what_was_measured_of_models_is_added_and_stays(calibrated: tuple[Path, Machine], tmp_path: Path) -> None:
    (tmp_path / a_file(calibrated[0]).name).write_text(a_file(calibrated[0]).read_text())
    more = Examples(("7/7/0.5/0.0/0.0|strips@64=2",))
    remember_examples(tmp_path, more)
    assert machine_for(host_target(), tmp_path).examples == calibrated[1].examples.with_more(more)


def test_a_machine_that_was_never_measured_has_what_is_built_in(tmp_path: Path) -> None:
    machine = machine_for(host_target(), tmp_path)
    assert machine.examples == built_in_examples(machine.prices, host_target().lanes)
    assert machine_for(CpuTarget.avx2(), tmp_path).examples == Examples()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 0, "content": {}}', '{"format": 2, "content": [1]}'])
def test_a_damaged_calibration_counts_as_none(calibrated: tuple[Path, Machine], content: str, tmp_path: Path) -> None:
    (tmp_path / a_file(calibrated[0]).name).write_text(content)
    assert measured_before(tmp_path) is None
    assert machine_for(host_target(), tmp_path) == machine_for(host_target(), None)


NONSENSE = [("lanes", 3), ("l3_ns", -1.0), ("l2_bytes", 0), ("speed", 1.0), ("examples", 3)]


@pytest.mark.parametrize("name, value", NONSENSE)
def test_a_calibration_that_makes_no_sense_counts_as_none(
    calibrated: tuple[Path, Machine], name: str, value: float, tmp_path: Path
) -> None:
    file = a_file(calibrated[0])
    content = json.loads(file.read_text())
    content["content"]["machine"][name] = value
    (tmp_path / file.name).write_text(json.dumps(content))
    assert measured_before(tmp_path) is None


def test_other_targets_are_machines_as_they_are_known(calibrated: tuple[Path, Machine]) -> None:
    for target in (CpuTarget.avx512(), CpuTarget.avx2(), CpuTarget.generic()):
        assert machine_for(target, calibrated[0]) == Machine(lanes=target.lanes)


def test_machines_differ_by_target() -> None:
    names = {machine_name(target) for target in (CpuTarget.avx512(), CpuTarget.avx2(), CpuTarget.generic())}
    assert len(names) == 3


def test_caches_are_read_as_linux_shows_them(tmp_path: Path) -> None:
    entries = [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K"), ("Unified", 3, "491520K")]
    for index, (kind, level, size) in enumerate(entries):
        entry = tmp_path / f"index{index}"
        entry.mkdir()
        (entry / "type").write_text(f"{kind}\n")
        (entry / "level").write_text(f"{level}\n")
        (entry / "size").write_text(f"{size}\n")
    assert cache_sizes(tmp_path) == (48 << 10, 2 << 20, 480 << 20)


@pytest.mark.parametrize(
    ("l3", "own", "shared"), [(8 << 20, 8 << 20, 8 << 20), (64 << 20, 12 << 20, 64 << 20), (None, 12 << 20, 32 << 20)]
)
def test_a_small_last_cache_is_all_that_a_core_has(
    monkeypatch: pytest.MonkeyPatch, l3: int | None, own: int, shared: int
) -> None:
    monkeypatch.setattr(machines, "cache_sizes", lambda: CacheSizes(32 << 10, 512 << 10, l3))
    machine = of_this_cpu(host_target().lanes)
    assert (machine.l3_bytes, machine.shared_bytes) == (own, shared)


def test_where_caches_cannot_be_read_they_are_not_known(tmp_path: Path) -> None:
    assert cache_sizes(tmp_path / "missing") is None


def test_a_cpu_calls_itself_something_even_where_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: A CPU @ 3 GHz\n")
    assert cpu_model(tmp_path / "cpuinfo") == "A CPU @ 3 GHz"
    assert cpu_model(tmp_path / "missing")


def test_prices_are_those_of_the_vendors_machine_and_of_the_first_one_where_it_is_not_known(tmp_path: Path) -> None:
    for vendor, prices in (("GenuineIntel", "cascade_lake"), ("AuthenticAMD", "zen5"), ("abacus", "cascade_lake")):
        (tmp_path / "cpuinfo").write_text(f"processor: 0\nvendor_id\t: {vendor}\n")
        assert prices_of_cpu(tmp_path / "cpuinfo") == prices
        assert prices in PRICES
    flags = {"vaes avx512f": "emerald_rapids", "avx512f": "cascade_lake"}
    for features, prices in flags.items():
        (tmp_path / "cpuinfo").write_text(f"vendor_id\t: GenuineIntel\nflags\t\t: fpu {features} sse\n")
        assert prices_of_cpu(tmp_path / "cpuinfo") == prices
    assert prices_of_cpu(tmp_path / "missing") == "cascade_lake"


def test_what_is_remembered_is_recalled(tmp_path: Path) -> None:
    remember(tmp_path / "new", "name", {"a": [1, 2.5]})
    assert recall(tmp_path / "new", "name") == {"a": [1, 2.5]}
    assert recall(tmp_path, "name") is None


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember(tmp_path / "file", "name", 1)
    assert recall(tmp_path / "file", "name") is None


@pytest.mark.slow
@pytest.mark.parametrize("width", [pytest.param(one, marks=pytest.mark.slow) if one > 8 else one for one in WIDTHS])
def test_every_kernel_can_be_timed_among_others(width: int) -> None:
    weight = SparseConstantOp(CscMatrix.from_dense(np.eye(17, 23, dtype=np.float32))).result
    (layer,) = layers_of([weight])
    kernels = [RepeatedKernel(name, width) for name in candidates(layer, width, Machine(lanes=host_target().lanes))]
    clock = KernelClock(kernels, host_target())
    alone = {k.symbol: clock.sample(k, packed_layer(k.family, weight, layer)) for k in kernels}
    among = {
        k.symbol: clock.sample(k, packed_layer(k.family, weight, replace(layer, other_bytes=1e5))) for k in kernels
    }
    assert all(len({tuple(row) for row in sample.tables.tolist()}) == 1 for sample in alone.values())
    assert all(len({tuple(row) for row in sample.tables.tolist()}) > 1 for sample in among.values())
    times = clock.fastest(alone, 0.0, least_rounds=1)
    assert set(times) == {kernel.symbol for kernel in kernels}
    assert min(times.values()) > 0
