"""The IR that a command shows: after passes, or after a stage, where the command ends."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from redpebble.dialect.ops.dense_literals import ElidingPrinter
from redpebble.foundation.atomic_files import write_text
from redpebble.options import Options
from redpebble.pipeline import build, check_known, passes_of


@dataclass(frozen=True)
class Inspection:
    """The passes after which a module is shown, and the stage at which the command ends, if it is to end early."""

    every: bool = False
    after: tuple[str, ...] = ()
    stage: str = ""

    def watching(self, options: Options) -> Options:
        """Return options by which passes show what they left.

        Raises:
            ValueError: there is no such stage on the way to the goal, or no such pass.
        """
        passes = {one.name for one in passes_of(options, until=self.stage)}
        check_known("pass", self.after, sorted(passes))
        return replace(options, on_pass=self._show) if self.every or self.after else options

    def print_stage(
        self, model: Path, options: Options, *, output: Path | None = None, foreign: Literal["refuse", "keep"] = "keep"
    ) -> None:
        """Print a model's module after the stage, on standard output or into a file; `redpebble-opt` reads it.

        Raises:
            ModelError: the model is unreadable, or something in it is not covered and not kept as `foreign`.
            OSError: the file cannot be written.
        """
        text = str(build(model, options, until=self.stage, foreign=foreign)) + "\n"
        if output is None:
            sys.stdout.write(text)
        else:
            write_text(output, text)

    def _show(self, done: ModulePass, module: ModuleOp) -> None:
        if self.every or done.name in self.after:
            print_after(done.name, module)


NOTHING_SHOWN: Final = Inspection()


def print_after(name: str, module: ModuleOp) -> None:
    """Print a module on standard error as `mlir-opt` does after a pass; large constants are left out."""
    print(f"// -----// IR Dump After {name} //----- //", file=sys.stderr)
    ElidingPrinter(sys.stderr).print_op(module)
    print("\n", file=sys.stderr)
