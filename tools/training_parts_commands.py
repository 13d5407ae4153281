"""The command `finetune` on a folder of parts: all ranks of mpiexec train, and the first one shows it."""

import sys
from typing import TYPE_CHECKING

from .console.console import console, progress_console
from .console.progress_bar import progress_bar
from .training_commands import FinetuneFiles, Rates, show_training, task_of

if TYPE_CHECKING:
    from ..distributed.training.finetune_parts import PartsTrained


def finetune_parts_and_print(files: FinetuneFiles, loss: str | None, rates: Rates) -> int:
    """Train parts, show the epochs, and write the parts; return the exit code.

    Raises:
        ValueError: there is no MPI.
    """
    from ..distributed.errors import PartError
    from ..distributed.run.agreement import agreed, world
    from ..distributed.run.guard import EXIT_CODE
    from ..distributed.run.liveness import watched
    from ..distributed.training.finetune_parts import finetune_parts
    from ..distributed.write_parts import check_target

    comm = world("training of parts")
    if comm.rank:
        console.quiet = progress_console.quiet = True
    with watched(comm):
        try:
            agreed(comm, lambda: check_target(files.output))
            task = agreed(comm, lambda: task_of(files, loss, rates))
            with progress_bar() as watch:
                found = finetune_parts(comm, (files.model, files.output), task, watch)
            if not comm.rank:
                _show(files, found)
        except (PartError, ValueError) as error:
            # raised on all ranks alike: one of them says it
            if not comm.rank:
                print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            return EXIT_CODE
    return 0


def _show(files: FinetuneFiles, found: "PartsTrained") -> None:
    sent = vars(found.sent)
    words = ", ".join(f"{count:,} {name}" for name, count in sent.items() if count)
    line = f"{found.parts} parts, bytes sent: {words or 'none'}"
    if found.replicas > 1:
        line += f"; {found.replicas} replicas, {found.between_replicas:,} bytes between them"
    counts = {"parts": found.parts, "replicas": found.replicas, "bytes_sent": sent}
    show_training(files, found.report, line, counts | {"bytes_between_replicas": found.between_replicas})
