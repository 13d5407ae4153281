"""The code of one rank for a step of training: its functions, their gradients, and the values that it holds."""

from typing import TYPE_CHECKING

from ...passes.runner import context
from ...training.native_step import StepOptions
from ..parts.compile_part import check_calls
from ..parts.module_text import OWN, module_of, put_constants
from ..parts.steps import Call, Receive
from ..run.load_part import LoadedPart
from .pieces import Piece, Pieces
from .trained_function import TrainedFunction, flat_call
from .trained_part import TrainedPart, ending_of

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class PartCode(TrainedPart[Piece]):
    """The code of one rank; all ranks of `comm` make theirs together.

    `values` are those that this rank holds: of the columns of weights that are its own, and of constants that several
    ranks have, which stay alike.
    """

    def __init__(self, comm: "Intracomm", loaded: LoadedPart, options: StepOptions) -> None:
        """Make the code of all functions.

        Raises:
            PartError: on all ranks, when the part of one has something without a derivative, or nothing to train.
        """
        super().__init__(comm, loaded, options)
        self.input_count = len(loaded.plan.inputs)
        self.make_together()

    def make(self) -> None:
        """Make the code.

        Raises:
            ValueError: something has no derivative, or the network is none that is trained.
        """
        module = module_of(self.part.text, context())
        put_constants(module, self.part.constants)
        check_calls(self.part, module)
        self.pieces = Pieces(self.part, module)
        self.active = set[Piece]()
        """Pieces whose gradients are of use: weights, or others' weights, were multiplied into them."""
        for step in self.part.steps:
            if isinstance(step, Call):
                call = self.pieces.of_call(step)
                function = TrainedFunction(flat_call(call), self.active.__contains__, self.options)
                self.functions[step.function] = function
                if function.backward is not None:
                    self.active |= {*function.writes}
                if any(self.part.buffers[piece.buffer].kind == "output" for piece in function.writes):
                    self.ending = ending_of(call.tile.yielded)
            elif isinstance(step, Receive) and step.tag >= self.input_count:
                self.active |= {
                    one.piece for route in step.routes for one in self.pieces.columns(step.buffer, route.rows)
                }
        self.take_values()

    def shared(self) -> list[tuple[int, slice]]:
        """Return the constants that other ranks hold, too, by their numbers, and their places among the values."""
        pairs = zip(self.constants, self.slices, strict=True)
        return [(constant.replica, own) for constant, own in pairs if constant.replica != OWN]
