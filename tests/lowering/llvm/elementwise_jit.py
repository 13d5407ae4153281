"""Compile one elementwise function for one target and call it on arrays; measure its error in ulp."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llvmlite import binding, ir
from numpy.typing import NDArray

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm import values
from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import loop
from redpebble.lowering.llvm.vectors import Lanes

Emit = Callable[[Lanes, ir.Value], ir.Value]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ElementwiseKernel:
    """Native code; the compiler and the library are kept because the code lives as long as they do."""

    compiler: binding.LLJIT
    library: binding.ResourceTracker
    lanes: int

    def __call__(self, x: Floats) -> Floats:
        padded = np.zeros(-(-x.size // self.lanes) * self.lanes, dtype=np.float32)
        padded[: x.size] = x.ravel()
        y = np.empty_like(padded)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.library["kernel"])
        function(padded.ctypes.data, y.ctypes.data, padded.size)
        return y[: x.size].reshape(x.shape)


def kernel_module(emit: Emit, target: CpuTarget, width: int) -> ir.Module:
    """`void kernel(ptr x, ptr y, i64 n)`, which writes emit(x) to y; n is a multiple of `width`."""
    code = Code(target, ir.Module("elementwise"))

    @code.kernel("kernel", exported=True)
    def _(x: values.Floats, y: values.Floats, count: values.Number) -> None:
        lanes = code.lanes(x, width)
        with loop(count, width) as index:
            lanes.store(emit(lanes, lanes.load(x.at(index))), y.at(index))

    return code.module


def target_machine(target: CpuTarget) -> binding.TargetMachine:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    host = binding.Target.from_default_triple()
    return host.create_target_machine(target.cpu, target.features, 2, reloc="pic", codemodel="default")


def elementwise_object(emit: Emit, target: CpuTarget, width: int) -> bytes:
    machine = target_machine(target)
    parsed = binding.parse_assembly(str(kernel_module(emit, target, width)))
    parsed.verify()
    return machine.emit_object(parsed)


def compile_elementwise(emit: Emit, target: CpuTarget, width: int | None = None) -> ElementwiseKernel:
    width = target.lanes if width is None else width
    compiler = binding.create_lljit_compiler(target_machine(target))
    library = binding.JITLibraryBuilder().add_object_img(elementwise_object(emit, target, width))
    return ElementwiseKernel(compiler, library.export_symbol("kernel").link(compiler, "elementwise"), width)


def undefined_symbols(object_code: bytes) -> set[str]:
    """The names an ELF object expects from elsewhere; the JIT would find libm's in the process and say nothing."""
    listed = binding.ObjectFileRef.from_data(object_code).sections()
    sections = {section.name(): section.data() for section in listed}
    symbol = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8", 2)])
    symbols = np.frombuffer(sections[b".symtab"], dtype=symbol)
    names = symbols["name"][(symbols["section"] == 0) & (symbols["name"] != 0)]
    return {sections[b".strtab"][start:].split(b"\0", 1)[0].decode() for start in names.tolist()}


def every_nth_float(step: int, start: int = 0) -> Floats:
    """Every `step`-th of all 2^32 bit patterns: normal and denormal numbers, infinities, NaN."""
    return np.arange(start, 2**32, step, dtype=np.uint32).view(np.float32)


def ulp_error(actual: Floats, reference: NDArray[np.floating]) -> NDArray[np.float64]:
    """The distance to the float64 result in units of the spacing of float32 there; 0 where both are NaN or infinite."""
    expected = reference.astype(np.float64)
    limits = np.finfo(np.float32)
    _, exponent = np.frexp(expected)
    spacing = np.ldexp(1.0, np.maximum(exponent - 24, -149))
    with np.errstate(invalid="ignore"):
        error = np.abs(actual.astype(np.float64) - expected) / spacing
    overflown = np.abs(expected) >= float(limits.max) * (1 + 2.0**-25)
    same = (np.isnan(actual) & np.isnan(expected)) | (overflown & (actual == np.copysign(np.inf, expected)))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
