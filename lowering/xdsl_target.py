"""The target `pebble-llvm` of `xdsl-opt` and `redpebble-opt`: a scheduled module as LLVM IR text."""

from dataclasses import dataclass
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from .cpu_target import CpuTarget
from .driver import lower


@dataclass(frozen=True)
class PebbleLlvmTarget(Target):
    """Print the LLVM IR of a module whose layers are in tiles: `-t 'pebble-llvm{features="+avx2,+fma"}'`.

    Without `features` the code is for the least CPU of this architecture.
    """

    name: ClassVar[str] = "pebble-llvm"

    cpu: str = ""
    features: str = ""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        del ctx
        output.write(lower(module, CpuTarget.from_features(self.cpu, self.features)).llvm_ir)
