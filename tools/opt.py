"""`redpebble-opt`: `xdsl-opt` that also reads ONNX, runs stages of ours, and says what is wrong in one line.

Dialect, passes and target come through the `xdsl.universe` entry point, so `xdsl-opt` itself knows them as well.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from redpebble.frontend.errors import ModelError


class RedpebbleOpt(xDSLOptMain):
    """`xdsl-opt` with the frontend `onnx`, and options that show what passes do."""

    def register_all_frontends(self) -> None:
        super().register_all_frontends()
        self.available_frontends["onnx"] = self._read_onnx

    def register_all_arguments(self, arg_parser: ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.add_argument("--print-after-all", action="store_true", help="Show the IR after each pass, on stderr")
        arg_parser.add_argument(
            "--print-after", metavar="PASS", action="append", default=[], help="Show the IR after this pass, on stderr"
        )
        arg_parser.add_argument(
            "--stop-after", metavar="STAGE", default="", help="Run redpebble's passes to this stage before those of -p"
        )

    def setup_pipeline(self) -> None:
        super().setup_pipeline()
        if not (self.args.print_after_all or self.args.print_after or self.args.stop_after):
            return
        # loads all passes, which `-p` alone does one by one
        from redpebble.pipeline import check_known, passes_up_to
        from redpebble.tools.inspection import print_after

        ours = passes_up_to(self.args.stop_after) if self.args.stop_after else []
        passes, told = (*ours, *self.pipeline.passes), self.pipeline.callback
        check_known("pass", self.args.print_after, sorted({one.name for one in passes}))

        def show(done: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            if told is not None:
                told(done, module, following)
            if done is not None and (self.args.print_after_all or done.name in self.args.print_after):
                print_after(done.name, module)

        self.pipeline = PassPipeline(passes, show)

    def _read_onnx(self, stream: IO[bytes]) -> ModuleOp:
        """Import a model; one named by a path is read from there, since its weights may lie in files beside it."""
        from redpebble.frontend.import_model import import_model

        path: str | None = self.args.input_file
        source = stream.read() if path is None or self.args.split_input_file else Path(path)
        return import_model(source, foreign="keep").module


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `redpebble-opt` on the command line, or on `arguments`; exits with 2 after one line about what is wrong."""
    try:
        RedpebbleOpt("xdsl-opt that also reads ONNX", arguments).run()
    except (
        ArgSpecParseError,
        DiagnosticException,
        MemoryError,
        ModelError,
        OSError,
        ParseError,
        RecursionError,
        ValueError,
    ) as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from None


def _one_line(error: BaseException) -> str:
    """Return what is wrong, without the excerpt of the source that xDSL adds below a parse error."""
    if isinstance(error, ParseError):
        return f"{error.span.get_location()}: {error.msg}"
    return " ".join(str(error).split()) or type(error).__name__
