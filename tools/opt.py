"""`redpebble-opt`: `xdsl-opt` that also reads ONNX, lists passes, elides constants, and says what is wrong in one line.

Dialect, passes and target come through the `xdsl.universe` entry point, so `xdsl-opt` itself knows them as well.
"""

import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Final, NoReturn

from typing_extensions import override
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from ..frontend.errors import ModelError
from ..universe import PIPELINES


class _ListPasses(Action):
    """Print what passes and pipelines there are, and end."""

    @override
    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> NoReturn:
        from .pass_list import pass_list

        print(pass_list())
        parser.exit()


ELIDED_FROM: Final = 16
"""Elements of a constant from which on a terminal does not get them: one of a million is a line of megabytes."""


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
        arg_parser.add_argument(
            "--elide",
            metavar="N",
            type=int,
            help="Leave out constants of more than N elements when printing; 16 on a terminal",
        )
        arg_parser.add_argument(
            "--list-passes",
            action=_ListPasses,
            nargs=0,
            help="Show the passes and pipelines of redpebble, and their options",
        )

    def setup_pipeline(self) -> None:
        self._check_passes()
        super().setup_pipeline()
        watched = self.args.print_after_all or self.args.print_after or self.args.stop_after
        named = {f"pebble-{name}" for name in PIPELINES}
        if not watched and all(one.name not in named for one in self.pipeline.passes):
            return
        # loads all passes; `-p` alone loads only the passes it names
        from ..pipeline import check_known, passes_up_to
        from .inspection import print_after

        ours = passes_up_to(self.args.stop_after) if self.args.stop_after else []
        passes, told = (*ours, *_expanded(self.pipeline.passes)), self.pipeline.callback
        check_known("pass", self.args.print_after, sorted({one.name for one in passes}))

        def show(done: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
            if told is not None:
                told(done, module, following)
            if done is not None and (self.args.print_after_all or done.name in self.args.print_after):
                print_after(done.name, module, self.args.elide)

        self.pipeline = PassPipeline(passes, show)

    def _check_passes(self) -> None:
        """Say what is wrong with `-p`, by the name of the pass, which xDSL leaves out.

        Raises:
            ValueError: there is no such pass, or it has no such option.
        """
        for spec in parse_pipeline(self.args.passes):
            if spec.name not in self.available_passes:
                near = get_close_matches(spec.name, self.available_passes, 3)
                meant = f", near it are {', '.join(near)}" if near else ""
                raise ValueError(f"unknown pass {spec.name!r}{meant}; redpebble-opt --list-passes shows all")
            try:
                self.available_passes[spec.name]().from_spec(spec)
            except ValueError as error:
                raise ValueError(f"{spec.name}: {error}") from error

    def output_resulting_program(self, prog: ModuleOp) -> str:
        to_terminal = self.args.output_file is None and sys.stdout.isatty()
        most = ELIDED_FROM if self.args.elide is None and to_terminal else self.args.elide
        if most is None or self.args.target != "mlir":
            return super().output_resulting_program(prog)
        from .inspection import text_of

        return text_of(prog, most, generic=self.args.print_op_generic)

    def _read_onnx(self, stream: IO[bytes]) -> ModuleOp:
        """Import a model; one named by a path is read from there, since its weights may lie in files beside it."""
        from ..frontend.import_model import import_model

        path: str | None = self.args.input_file
        source = stream.read() if path is None or self.args.split_input_file else Path(path)
        return import_model(source, foreign="keep").module


def _expanded(passes: Sequence[ModulePass]) -> Iterator[ModulePass]:
    """Yield passes, with pipelines replaced by their passes, so that each pass can be watched."""
    from ..driver.named_pipelines import NamedPipeline

    for one in passes:
        yield from one.passes() if isinstance(one, NamedPipeline) else (one,)


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
    """Return the message of an error, without the source excerpt that xDSL adds below a parse error."""
    if isinstance(error, ParseError):
        return f"{error.span.get_location()}: {error.msg}"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{str(error.filename)!r}: {error.strerror.lower()}"
    return " ".join(str(error).split()) or type(error).__name__
