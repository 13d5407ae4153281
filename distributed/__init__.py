"""One network on several machines: parts, the planner, and the ranks that run them over MPI.

```python
from mpi4py import MPI

network = redpebble.distributed.PartitionedNetwork(MPI.COMM_WORLD, "parts")
y_slice = network.run(x_slice)  # the columns network.inputs[0].features of x, or some of its samples
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run.partitioned_network import PartitionedNetwork as PartitionedNetwork
    from .run.partitioned_network import RunOptions as RunOptions

__all__ = ["PartitionedNetwork", "RunOptions"]


def __getattr__(name: str) -> object:
    """Load what is asked for: a folder that every import of a module passes through must stay cheap."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .run import partitioned_network

    return getattr(partitioned_network, name)
