"""A compiled network: prepared for the sizes of a call once, then one native call a run."""

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from ..dialect.reports.layer_report import Report
from ..dialect.symbolic_sizes import Size, SymbolicShape, bind_symbols
from ..lowering.calls.network_table import IN_PROCESS
from ..lowering.calls.python_call import (
    CALL_FROM_PYTHON,
    CONTIGUOUS,
    OBJECT_BYTES,
    OUTPUT_WORDS,
    Array,
    Entry,
    Input,
)
from ..lowering.program import Program
from .bound_call import BoundCall, bound_inputs, bound_outputs, check_apart
from .call import Call, new_call
from .call_code import call_code
from .loaded_network import load_network
from .memory import FLOAT32, OutputMemory, address_of, addressof, aligned_bytes, first_byte, zeros_on_demand
from .thread_pool import ThreadPool
from .threads import checked_threads

# Calls by a builtin function of native code (`lowering/calls/python_call`), for inputs of shapes known beforehand.

Outputs = list[NDArray[np.float32]]
ONE_ARGUMENT: Final = 0x0008
"""Python's METH_O: the function takes one argument."""


class _MethodDef(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class PythonCall:
    """A call with inputs of some shapes."""

    run: Callable[[Mapping[str, Any]], Outputs | None]
    """Returns the outputs of inputs by name; None where they are not as the call was prepared for."""
    call: Call
    owned: tuple[object, ...]
    """Owners of what else the function reads."""


def python_call(
    call: Call, inputs: Mapping[str, tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> list[PythonCall]:
    """Return the function for inputs and outputs of these shapes, which has `call` to itself; none without code."""
    make = _maker()
    if make is None:
        return []
    shapes = [np.array(shape, dtype=np.int64) for shape in inputs.values()]
    arguments = [(shape, FLOAT32) for shape in outputs]
    input_words, output_words = Input.word_count * len(inputs), OUTPUT_WORDS * len(outputs)
    words = aligned_bytes(8 * (Entry.word_count + input_words + output_words)).view(np.int64)
    words[: Entry.word_count] = [
        0,
        call.frame,
        call_code().addresses["run_in_pool" if call.is_parallel else "run"],
        address_of(call.buffers),
        len(inputs),
        len(outputs),
        *map(id, (None, dict, np.ndarray, FLOAT32, np.empty)),
    ]
    given = words[Entry.word_count :][:input_words].reshape(len(inputs), Input.word_count)
    for row, name, shape in zip(given, inputs, shapes, strict=True):
        row[:] = [id(name), len(shape), address_of(shape), 0]
    words[words.size - len(outputs) :] = [*map(id, arguments)]
    call.native.direct = words
    run = cast("Callable[[Mapping[str, Any]], Outputs | None]", make(words))
    return [PythonCall(run, call, ([*inputs], shapes, arguments))]


@cache
def _maker() -> Callable[[NDArray[np.int64]], object] | None:
    """Return the native maker of builtin functions; None if Python's objects have another layout than its code."""
    if not _is_known_layout():
        return None
    definition = _MethodDef(b"run", call_code().addresses[CALL_FROM_PYTHON], ONE_ARGUMENT, None)
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make = prototype(("PyCFunction_NewEx", ctypes.pythonapi))
    return lambda entry: make(ctypes.addressof(definition), entry, None)


def _is_known_layout() -> bool:
    """Return whether objects and arrays of this Python and numpy lie in memory as the code reads them."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if object.__basicsize__ != OBJECT_BYTES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    probe = np.empty((3, 5), dtype=FLOAT32)
    words = np.ctypeslib.as_array((ctypes.c_int64 * (Array.flags + 1)).from_address(id(probe)))
    shape = (ctypes.c_int64 * 2).from_address(int(words[Array.shape]))
    found = words[1], words[Array.data], words[Array.dtype], int(words[Array.rank]) & 0xFFFFFFFF
    flags = int(words[Array.flags]) & 0xFFFFFFFF
    expected = id(np.ndarray), address_of(probe), id(FLOAT32), probe.ndim
    return found == expected and tuple(shape) == probe.shape and flags == probe.flags.num and bool(flags & CONTIGUOUS)


Floats = NDArray[np.float32]
Shapes = tuple[tuple[int, ...], ...]

TYPE_NAMES: Final = {"float32": "float", "float64": "double"}
"""ONNX's names of types where they are not numpy's."""

MOST_SHAPES: Final = 32
"""Shapes for which a network stays prepared; more are forgotten, the oldest first, so that memory does not grow."""


empty = np.empty
"""A name of the module, since every call asks for outputs."""


class NodeArg(NamedTuple):
    """An input or output as onnxruntime describes it; sizes that a call chooses are names."""

    name: str
    type: str
    shape: list[int | str]


class _Prepared(NamedTuple):
    """The sizes of calls with inputs of some shapes, memory for outputs, and calls that are idle."""

    symbols: dict[str, int]
    output_shapes: tuple[tuple[int, ...], ...]
    outputs: list[OutputMemory]
    idle: list[Call]
    direct: list[PythonCall]
    """The call that the interpreter makes without us, where there is one."""


class Network:
    """Native code and packed weights of a network; calls from several threads may run at once."""

    def __init__(self, program: Program, image: bytes, threads: int = 1) -> None:
        """Load the object file `image` that was made from `program`.

        Raises:
            ValueError: `threads` is less than 1, or no whole number, or the network was made for onnxruntime.
        """
        threads = checked_threads(threads)
        if any(step.may_fail for step in program.steps):
            raise ValueError("expected a whole network, got a part of a model inside onnxruntime")
        self._loaded = load_network(program, image, IN_PROCESS)
        self.program = program = self._loaded.program
        self.threads = threads
        self._prologue = program.prologue
        declared = program.inputs if self._prologue is None else self._prologue.inputs
        self._input_names = tuple(value.name for value in declared)
        self._prepared: dict[int, dict[Shapes, _Prepared]] = {threads: {}}
        self._pools = {threads: ThreadPool(threads)} if threads > 1 else {}
        self._dtypes = tuple(np.dtype(tensor.dtype) for tensor in program.inputs)
        has_bytes = any(tensor.dtype != "float32" for tensor in (*program.inputs, *program.outputs))
        self._is_direct = not (self._prologue or program.output_forms or program.zeroed or has_bytes)
        self._direct: PythonCall | None = None

    @property
    def report(self) -> Report:
        """Choices for each layer, with reasons; and what was tried for all of them together."""
        return self.program.report

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs, as `InferenceSession.get_inputs` does."""
        if self._prologue is None:
            return [_described(tensor.name, tensor.dtype, tensor.shape) for tensor in self.program.inputs]
        return [_described(value.name, value.dtype, value.shape) for value in self._prologue.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, as `InferenceSession.get_outputs` does."""
        forms = self.program.output_forms or (None,) * len(self.program.outputs)
        return [
            _described(tensor.name, tensor.dtype if one is None else one.dtype, tensor.shape)
            for tensor, one in zip(self.program.outputs, forms, strict=True)
        ]

    @override
    def __repr__(self) -> str:
        def ports(tensors: Sequence[NodeArg]) -> str:
            return ", ".join(f"{one.name}[{', '.join(map(str, one.shape))}]" for one in tensors)

        layers, threads = len(self.report), f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"<Network: {ports(self.get_inputs())} -> {ports(self.get_outputs())}; {layers} layers, {threads}>"

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError("a compiled network cannot be pickled: compile the model in each process, or read it there")

    def __call__(self, *inputs: NDArray[np.generic], threads: int | None = None) -> Floats | list[Floats]:
        """Run on inputs in their order; return the output, or the list of them where there are several.

        Raises:
            ValueError: a dtype or shape does not fit, or `threads` is more than the network was compiled for.
        """
        if len(inputs) != len(self._input_names):
            raise ValueError(f"expected {len(self._input_names)} inputs, got {len(inputs)}")
        arrays = self._arrays(dict(zip(self._input_names, inputs, strict=True)))
        outputs = self._run(arrays, threads)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, ArrayLike], *, threads: int | None = None
    ) -> list[Floats]:
        """Run on inputs by name; the signature of `InferenceSession.run`.

        `threads` is at most the number that the network was compiled for, which is what None means; the results do not
        depend on it.

        Raises:
            ValueError: a name, dtype or shape does not fit; the message says what is expected.
        """
        direct = self._direct
        if direct is not None and threads is None and not output_names:
            known = direct.run(feeds)
            if known is not None:
                return known
        try:
            inputs = self._arrays(feeds)
        except KeyError:
            self._refuse_names(feeds)
        if len(feeds) != len(self._input_names):
            self._refuse_names(feeds)
        outputs = self._run(inputs, threads)
        if not output_names:
            return outputs
        names = [tensor.name for tensor in self.program.outputs]
        for name in output_names:
            if name not in names:
                raise ValueError(f"output: expected one of {', '.join(names)}, got {name!r}")
        return [outputs[names.index(name)] for name in output_names]

    def bind(
        self,
        feeds: Mapping[str, NDArray[np.generic]],
        outputs: Mapping[str, NDArray[np.generic]] | None = None,
        *,
        threads: int | None = None,
    ) -> BoundCall:
        """Return the call on these arrays, which it reads and writes in place each time it is run.

        As with onnxruntime's `io_binding`: write new values into the arrays, call `run()`, and read the outputs. Those
        that `outputs` does not name are new arrays.

        Raises:
            ValueError: a name, dtype or shape does not fit, an array is not contiguous, or an output shares memory
                with another array.
        """
        if set(feeds) != set(self._input_names):
            self._refuse_names(feeds)
        if self._prologue is not None:
            raise ValueError("expected run for a network that computes what it reads from its inputs, got bind")
        if self.program.output_forms:
            raise ValueError("expected run for a network that casts its outputs, got bind")
        inputs, count = bound_inputs(self.program, feeds), self._thread_count(threads)
        prepared = self._prepare(count, tuple(x.shape for x in inputs))
        arrays = bound_outputs(self.program, outputs or {}, prepared.output_shapes)
        check_apart(self.program, inputs, arrays)
        zeroed = [arrays[output] for output in self.program.zeroed]
        return BoundCall(new_call(self._loaded, prepared.symbols, self._pool(count)), inputs, arrays, zeroed)

    def _arrays(self, feeds: Mapping[str, ArrayLike]) -> list[Floats]:
        """Return the arrays that native code reads.

        Raises:
            KeyError: an input is missing.
            ValueError: a dtype or shape does not fit.
        """
        if self._prologue is None:
            given = zip(self._input_names, self._dtypes, strict=True)
            return [_checked(name, feeds[name], dtype) for name, dtype in given]
        return self._prologue.run(feeds)

    def _run(self, inputs: list[Floats], threads: int | None) -> list[Floats]:
        count = self.threads if threads is None else self._thread_count(threads)
        shapes = tuple([x.shape for x in inputs])
        try:
            prepared = self._prepared[count][shapes]
        except KeyError:
            prepared = self._prepare(count, shapes)
        try:
            call = prepared.idle.pop()
        except IndexError:  # all are in use, by calls in other threads
            call = new_call(self._loaded, prepared.symbols, self._pool(count))
        outputs = [
            empty(memory.shape, memory.dtype) if memory.is_small else memory.take() for memory in prepared.outputs
        ]
        for output in self.program.zeroed:
            outputs[output] = zeros_on_demand(prepared.output_shapes[output])
        addresses = call.addresses
        for index, array in enumerate((*inputs, *outputs)):
            try:
                # as `address_of` does, without a call
                addresses[index] = addressof(first_byte(array))
            except (TypeError, ValueError):
                addresses[index] = address_of(array)
        call.native.run()
        if self._is_direct and count == self.threads:
            self._put_back(call, prepared, shapes)
        else:
            prepared.idle.append(call)
        if self.program.output_forms:
            cast_to = zip(outputs, self.program.output_forms, strict=True)
            return [array if form is None else form.of(array) for array, form in cast_to]
        return outputs

    def _put_back(self, call: Call, prepared: _Prepared, shapes: Shapes) -> None:
        """Keep a call for the next one of these shapes: the first for the interpreter, where it can make it."""
        if not prepared.direct and all(memory.is_small for memory in prepared.outputs):
            named = dict(zip(self._input_names, shapes, strict=True))
            prepared.direct.extend(python_call(call, named, prepared.output_shapes))
        if not prepared.direct or prepared.direct[-1].call is not call:
            prepared.idle.append(call)
        self._direct = prepared.direct[-1] if prepared.direct else None

    def _prepare(self, threads: int, shapes: Shapes) -> _Prepared:
        prepared = self._prepared.setdefault(threads, {})
        known = prepared.get(shapes)
        if known is not None:
            return known
        symbols = bind_symbols({tensor.name: tensor.shape for tensor in self.program.inputs}, shapes)
        symbols |= {name: Size.symbol(name).evaluate(symbols) for name in self.program.computed}
        outputs = tuple(tuple(size.evaluate(symbols) for size in tensor.shape) for tensor in self.program.outputs)
        if len(prepared) >= MOST_SHAPES:
            # the list is made at once: other threads add and remove shapes meanwhile
            for oldest in [*prepared][:1]:
                prepared.pop(oldest, None)
        memory = [
            OutputMemory(shape, np.dtype(tensor.dtype))
            for shape, tensor in zip(outputs, self.program.outputs, strict=True)
        ]
        return prepared.setdefault(shapes, _Prepared(symbols, outputs, memory, [], []))

    def _thread_count(self, threads: int | None) -> int:
        if threads is None:
            return self.threads
        return checked_threads(threads, self.threads)

    def _pool(self, threads: int) -> ThreadPool | None:
        """Return the pool of so many threads; None for one, which is the caller's."""
        if threads == 1:
            return None
        pool = self._pools.get(threads)
        return pool if pool is not None else self._pools.setdefault(threads, ThreadPool(threads))

    def _refuse_names(self, feeds: Mapping[str, object]) -> NoReturn:
        """Say which input is unknown or missing.

        Raises:
            ValueError: always, when the names of `feeds` are not those of the inputs.
        """
        for name in feeds:
            if name not in self._input_names:
                raise ValueError(f"input: expected one of {', '.join(self._input_names)}, got {name!r}")
        missing = next(name for name in self._input_names if name not in feeds)
        raise ValueError(f"input {missing!r} is missing")


def _described(name: str, dtype: str, shape: SymbolicShape) -> NodeArg:
    return NodeArg(name, f"tensor({TYPE_NAMES.get(dtype, dtype)})", _dimensions(shape))


def _dimensions(shape: SymbolicShape) -> list[int | str]:
    """Return a symbolic shape as onnxruntime prints it: numbers, and names of sizes that a call chooses."""
    return [str(size) if size.constant is None else size.constant for size in shape]


def _checked(name: str, array: ArrayLike, dtype: np.dtype[Any]) -> Floats:
    """Return an input as a contiguous array; lists of numbers become arrays, as onnxruntime takes them.

    Raises:
        ValueError: the array is of another dtype, or the lists are of different lengths.
    """
    if type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous:
        return cast("Floats", array)
    if not isinstance(array, np.ndarray):
        try:
            return np.asarray(array, dtype=dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"input {name!r} is no array: {error}") from error
    floats = cast("Floats", array)
    if floats.dtype != dtype:
        raise ValueError(f"input {name!r}: expected dtype {dtype}, got {floats.dtype}")
    return np.asarray(floats, order="C")
