"""The module that native code is made of, and what is done around it where inputs or outputs are no float32."""

from typing import Final, NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ..dialect.ops.foreign import ForeignOp, ForeignType
from ..dialect.ops.graphs import EdgeListOp
from ..dialect.ops.recurrences import RecurrenceOp
from ..dialect.semantics.output_forms import OutputForm
from ..dialect.semantics.prologue import Prologue
from ..frontend.errors import CodesError, TooManyNodesError, UnsupportedModelError, within_limits
from ..frontend.import_model import Imported, Source, import_model
from ..frontend.output_forms import cut_output_forms
from ..frontend.prologue import cut_prologue
from ..options import Options
from ..passes.runner import context, run_passes
from ..passes.simplify.fuse_codes import FuseCodes
from ..passes.simplify.take_bytes import TakeBytes
from ..pipeline import build, run_stages

IN_NETWORKS: Final = frozenset(
    {
        "ai.onnx::Conv",
        "ai.onnx::DequantizeLinear",
        "ai.onnx::GRU",
        "ai.onnx::LSTM",
        "ai.onnx::MatMulInteger",
        "ai.onnx::RNN",
        "com.microsoft::QGemm",
    }
)
"""Operators that `foreign="keep"` leaves where nothing says that their network gains."""


def imported_for_reports(source: Source) -> Imported:
    """Return a model as `compile` takes it; what that refuses stays a foreign op.

    Convolutions and layers on codes stay only where there is some.

    Raises:
        ModelError: the model is unreadable.
    """
    imported = import_model(source, foreign="keep")
    kept = [op.operator.data for op in imported.module.walk() if isinstance(op, ForeignOp)]
    if IN_NETWORKS.isdisjoint(kept):
        return imported
    try:
        return import_model(source, foreign="refuse")
    except UnsupportedModelError:
        return import_model(source, foreign="keep", whole=frozenset())


class NativeBuild(NamedTuple):
    """A module behind the last stage, what has to be computed before its function, and what its outputs become."""

    module: ModuleOp
    prologue: Prologue | None = None
    output_forms: tuple[OutputForm | None, ...] = ()


def holds_edges(module: ModuleOp) -> bool:
    """Return whether edges are inputs of a module that holds no node of ONNX."""
    return _has_only_ops_of_ours(module) and any(isinstance(op, EdgeListOp) for op in module.walk())


def _holds_lengths(module: ModuleOp) -> bool:
    """Return whether lengths of sequences are inputs of a module that holds no node of ONNX."""
    lengths = (op.lengths is not None for op in module.walk() if isinstance(op, RecurrenceOp))
    return _has_only_ops_of_ours(module) and any(lengths)


def _has_only_ops_of_ours(module: ModuleOp) -> bool:
    return not any(isinstance(op, ForeignOp) for op in module.walk())


def _is_native(module: ModuleOp) -> bool:
    """Return whether a module holds no node of ONNX and reads no values of other types."""
    arguments = [value for op in module.ops if isinstance(op, FuncOp) for value in op.body.block.args]
    kept = any(isinstance(op, ForeignOp) for op in module.walk())
    return not kept and not any(isinstance(value.type, ForeignType) for value in arguments)


def native_build(source: Source, options: Options, *, until: str = "") -> NativeBuild:
    """Return the module of a model; nodes that no op stands for are a prologue where they come before all layers.

    The module is that behind all stages, or behind the stage `until`.

    Raises:
        ModelError: the model is unreadable, or something in it is not covered.
        ValueError: there is no such stage, or a pass to be skipped does not exist.
    """
    try:
        return _native_build(source, options, until)
    except UnsupportedModelError as error:
        if "session" not in str(error) and not getattr(error, "__notes__", ()):
            error.add_note("redpebble.session leaves what is not covered to onnxruntime")
        raise


def _native_build(source: Source, options: Options, until: str) -> NativeBuild:
    try:
        return NativeBuild(build(source, options, until=until))
    except TooManyNodesError:
        raise
    except UnsupportedModelError as error:
        refusal = error
    with within_limits():
        imported = import_model(source, foreign="prologue")
        if (options.is_node and holds_edges(imported.module)) or _holds_lengths(imported.module):
            run_stages(imported.module, options, until=until)
            return NativeBuild(imported.module)
        # what layers take as bytes is neither rounded nor computed before them
        run_passes(context(), imported.module, [FuseCodes(), TakeBytes()], options.on_pass)
        forms = cut_output_forms(imported)
        try:
            prologue = cut_prologue(imported)
        except UnsupportedModelError as error:
            # the first node that is not covered may well be one that is computed before all layers: another one is not
            same = str(error).startswith(str(refusal).partition(":")[0] + ":")
            raise (refusal if same or isinstance(error, CodesError) else error) from None
        # nothing is computed before a node, nor behind it
        if options.is_node and (prologue is not None or forms):
            raise refusal
        if prologue is None and not forms and not _is_native(imported.module):
            raise refusal
        run_stages(imported.module, options, until=until)
    return NativeBuild(imported.module, prologue, forms)
