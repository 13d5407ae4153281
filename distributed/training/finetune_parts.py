"""Training of parts on the ranks that hold them: `mpiexec -n P redpebble finetune PARTS/ OUT/ --data D.npz`.

So many times as many ranks as there are parts train as many replicas of all of them, each on its share of a batch.
Parts of a graph are trained on all nodes in each step: a rank takes the loss of the nodes that its part owns.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ...foundation.atomic_files import replacing_folder
from ...training.finetune import FinetuneReport, Watch, fitted, trained
from ...training.native_step import StepOptions
from ...training.samples import Samples, Task
from ..errors import PartError
from ..parts.part_file import Part, write_part
from ..parts.plan_file import PartEntry, PlanFile, read_plan, write_plan
from ..run.agreement import agree
from ..run.load_part import load_part
from ..run.replicas import MpiReplicas
from .messages import BytesSent
from .node_step import NodeStep
from .part_step import PartStep

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

TRAINABLE = ("rows", "layers", "nodes")
"""Plans of which every rank holds some neurons, or some nodes."""


@dataclass(frozen=True)
class PartsTrained:
    """The outcome of a training: its report, the numbers of parts and of replicas, and bytes that all ranks sent."""

    report: FinetuneReport
    parts: int
    replicas: int
    sent: BytesSent
    between_replicas: int


def finetune_parts(
    comm: "Intracomm",
    folders: tuple[Path, Path],
    task: Task,
    watch: Watch | None = None,
) -> PartsTrained:
    """Train the parts of a folder, and write those of another one; all ranks of `comm` call it.

    Samples are those of the whole network, the same on all ranks, as is the seed.

    Raises:
        PartError: on all ranks, when parts cannot be trained, or not by so many ranks.
        ValueError: the data does not fit.
        OSError: on rank 0, when the folder cannot be written.
    """
    source, target = folders
    plan, _ = read_plan(source)
    if plan.kind not in TRAINABLE:
        raise PartError(
            f"{source}: expected parts of the plan {', '.join(TRAINABLE)}, got those of {plan.kind}; a model "
            "itself is trained on shares of a batch by --replicas"
        )
    if comm.size % plan.part_count:
        raise PartError(f"expected a multiple of {plan.part_count} ranks, one for each part, got {comm.size}")
    if plan.kind == "nodes":
        return _finetune_nodes(comm, folders, task, watch)
    replica, part = divmod(comm.rank, plan.part_count)
    own = cast("Intracomm", comm.Split(replica, part))
    others = MpiReplicas(cast("Intracomm", comm.Split(part, replica)))
    options, rows = fitted(task.options, task.samples, others)
    loaded = load_part(own, source)
    of_codes = any(buffer.zero is not None for buffer in loaded.part.buffers)
    agree(comm, f"{source}: expected layers of floats to train, got some on codes" if of_codes else None)
    step = PartStep(own, loaded, StepOptions(options.loss, rows, options.threads))
    values, report = trained(step, task.samples, options, task.validation, watch, others)
    _write(comm, target, replace(plan, model=""), None if replica else step.trained(values))
    held = own.allreduce(len(step.values))
    sent = _of_all(comm, step.wire.bytes_sent)
    return PartsTrained(
        replace(report, values=held), plan.part_count, others.size, sent, comm.allreduce(others.bytes_sent)
    )


def _finetune_nodes(comm: "Intracomm", folders: tuple[Path, Path], task: Task, watch: Watch | None) -> PartsTrained:
    """Train parts that own nodes: the gradients of all ranks are added up as those of replicas are.

    Raises:
        PartError: on all ranks, when parts cannot be trained, or not by so many ranks.
        ValueError: the data does not fit.
        OSError: on rank 0, when the folder cannot be written.
    """
    loaded, ranks = load_part(comm, folders[0]), MpiReplicas(comm)
    nodes = loaded.plan.inputs[0].shape[0].constant or 0
    own = np.array(loaded.part.outputs[0])
    samples, validation = (None if one is None else _own_nodes(one, nodes, own) for one in task[:2])
    assert samples is not None
    options = replace(task.options, batch=max(1, nodes))
    if options.by_sign:
        raise ValueError(f"exchange: expected f32 or bits for parts of the plan nodes, got {options.exchange}")
    step = NodeStep(comm, loaded, StepOptions(options.loss, len(own), options.threads))
    values, report = trained(step, samples, options, validation, watch, ranks)
    _write(comm, folders[1], replace(loaded.plan, model=""), step.trained(values))
    sent = replace(step.wire.bytes_sent, shared=ranks.bytes_sent)
    return PartsTrained(replace(report, values=len(values)), comm.size, 1, _of_all(comm, sent), 0)


def _own_nodes(samples: Samples, nodes: int, own: NDArray[np.int64]) -> Samples:
    """Return samples of which a rank takes its own nodes; what a teacher says is of all nodes.

    Raises:
        ValueError: there are not as many samples as nodes.
    """
    if samples.count != nodes:
        raise ValueError(f"expected a sample for each of {nodes} nodes, got {samples.count}")
    labels = samples.labels
    if samples.teacher is not None:
        labels = samples.teacher({name: np.asarray(x, np.float32) for name, x in samples.inputs.items()})
    return Samples(samples.inputs, labels, own=own)


def _of_all(comm: "Intracomm", sent: BytesSent) -> BytesSent:
    """Return the bytes that all ranks have sent."""
    counts: list[dict[str, int]] = comm.allgather(vars(sent))
    return BytesSent(**{name: sum(count[name] for count in counts) for name in counts[0]})


def _write(comm: "Intracomm", folder: Path, plan: PlanFile, part: Part | None) -> None:
    """Write a folder of parts, each by the rank that has it; all ranks call it."""
    with replacing_folder(folder) if not comm.rank else nullcontext(folder) as opened:
        unfinished: Path = comm.bcast(opened)
        written, error = None, None
        try:
            if part is not None:
                name = f"part-{part.rank:04}.pebble"
                written = PartEntry(name, write_part(unfinished / name, part))
        except OSError as problem:
            error = " ".join(str(problem).split())
        agree(comm, error)
        entries = comm.gather(written)
        if entries is not None:
            write_plan(unfinished, replace(plan, parts=tuple(entry for entry in entries if entry is not None)))
