"""The options of a build: one record for everyone who runs the pipeline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from .kernels.machine import Machine
from .runtime.threads import checked_threads
from .tuning.measure_kernels import Tuning

if TYPE_CHECKING:
    from .dialect.semantics.interpreter import Foreign


Precision = Literal["f32", "int8", "bf16"]
"""The numbers that sparse layers compute with."""

Goal = Literal["compile", "optimize", "neurons"]
"""The purpose of a module: native code, an ONNX model, or graphs of neurons, which are counted."""


OnPass = Callable[[ModulePass, ModuleOp], None]


@dataclass(frozen=True)
class Options:
    """Choices about a build; `redpebble.compile` and `redpebble.optimize` say what they do.

    Raises:
        ValueError: `threads` is less than 1 or no whole number, or seconds are negative or endless.
    """

    goal: Goal = "compile"
    threads: int = 1
    tuning: Tuning | None = None
    """The machine that kernels are chosen for and what is measured on it; None: the built-in one, nothing."""
    drop_dead_rows: bool = False
    skip_passes: tuple[str, ...] = ()
    """Names of passes to leave out; `redpebble.pipeline` says which can be."""
    kernels: tuple[tuple[str, str], ...] = ()
    """Kernels that a person wants: name of a layer, families by width as reports show them."""
    reorder_seconds: float = 0.0
    schedule_seconds: float = 0.0
    is_node: bool = False
    """Whether native code is for a node of onnxruntime, which gives int64 as they are."""
    sparse_networks: bool = True
    """Whether an ONNX model gets nodes of ours for its sparse layers."""
    may_add: bool = True
    """Whether the graph may get nodes beside those of ours, such as roundings before a dense convolution on codes."""
    rows: int = 0
    """The rows that layers get at once, by which sparse layers are chosen; 0: what the model states, or any number."""
    dense_codes: bool = True
    """Whether weights of four bits with few zeros may gain, on CPUs that have kernels for them; libraries have none."""
    samples: Mapping[str, NDArray[Any]] | None = field(default=None, repr=False, compare=False)
    """Samples of the inputs, by which sparse layers are quantized to eight bits; None: they are not."""
    bfloat: bool = False
    """Whether sparse layers may compute with bfloat16, where they gain by it; samples then tell what is lost."""
    opset: int = 0
    """The opset that a model is written in, 0 where that is not known yet."""
    foreign: "Foreign | None" = field(default=None, repr=False, compare=False)
    """Runs nodes that were left as they are, for these samples."""
    on_pass: OnPass | None = field(default=None, repr=False, compare=False)
    """Called after each pass, with the module as the pass left it."""

    def __post_init__(self) -> None:
        checked_threads(self.threads)
        if self.rows < 0:
            raise ValueError(f"rows: expected 0 or more, got {self.rows}")
        for name, seconds in (("reorder", self.reorder_seconds), ("schedule", self.schedule_seconds)):
            if not 0 <= seconds < float("inf"):
                raise ValueError(f"{name}_seconds: expected 0 or more, got {seconds}")

    @property
    def machine(self) -> Machine:
        """The machine that the cost models describe."""
        return Machine() if self.tuning is None else self.tuning.machine
