"""Native code that runs connection by connection, along a searched order: the theory of `theory/pebbling` at work."""

from ...driver.compiler import machine_code
from ...frontend.import_model import Source
from ...lowering.cpu_target import CpuTarget
from ...options import Options
from ...passes.network.schedule_connections import ScheduleConnections
from ...pipeline import build
from ...runtime.jit import host_target
from ...runtime.network import Network


def compile_in_order(
    source: Source, schedule: ScheduleConnections, *, threads: int = 1, target: CpuTarget | None = None
) -> Network:
    """Return native code whose graphs of neurons run in the order that `schedule` finds.

    A batch tile's rows move between slow memory and `schedule.memory` - 1 slots as the policy decided beforehand.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        PassFailedException: the options of `schedule` make no sense.
    """
    code = machine_code(build(source, Options("neurons", order=schedule)), host_target() if target is None else target)
    return Network(code.program, code.image, threads)
