"""The code of a network in this process, with the table by which a host knows it."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..kernels.formats.code_slots import LINE
from ..kernels.formats.stored_slots import is_stored, unpacked_bytes
from ..lowering.calls.network_table import SAME_NUMBERS, ParameterNumbers, SplitCosts, network_table, symbols_of
from ..lowering.program import Program
from .call_code import call_code
from .jit import MachineCode, load_object
from .memory import address_of, aligned_bytes, aligned_copy


@dataclass(frozen=True)
class LoadedNetwork:
    """Resources of calls, for as long as they live."""

    program: Program
    """The program, with the packed weights that the code reads."""
    table: NDArray[np.int64]
    code: MachineCode


def loaded_constants(program: Program) -> tuple[NDArray[np.generic], ...]:
    """Return the packed weights as the code reads them."""
    return tuple(_unpacked(array) if is_stored(array) else aligned_copy(array) for array in program.constants)


def _unpacked(array: NDArray[np.void]) -> NDArray[np.generic]:
    result = aligned_bytes(unpacked_bytes(array))[: unpacked_bytes(array)]
    call_code().functions["unpack_slots"](address_of(array), address_of(result))
    return result.view(LINE)


def load_network(
    program: Program, image: bytes, costs: SplitCosts, parameter_numbers: ParameterNumbers = SAME_NUMBERS
) -> LoadedNetwork:
    """Load the object file that was made from `program`, for a host whose threads cost so much.

    Raises:
        ValueError: an axis of an input has no plain size.
    """
    symbols = symbols_of(program, "")
    words = network_table(program, symbols, costs, parameter_numbers)
    tiled = [step.tiled for step in program.steps if step.tiled is not None]
    shared = [tiles.shared for tiles in tiled if tiles.shared is not None]
    arities = {step.symbol: (4, 2) for step in program.steps} | dict.fromkeys(shared, (7, 2))
    code = load_object(image, arities)
    constants = loaded_constants(program)
    table = aligned_bytes(8 * len(words.words)).view(np.int64)
    constant_addresses = {name: address_of(array) for name, array in zip(symbols.constants, constants, strict=True)}
    words.write_to(table, {**code.addresses, **constant_addresses, symbols.table: address_of(table)})
    # the program of the caller would keep the constants that were copied
    return LoadedNetwork(replace(program, constants=constants), table, code)
