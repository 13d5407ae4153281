"""`redpebble-opt`: xDSL's `xdsl-opt` that also reads ONNX, and that says what is wrong in one line.

Dialect, passes and target come through the `xdsl.universe` entry point, so `xdsl-opt` itself knows them as well.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from redpebble.frontend.errors import ModelError


class RedpebbleOpt(xDSLOptMain):
    """`xdsl-opt` with the frontend `onnx`."""

    def register_all_frontends(self) -> None:
        super().register_all_frontends()
        self.available_frontends["onnx"] = self._read_onnx

    def _read_onnx(self, stream: IO[bytes]) -> ModuleOp:
        """Import a model; one named by a path is read from there, since its weights may lie in files beside it."""
        from redpebble.frontend.importing import import_model

        path: str | None = self.args.input_file
        source = stream.read() if path is None or self.args.split_input_file else Path(path)
        return import_model(source, foreign="keep").module


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `redpebble-opt` on the command line, or on `arguments`; exits with 2 after one line about what is wrong."""
    try:
        RedpebbleOpt("xdsl-opt that also reads ONNX", arguments).run()
    except (ArgSpecParseError, DiagnosticException, ModelError, OSError, ParseError, ValueError) as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from None


def _one_line(error: BaseException) -> str:
    """Return what is wrong, without the excerpt of the source that xDSL adds below a parse error."""
    if isinstance(error, ParseError):
        return f"{error.span.get_location()}: {error.msg}"
    return " ".join(str(error).split())
