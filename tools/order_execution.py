"""Native code that runs connection by connection, along a searched order: the theory of `theory/pebbling` at work."""

from redpebble.compiler import context, native_passes, portable_passes
from redpebble.frontend.importing import Source, import_model
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.passes.network.flatten_network import FlattenNetwork
from redpebble.passes.network.plan_steps import PlanSteps
from redpebble.passes.network.schedule_connections import ScheduleConnections
from redpebble.passes.pipeline import run_passes
from redpebble.runtime.jit import emit_object, host_target
from redpebble.runtime.network import Network


def compile_in_order(
    source: Source, schedule: ScheduleConnections, *, threads: int = 1, target: CpuTarget | None = None
) -> Network:
    """Return native code whose graphs of neurons run in the order that `schedule` finds.

    A batch tile's rows move between slow memory and `schedule.memory` - 1 slots as the policy decided beforehand.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        PassFailedException: the options of `schedule` make no sense.
    """
    cpu = host_target() if target is None else target
    module = import_model(source, foreign="refuse").module
    run_passes(context(), module, (*portable_passes(), FlattenNetwork(), schedule, PlanSteps(), *native_passes()))
    program = lower(module, cpu)
    return Network(program, emit_object(program.llvm_ir, cpu), threads)
