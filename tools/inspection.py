"""The IR that a command shows: after passes, or after a stage, where the command ends."""

import sys
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Final, Literal

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from ..dialect.ops.dense_literals import MOST_PRINTED, ElidingPrinter
from ..driver.native_build import native_build
from ..foundation.atomic_files import write_text
from ..frontend.errors import UnsupportedModelError
from ..frontend.import_model import Source
from ..options import Options
from ..pipeline import build, check_known, passes_of


@dataclass(frozen=True)
class Inspection:
    """The passes after which a module is shown, and the stage at which the command ends, if it is to end early."""

    every: bool = False
    after: tuple[str, ...] = ()
    stage: str = ""
    elide: int | None = None
    """Elements up to which a constant is shown: all after a stage, so that it can be read, and few after passes."""

    def watching(self, options: Options) -> Options:
        """Return options by which passes show what they left.

        Raises:
            ValueError: there is no such stage on the way to the goal, or no such pass.
        """
        passes = {one.name for one in passes_of(options, until=self.stage)}
        check_known("pass", self.after, sorted(passes))
        return replace(options, on_pass=self._show) if self.every or self.after else options

    def print_stage(
        self,
        model: Source,
        options: Options,
        *,
        output: Path | None = None,
        foreign: Literal["refuse", "keep"] = "keep",
    ) -> None:
        """Print a model's module after the stage, on standard output or into a file; `redpebble-opt` reads it.

        Raises:
            ModelError: the model is unreadable, or something in it is not covered and not kept as `foreign`.
            OSError: the file cannot be written.
        """
        text = text_of(self._module(model, options, foreign), self.elide)
        if output is None:
            sys.stdout.write(text)
        else:
            write_text(output, text)

    def _module(self, model: Source, options: Options, foreign: Literal["refuse", "keep"]) -> ModuleOp:
        """Return a model's module after the stage: for native code without what is computed before it."""
        try:
            if options.goal == "compile":
                return native_build(model, options, until=self.stage).module
        except UnsupportedModelError:
            if foreign == "refuse":
                raise
        return build(model, options, until=self.stage, foreign=foreign)

    def _show(self, done: ModulePass, module: ModuleOp) -> None:
        if self.every or done.name in self.after:
            print_after(done.name, module, self.elide)


NOTHING_SHOWN: Final = Inspection()


def print_after(name: str, module: ModuleOp, elide: int | None = None) -> None:
    """Print a module on standard error as `mlir-opt` does after a pass; constants of more elements are left out."""
    print(f"// -----// IR Dump After {name} //----- //", file=sys.stderr)
    ElidingPrinter(sys.stderr, MOST_PRINTED if elide is None else elide).print_op(module)
    print("\n", file=sys.stderr)


def text_of(module: ModuleOp, elide: int | None, *, generic: bool = False) -> str:
    """Return the text of a module: whole, or without constants of more than `elide` elements."""
    stream = StringIO()
    if elide is None:
        Printer(stream, print_generic_format=generic).print_op(module)
        stream.write("\n")
    else:
        ElidingPrinter(stream, elide, generic=generic).print_module(module)
    return stream.getvalue()
