"""Native code that does not run layer by layer: along a searched order of connections, or depth first."""

from xdsl.passes import ModulePass

from redpebble.compiler import context, native_passes, portable_passes
from redpebble.dialect.ops.network import NetworkOp
from redpebble.frontend.importing import Source, import_model
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.passes.network.flatten_network import FlattenNetwork
from redpebble.passes.network.plan_steps import PlanSteps
from redpebble.passes.network.schedule_connections import ScheduleConnections
from redpebble.passes.network.schedule_wavefronts import ScheduleWavefronts
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
    return _compile(source, (schedule, PlanSteps()), threads, target)


def compile_depth_first(
    source: Source, schedule: ScheduleWavefronts, *, threads: int = 1, target: CpuTarget | None = None
) -> Network:
    """Return native code whose graphs of neurons compute each neuron right before it is needed.

    It pays for wide layers whose neurons read neighbours, wherever these stand: no value leaves the cache. A batch of a
    few rows is better off layer by layer.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: more values than `schedule.slots` are alive at a time, whatever the order.
    """
    return _compile(source, (schedule,), threads, target)


def _compile(source: Source, order: tuple[ModulePass, ...], threads: int, target: CpuTarget | None) -> Network:
    cpu = host_target() if target is None else target
    module = import_model(source, foreign="refuse").module
    run_passes(context(), module, (*portable_passes(), FlattenNetwork(), *order))
    for op in module.walk():
        if isinstance(op, NetworkOp) and op.steps is None and op.wavefront is None:
            raise ValueError(
                f"a network of {len(op.arrays.biases)} neurons keeps more values alive than there are slots"
            )
    run_passes(context(), module, native_passes())
    program = lower(module, cpu)
    return Network(program, emit_object(program.llvm_ir, cpu), threads)
