"""The machine that a pass asks cost models about, as options of the pass."""

from dataclasses import asdict, dataclass
from typing import Any

from redpebble.kernels.machine import DEFAULT_PRICES, Machine
from redpebble.kernels.measured.neighbours import Examples


@dataclass(frozen=True)
class MachineOptions:
    """The numbers of a `Machine`: see there."""

    lanes: int = Machine.lanes
    l1_bytes: int = Machine.l1_bytes
    l2_bytes: int = Machine.l2_bytes
    l3_bytes: int = Machine.l3_bytes
    l3_ns: float = Machine.l3_ns
    dram_ns: float = Machine.dram_ns
    prices: str = DEFAULT_PRICES
    bfloat: bool = Machine.bfloat
    examples: tuple[str, ...] = ()
    """Layers that were measured on the machine, see `Examples`."""

    @staticmethod
    def numbers(machine: Machine) -> dict[str, Any]:
        """Return the options that describe a machine."""
        return asdict(machine) | {"examples": machine.examples.words}

    @property
    def machine(self) -> Machine:
        """The machine that the options describe.

        Raises:
            ValueError: an option is none that a machine can have, or a measured layer cannot be read.
        """
        sizes = (self.l1_bytes, self.l2_bytes, self.l3_bytes)
        reading = (self.l3_ns, self.dram_ns)
        return Machine(self.lanes, *sizes, *reading, self.prices, self.bfloat, Examples(self.examples))
