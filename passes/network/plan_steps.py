"""Turn the order of a scheduled network into the steps of its fast memory: loads, sums, activations, stores.

```mlir
%y = pebble.network %x ... order dense<[0, 1]> : tensor<2xi64> transfers <memory = 4, policy = min, ...> : ...
// ->
%y = pebble.network %x ... steps dense<[[0, 0, 0, 2], [1, 1, 0, 0], [2, 1, 0, 0], ...]> : tensor<8x4xi64> : ...
```

The steps replay what the policy decides, so that native code follows them without deciding anything. The op's verifier
carries them out and holds their number to the transfers counted. See `redpebble.dialect.attributes.memory_steps`.
"""

from typing import cast

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.attributes.memory_steps import ACTIVATE, CONNECT, LOAD_BIAS, LOAD_ROW, STORE_ROW
from ...dialect.ops.network import NetworkOp
from ...dialect.tensors import dense_indices, indices_of
from ...theory.pebbling.machine import Memory, Policy
from ...theory.pebbling.machine_steps import StepKind, plan_steps

KINDS = {
    StepKind.LOAD_BIAS: LOAD_BIAS,
    StepKind.LOAD_ROW: LOAD_ROW,
    StepKind.CONNECT: CONNECT,
    StepKind.FINISH: ACTIVATE,
    StepKind.STORE_ROW: STORE_ROW,
}
"""The theory's step -> the dialect's; a neuron without an activation needs no step to be finished."""


class PlanSteps(ModulePass):
    """Write the steps of every network that has an order and its transfers."""

    name = "pebble-plan-steps"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for network in op.walk():
            if isinstance(network, NetworkOp):
                _plan(network, self.name)


def _plan(op: NetworkOp, pass_name: str) -> None:
    if op.order is None or op.transfers is None:
        raise PassFailedException(f"{pass_name}: a network has no order yet, pebble-schedule-connections writes one")
    policy = cast("Policy", op.transfers.policy)
    memory = Memory(op.transfers.memory, policy)
    steps = plan_steps(op.graph, indices_of(op.order), memory)
    neurons = np.maximum(steps[:, 3] - op.input_count, 0)
    finishes = steps[:, 0] == StepKind.FINISH
    has_activation = np.zeros(len(steps), dtype=np.bool_)
    has_activation[finishes] = op.weighted_graph.activation_of[neurons[finishes]] >= 0
    steps = steps[~finishes | has_activation]
    kinds = np.array([KINDS[kind] for kind in StepKind], dtype=np.int64)
    op.steps = dense_indices(np.column_stack((kinds[steps[:, 0]], steps[:, 1:])))
