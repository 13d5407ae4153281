"""A rank's part, found to be whole, and to be of the same plan as the parts of all other ranks."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import PartError
from ..parts.check_part import check_part
from ..parts.part_file import Part, part_in
from ..parts.plan_file import PlanFile, read_plan
from .agreement import agree, agree_on
from .exchanges import check_exchanges

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class LoadedPart(NamedTuple):
    """The plan, this rank's part, and the sha256 of its file in hexadecimal digits."""

    plan: PlanFile
    part: Part
    sha256: str


def load_part(comm: "Intracomm", folder: Path) -> LoadedPart:
    """Return what the rank of `comm` runs.

    Raises:
        PartError: on all ranks, when one of them has no part that fits: the message says which and why.
    """
    loaded, digest, error = None, "", None
    try:
        plan, digest = read_plan(folder)
        loaded = _checked(plan, folder, comm.size, comm.rank)
    except (PartError, OSError, ValueError, TypeError, LookupError) as problem:
        error = " ".join(str(problem).split())
    agree(comm, error)
    agree_on(comm, digest[:12], f"the plan in {folder}")
    assert loaded is not None
    check_exchanges(comm, loaded.part)
    return loaded


def _checked(plan: PlanFile, folder: Path, size: int, rank: int) -> LoadedPart:
    if plan.part_count != size:
        raise PartError(f"{folder} holds {plan.part_count} parts, and there are {size} ranks: expected as many")
    entry = plan.parts[rank]
    path = folder / entry.file
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != entry.sha256:
                at_fault = f"part {rank}, {path}, is damaged or of another plan"
                raise PartError(f"{at_fault}: its checksum is not that of plan.json")
            # what was looked at, whatever has this name by now
            part = part_in(file, path.name)
    except OSError as error:
        raise PartError(f"part {rank}, {path}, cannot be read: {(error.strerror or '').lower()}") from error
    if part.part_count != size or part.rank not in (rank, -1):
        raise PartError(f"{path} is part {part.rank} of {part.part_count}, expected part {rank} of {size}")
    check_part(part, plan)
    return LoadedPart(plan, part, digest)
