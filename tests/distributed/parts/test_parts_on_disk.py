"""A folder of parts: what is written is read back, complete or not at all, and what cannot be split is refused."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from redpebble.distributed.errors import PartError
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.parts.compile_part import compile_blocks
from redpebble.distributed.parts.module_text import module_of, put_constants, take_constants, text_of
from redpebble.distributed.parts.part_file import PARTS_VERSION, Part, read_part, write_part
from redpebble.distributed.parts.plan_file import read_plan
from redpebble.distributed.parts.steps import Call, Receive, Send
from redpebble.distributed.run.load_part import check_part
from redpebble.distributed.run.partitioned_network import RunOptions
from redpebble.distributed.run.run_parts import files_by_name, open_input, sizes_of
from redpebble.distributed.write_parts import PartsRequest, check_target, write_parts
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.models.zoo import build
from redpebble.passes.runner import context
from redpebble.pipeline import build as build_module
from tests.distributed.simple_partitions import contiguous_rows

SPEC = "ffnn(depth=2, width=20, density=0.5)"


def rows_request(parts: int = 2) -> PartsRequest:
    graph = RowGraph.of(build_module(build(SPEC)))
    return PartsRequest("rows", parts, contiguous_rows(graph, parts), "12ab")


def test_a_module_keeps_its_text_and_its_numbers_apart() -> None:
    module = build_module(build("resmlp(depth=1, width=32)"))
    arrays = take_constants(original := module.clone())
    assert "dense<" not in text_of(original)
    restored = module_of(text_of(original), context())
    put_constants(restored, arrays)
    restored.verify()
    # names and places of constants are no part of what a module computes
    assert sorted(op.name for op in restored.walk()) == sorted(op.name for op in module.walk())
    kept = [array.tobytes() for array in take_constants(restored)]
    assert kept == [array.tobytes() for array in arrays]


def test_entries_of_weights_that_no_row_has_are_refused() -> None:
    arrays = take_constants(module := build_module(build(SPEC)))
    damaged = [array.copy() for array in arrays]
    rows = next(array for index, array in enumerate(damaged) if index % 3 == 1 and array.dtype == np.int64)
    rows[2] = -1
    with pytest.raises(PartError, match="the part is damaged: row -1 outside 0 to"):
        put_constants(module, damaged)


def test_parts_are_read_back(tmp_path: Path) -> None:
    plan = write_parts(build_module(build(SPEC)), rows_request(), tmp_path / "parts")
    found, _ = read_plan(tmp_path / "parts")
    assert found == plan
    assert found.model == "12ab"
    for rank, entry in enumerate(found.parts):
        path = tmp_path / "parts" / entry.file
        assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
        part = read_part(path)
        assert (part.rank, part.part_count) == (rank, 2)
        assert not any(array.flags.writeable for array in part.constants)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts"]


def test_a_part_holds_its_own_weights_only(tmp_path: Path) -> None:
    model = build("ffnn(depth=2, width=400, density=0.2)")
    graph = RowGraph.of(build_module(model))
    sizes = dict[int, int]()
    for parts in (1, 4):
        folder = tmp_path / str(parts)
        request = PartsRequest("rows", parts, contiguous_rows(graph, parts))
        plan = write_parts(build_module(model), request, folder)
        sizes[parts] = max((folder / entry.file).stat().st_size for entry in plan.parts)
    assert sizes[4] < 0.4 * sizes[1]


def test_parts_take_the_place_of_parts_but_of_nothing_else(tmp_path: Path) -> None:
    module = build_module(build(SPEC))
    write_parts(module, rows_request(3), tmp_path / "parts")
    write_parts(module, rows_request(2), tmp_path / "parts")
    assert read_plan(tmp_path / "parts")[0].part_count == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="expected a new folder or one of parts, got one without"):
        write_parts(module, rows_request(), tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_nothing_is_left_of_parts_that_cannot_be_made(tmp_path: Path) -> None:
    request = rows_request()
    with pytest.raises(ValueError, match="a partition of levels of"):
        write_parts(build_module(build("digits")), request, tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="is no folder"):
        write_parts(build_module(build(SPEC)), request, tmp_path / "nowhere" / "parts")


def test_other_files_are_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "part"
    for content in (b"short", b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(PartError, match="part is no part of a network"):
            read_part(path)
    write_part(path, Part(0, 1, whole=False, text="", constants=()))
    path.write_bytes(path.read_bytes().replace(f'"format": {PARTS_VERSION}'.encode(), b'"format": 9'))
    with pytest.raises(PartError, match=f"part: expected format {PARTS_VERSION}, got 9"):
        read_part(path)


SIZES: dict[str, object] = {
    "a power of zero": [[[1, 1], [["batch", 0]]]],
    "a vast power": [[[1, 1], [["batch", 1 << 40]]]],
    "a division by zero": [[[1, 0], []]],
    "another symbol": [[[1, 1], [["rows", 1]]]],
    "no coefficient": [[{}, [["batch", 1]]]],
}


@pytest.mark.parametrize("sizes", SIZES)
def test_a_plan_whose_sizes_make_no_sense_is_refused(sizes: str, tmp_path: Path) -> None:
    write_parts(build_module(build(SPEC)), rows_request(), tmp_path / "parts")
    path = tmp_path / "parts" / "plan.json"
    content = json.loads(path.read_text())
    content["outputs"][0]["sizes"] = SIZES[sizes]
    path.write_text(json.dumps(content))
    with pytest.raises(PartError, match=r"plan.json is no plan of parts, or damaged"):
        read_plan(path.parent)


def movement_model(kind: str) -> ir.Model:
    builder = GraphBuilder()
    x = builder.input("x", ("batch", 4, 6))
    order = [0, 2, 1] if kind == "inside" else [1, 0, 2]
    y = builder.op("Transpose", [x], "turn", {"perm": order})
    dims = ("batch", 6, 4) if kind == "inside" else (4, "batch", 6)
    return builder.model("movement", {"y": Output(y, dims)})


def two_inputs() -> ir.Model:
    builder = GraphBuilder()
    parts = [builder.input(name, ("batch", 6)) for name in ("a", "b")]
    return builder.model("two", {"y": Output(builder.op("Add", parts, "sum"), ("batch", 6))})


def test_what_mixes_rows_is_not_cut_by_neurons() -> None:
    with pytest.raises(UnsupportedModelError, match=r"node 'turn': pebble.transpose mixes rows, the plans"):
        RowGraph.of(build_module(movement_model("inside")))


def test_what_mixes_samples_is_not_cut_by_samples(tmp_path: Path) -> None:
    write_parts(build_module(movement_model("inside")), PartsRequest("batch", 2), tmp_path / "inside")
    with pytest.raises(UnsupportedModelError, match="the first axis of 'y' has size 4, the plan batch expects"):
        write_parts(build_module(movement_model("outside")), PartsRequest("batch", 2), tmp_path / "outside")


def test_files_are_named_for_every_port(tmp_path: Path) -> None:
    write_parts(build_module(two_inputs()), PartsRequest("batch", 1), tmp_path / "parts")
    plan, _ = read_plan(tmp_path / "parts")
    names = [port.name for port in plan.inputs]
    files = files_by_name([f"{name}={name}.npy" for name in names], plan.inputs, "input")
    assert files == {name: Path(f"{name}.npy") for name in names}
    with pytest.raises(PartError, match=r"--input: expected NAME=FILE with a name of .*, got 'x.npy'"):
        files_by_name(["x.npy"], plan.inputs, "input")
    with pytest.raises(PartError, match=f"input '{names[1]}': expected --input {names[1]}=FILE, got none"):
        files_by_name([f"{names[0]}=x.npy"], plan.inputs, "input")


def test_inputs_are_floats_of_the_right_shape(tmp_path: Path) -> None:
    plan = write_parts(build_module(build(SPEC)), rows_request(), tmp_path / "parts")
    np.save(tmp_path / "x.npy", np.zeros((3, 20)))
    with pytest.raises(PartError, match=r"x.npy: expected float32 in C order, got float64"):
        open_input(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.zeros((3, 20), dtype=np.float32, order="F"))
    with pytest.raises(PartError, match=r"x.npy: expected float32 in C order, got float32 in Fortran order"):
        open_input(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_text("no array")
    with pytest.raises(PartError, match=r"x.npy cannot be read as .npy"):
        open_input(tmp_path / "x.npy")
    assert sizes_of(plan.inputs, {"x": np.zeros((3, 20), dtype=np.float32)}) == {"batch": 3}
    with pytest.raises(PartError, match=r"input 'x': expected shape \[batch, 20\], got \[3\]"):
        sizes_of(plan.inputs, {"x": np.zeros(3, dtype=np.float32)})


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="threads: expected 1 or more, got 0"):
        RunOptions(threads=0)
    with pytest.raises(ValueError, match="batch tile: expected 1 or more, got 0"):
        RunOptions(batch_tile=0)


def test_the_network_is_found_by_its_short_name() -> None:
    import redpebble.distributed
    from redpebble.distributed.run.partitioned_network import PartitionedNetwork

    assert redpebble.distributed.PartitionedNetwork is PartitionedNetwork
    with pytest.raises(AttributeError, match=r"^module 'redpebble.distributed' has no attribute 'Network'$"):
        _ = getattr(redpebble.distributed, "Network")  # noqa: B009


def with_step(part: Part, kind: type[Call | Send | Receive], change: Callable[[Any], Any]) -> Part:
    """The part with its first step of a kind changed."""
    index = next(index for index, step in enumerate(part.steps) if isinstance(step, kind))
    return replace(part, steps=(*part.steps[:index], change(part.steps[index]), *part.steps[index + 1 :]))


def with_rows(step: Send | Receive, place: int, row: int) -> Send | Receive:
    rows = step.routes[0].rows.copy()
    rows[place] = row
    return replace(step, routes=(step.routes[0]._replace(rows=rows), *step.routes[1:]))


HOSTILE: dict[str, tuple[Callable[[Part], Part], str]] = {
    "row sent": (lambda part: with_step(part, Send, lambda step: with_rows(step, 0, 10**9)), "exchanges a row outside"),
    "negative row": (lambda part: with_step(part, Send, lambda step: with_rows(step, 0, -(10**6))), "a row outside"),
    "row received": (lambda part: with_step(part, Receive, lambda step: with_rows(step, -1, 10**9)), "a row outside"),
    "order": (lambda part: with_step(part, Receive, lambda step: with_rows(step, 0, 0)), "are not consecutive"),
    "buffer sent": (lambda part: with_step(part, Send, lambda step: replace(step, buffer=-1)), "names buffer -1 of"),
    "rank": (
        lambda part: with_step(part, Send, lambda s: replace(s, routes=(s.routes[0]._replace(rank=7),))),
        "expected an exchange with another rank below 2, got 7",
    ),
    "operand": (
        lambda part: with_step(part, Call, lambda s: replace(s, operands=(s.operands[0]._replace(buffer=99),))),
        "names buffer 99 of",
    ),
    "row of an operand": (
        lambda part: with_step(part, Call, lambda s: replace(s, operands=(s.operands[0]._replace(row=-5),))),
        "begins at row -5 of",
    ),
    "kind": (
        lambda part: replace(part, buffers=(part.buffers[0]._replace(kind="none"),)),
        "expected a kind of ",
    ),
    "port": (lambda part: replace(part, buffers=(part.buffers[0]._replace(kind="input", port=9),)), "is port 9"),
    "features": (lambda part: replace(part, inputs=(part.inputs[0][::-1],)), "features that do not ascend from 0 on"),
    "inputs": (lambda part: replace(part, inputs=()), "expected 1 inputs, got 0"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_part_is_refused_before_it_runs(how: str, tmp_path: Path) -> None:
    plan = write_parts(build_module(build(SPEC)), rows_request(), tmp_path / "parts")
    part = read_part(tmp_path / "parts" / plan.parts[0].file)
    check_part(part, plan)
    change, message = HOSTILE[how]
    with pytest.raises(PartError, match="the part is damaged: ") as refusal:
        check_part(change(part), plan)
    assert message in str(refusal.value)


def with_operand(step: Call, place: int, row: int) -> Call:
    operands = list(step.operands)
    operands[place] = operands[place]._replace(row=row)
    return replace(step, operands=tuple(operands))


CALLS: dict[str, tuple[Callable[[Part], Part], str]] = {
    "last row": (
        lambda part: with_step(part, Call, lambda s: with_operand(s, -1, 11)),
        "expected rows of 20, got rows 11 to 21 of buffer 1",
    ),
    "no function": (
        lambda part: with_step(part, Call, lambda s: replace(s, function="run")),
        "calls 'run', which does not exist",
    ),
    "operands": (
        lambda part: with_step(part, Call, lambda s: replace(s, operands=s.operands[:-1])),
        "expected 2 operands, got 1",
    ),
    "small buffer": (
        lambda part: replace(part, buffers=tuple(one._replace(features=5) for one in part.buffers)),
        "expected rows of 10, got rows 0 to 10 of buffer 0, which has 5",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", CALLS)
def test_a_call_that_reads_behind_a_buffer_is_refused_where_it_is_compiled(how: str, tmp_path: Path) -> None:
    plan = write_parts(build_module(build(SPEC)), rows_request(), tmp_path / "parts")
    part = read_part(tmp_path / "parts" / plan.parts[0].file)
    change, message = CALLS[how]
    with pytest.raises(PartError, match="the part is damaged: ") as refusal:
        compile_blocks(change(part), CpuTarget.generic(), 8)
    assert message in str(refusal.value)


def test_a_folder_with_anything_but_parts_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write_parts(build_module(build(SPEC)), rows_request(), folder)
    check_target(folder)
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(
        ValueError, match=r"d: expected a new folder or one of parts, got 'thesis.txt' beside its parts"
    ):
        write_parts(build_module(build(SPEC)), rows_request(), folder)
    assert (folder / "thesis.txt").read_text() == "years of work"
    (folder / "thesis.txt").unlink()
    for content in ("{}", "[]", "no json"):
        (folder / "plan.json").write_text(content)
        with pytest.raises(ValueError, match=r"d: expected a new folder or one of parts, got one without$"):
            check_target(folder)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ValueError, match=r"link: expected a new folder or one of parts, got a link$"):
        check_target(tmp_path / "link")
