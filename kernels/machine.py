"""A machine as cost models see it: its vectors, its caches, and how fast it reads."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from .measured.neighbours import Examples
from .prices import PRICES
from .work import misses

DEFAULT_PRICES: Final = next(iter(PRICES))
"""The measured machine that counts where nothing is known."""

PREDICTED_MACHINES: Final = ("neoverse_v2", "neoverse_n2", "neoverse_n1", "cortex_a76", "apple_m")
"""Machines whose prices are no measurements: LLVM's scheduling models and stated bandwidths predict them."""

LARGEST_CACHE: Final = 1 << 50
"""Bytes that no cache has."""


class Memory(NamedTuple):
    """Memory behind the caches of all cores: the most bytes of a loop that they hold, and the least ns of a byte."""

    loop_bytes: int
    byte_ns: float


MEMORIES: Final = {"emerald_rapids": Memory(64 << 20, 0.085), "zen5": Memory(32 << 20, 0.0256)}
"""Memories of machines in `kernels/prices.py`, measured by loops over 512 MB; prices were fitted to smaller ones."""


@dataclass(frozen=True)
class Machine:
    """Properties of a CPU: its vectors, its caches, and its speed with each kernel family.

    The defaults are a server's.
    """

    lanes: int = 16
    """Floats in a vector: 16 for AVX-512, 8 for AVX2, 4 for all else."""
    l1_bytes: int = 48 << 10
    l2_bytes: int = 2 << 20
    l3_bytes: int = 12 << 20
    """Bytes that one core gets to itself: less than what several cores, or other machines on the same host, share."""
    l3_ns: float = 0.033
    """Time of a byte that is streamed from the last-level cache, by one core."""
    dram_ns: float = 0.066
    """Time of a byte that is streamed from memory, by one core."""
    prices: str = DEFAULT_PRICES
    """The machine in `kernels/prices.py` whose prices count."""
    shared_bytes: int = 32 << 20
    """Bytes of the whole last-level cache, behind which is memory."""
    bfloat: bool = False
    """Whether it has instructions for products of bfloat16."""
    places_bytes: bool = False
    """Whether it has instructions that place bytes by a mask (VBMI2) and add products of bytes (VNNI), 64 at once."""
    multiplies_tiles: bool = False
    """Whether it has instructions that multiply tiles of bytes (AMX)."""
    bfloat_tiles: bool = False
    """Whether it has instructions that multiply tiles of bfloat16 (AMX)."""
    examples: Examples = field(default_factory=Examples)
    """Layers on which kernels were measured, which correct what is predicted of those nearby."""

    def __post_init__(self) -> None:
        sizes = (self.l1_bytes, self.l2_bytes, self.l3_bytes)
        if self.lanes not in (4, 8, 16):
            raise ValueError(f"expected 4, 8 or 16 lanes, got {self.lanes}")
        if self.prices not in PRICES:
            raise ValueError(f"expected prices of {', '.join(PRICES)}, got {self.prices!r}")
        if not 0 < sizes[0] <= sizes[1] <= sizes[2] < LARGEST_CACHE:
            raise ValueError(
                f"expected ascending positive sizes of caches, got {sizes[0]}, {sizes[1]}, {sizes[2]} bytes"
            )
        if not 0 < self.shared_bytes < LARGEST_CACHE:
            raise ValueError(f"expected a positive size of shared_bytes, got {self.shared_bytes}")
        for name, value in (("l3_ns", self.l3_ns), ("dram_ns", self.dram_ns)):
            if not 0 < value < float("inf"):
                raise ValueError(f"expected a positive number of {name}, got {value}")

    def prices_of(self, family: str) -> tuple[float, ...]:
        """Return the nanoseconds of each unit of work of a family, and its exposure; () where it has no prices.

        The exposure is the time for weights from beyond the second-level cache over that of a plain stream. Vectors
        that were not measured on the machine have the prices of the one that is the default.
        """
        by_lanes = PRICES[self.prices]
        return by_lanes.get(self.lanes, PRICES[DEFAULT_PRICES][self.lanes]).get(family, ())

    def far_ns(self, own_bytes: float, loop_bytes: float) -> float:
        """Return the time to stream `own_bytes`, a part of what is read in a loop over `loop_bytes`."""
        from_l3, from_dram = misses(loop_bytes, self.l2_bytes), misses(loop_bytes, self.l3_bytes)
        return own_bytes * (from_l3 * self.l3_ns + from_dram * max(0.0, self.dram_ns - self.l3_ns))

    def memory_ns(self, own_bytes: float, loop_bytes: float) -> float:
        """Return the time below which nothing reads `own_bytes` in a loop over `loop_bytes`: that of memory."""
        memory = MEMORIES.get(self.prices)
        if memory is None:
            return 0.0
        return own_bytes * memory.byte_ns * misses(loop_bytes, min(memory.loop_bytes, self.shared_bytes))


ANY_MACHINE: Final = Machine()
"""A machine of which nothing is known."""


@dataclass(frozen=True)
class MachineOptions:
    """Numbers of a `Machine` as options of a pass: see there."""

    lanes: int = Machine.lanes
    l1_bytes: int = Machine.l1_bytes
    l2_bytes: int = Machine.l2_bytes
    l3_bytes: int = Machine.l3_bytes
    l3_ns: float = Machine.l3_ns
    dram_ns: float = Machine.dram_ns
    prices: str = DEFAULT_PRICES
    shared_bytes: int = Machine.shared_bytes
    bfloat: bool = Machine.bfloat
    places_bytes: bool = Machine.places_bytes
    multiplies_tiles: bool = Machine.multiplies_tiles
    bfloat_tiles: bool = Machine.bfloat_tiles
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
        can = self.bfloat, self.places_bytes, self.multiplies_tiles, self.bfloat_tiles
        return Machine(self.lanes, *sizes, *reading, self.prices, self.shared_bytes, *can, Examples(self.examples))
