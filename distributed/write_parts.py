"""A folder of parts, from a scheduled module and a partition: complete or not there at all."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from ..dialect.shape_inference import symbolic_shapes
from ..foundation.atomic_files import replacing_folder
from ..passes.analysis.weights import connection_count
from ..theory.partition.partition import Partition
from .graph.batch_axis import check_batch_axis
from .graph.node_graph import NodeGraph, NodeOwners
from .graph.ownership import Ownership, weight_for
from .graph.row_graph import RowGraph, port_names
from .messages.channels import SLOTS
from .parts.module_text import take_constants, text_of
from .parts.node_program import node_part
from .parts.part_file import Part, write_part
from .parts.plan_file import (
    PART_NAME,
    PLAN_NAME,
    PartEntry,
    PlanFile,
    PortShape,
    is_plan,
    write_plan,
)
from .parts.rank_program import rank_program
from .parts.tile_sizes import batch_tile, block_width


@dataclass(frozen=True)
class PartsRequest:
    """The split of a module: `rows`, `layers` and `nodes` by a partition, `batch` into slices of every batch.

    All levels of a partition of nodes have the same owners.
    """

    kind: str
    part_count: int
    partition: Partition | None = None
    model: str = ""
    note: str = ""
    batch: int = 1
    """Samples of a usual run: where they fill the tiles in flight, these hide messages, and else neurons of a layer."""


def write_parts(module: ModuleOp, request: PartsRequest, folder: Path) -> PlanFile:
    """Write the parts of a module, whose row-wise ops are in tiles, into the new folder `folder`.

    Raises:
        UnsupportedModelError: the module cannot be split like this.
        ValueError: the partition is of another network, or `folder` exists and holds anything but parts.
        OSError: the folder cannot be written.
    """
    check_target(folder)
    with replacing_folder(folder) as unfinished:
        plan = _write_into(unfinished, module, request)
        write_plan(unfinished, plan)
    return plan


def check_target(folder: Path) -> None:
    """Check that parts can take the place of a folder, which may be asked before any work is done.

    Raises:
        ValueError: it exists, and is a link, or holds anything but the parts of a plan.
        OSError: there is no folder for it.
    """
    accepted = f"{folder}: expected a new folder or one of parts, got"
    if not folder.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {folder}: {folder.absolute().parent} is no folder")
    if folder.is_symlink():
        raise ValueError(f"{accepted} a link")
    if not folder.exists():
        return
    names = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else [folder.name]
    if names and not is_plan(folder / PLAN_NAME):
        raise ValueError(f"{accepted} one without")
    others = [name for name in names if name != PLAN_NAME and not PART_NAME.fullmatch(name)]
    if others:
        raise ValueError(f"{accepted} {others[0]!r} beside its parts")


def _write_into(folder: Path, module: ModuleOp, request: PartsRequest) -> PlanFile:
    inputs, outputs = _ports(module)
    if request.partition is None:
        check_batch_axis(module)
        entries = tuple(_batch_parts(folder, module, request.part_count))
        return PlanFile("batch", request.part_count, request.model, 0, 0, inputs, outputs, entries, request.note)
    if request.kind == "nodes":
        return _node_parts(folder, module, request, request.partition)
    block = block_width(module)
    graph = RowGraph.of(module)
    ownership = Ownership.of(graph, request.partition)
    entries = tuple(_rank_parts(folder, ownership, overlap=request.batch <= (SLOTS - 1) * block))
    return PlanFile(
        request.kind,
        request.part_count,
        request.model,
        _batch_tile(graph, request, block),
        ownership.volume,
        inputs,
        outputs,
        entries,
        request.note,
        block,
    )


def _ports(module: ModuleOp) -> tuple[tuple[PortShape, ...], tuple[PortShape, ...]]:
    func = next(op for op in module.body.block.ops if isinstance(op, FuncOp))
    shapes, end = symbolic_shapes(func), func.body.block.last_op
    returned = end.operands if isinstance(end, ReturnOp) else ()
    inputs = zip(port_names(func.arg_attrs, len(func.args)), func.args, strict=True)
    outputs = zip(port_names(func.res_attrs, len(returned)), returned, strict=True)
    return (
        tuple(PortShape(name, shapes[value]) for name, value in inputs),
        tuple(PortShape(name, shapes[value]) for name, value in outputs),
    )


def _rank_parts(folder: Path, ownership: Ownership, *, overlap: bool) -> Iterator[PartEntry]:
    """Write the parts one by one, so that memory holds a single part."""
    for rank in range(ownership.part_count):
        program = rank_program(ownership, rank, overlap=overlap)
        program.module.verify()
        constants = tuple(take_constants(program.module))
        part = Part(
            rank=rank,
            part_count=ownership.part_count,
            whole=False,
            text=text_of(program.module),
            constants=constants,
            buffers=program.buffers,
            steps=program.steps,
            inputs=program.inputs,
            outputs=program.outputs,
        )
        name = f"part-{rank:04}.pebble"
        yield PartEntry(name, write_part(folder / name, part))


def _node_parts(folder: Path, module: ModuleOp, request: PartsRequest, partition: Partition) -> PlanFile:
    inputs, outputs = _ports(module)
    owners = NodeOwners(NodeGraph.of(module), request.part_count, partition.owners[0])
    entries: list[PartEntry] = []
    for rank in range(request.part_count):
        path = folder / f"part-{rank:04}.pebble"
        entries.append(PartEntry(path.name, write_part(path, node_part(owners, rank))))
    volume = sum(int(share.sent.sum()) for share in owners.shares())
    return PlanFile(
        "nodes", request.part_count, request.model, 0, volume, inputs, outputs, tuple(entries), request.note
    )


def _batch_parts(folder: Path, module: ModuleOp, part_count: int) -> Iterator[PartEntry]:
    """Write the whole network once for every rank; on one machine the files are one."""
    copy = module.clone()
    constants = tuple(take_constants(copy))
    first = folder / "part-0000.pebble"
    digest = write_part(first, Part(-1, part_count, whole=True, text=text_of(copy), constants=constants))
    yield PartEntry(first.name, digest)
    for rank in range(1, part_count):
        name = f"part-{rank:04}.pebble"
        try:
            os.link(first, folder / name)
        except OSError:
            shutil.copyfile(first, folder / name)
        yield PartEntry(name, digest)


def _batch_tile(graph: RowGraph, request: PartsRequest, block: int) -> int:
    """Return how many samples travel together: enough work a layer that a message is short against it."""
    counts = [connection_count(weight_for(layer)) for layer in graph.layers]
    return batch_tile(counts, request.part_count if request.kind == "rows" else 1, block)
