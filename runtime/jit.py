"""JIT: callable machine code in this process from LLVM IR."""

import ctypes
import itertools
import platform
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

from llvmlite import binding

from ..foundation.made_once import made_once
from ..lowering.architectures import LINUX, architecture_of, host_name, told_features
from ..lowering.cpu_target import CpuTarget

TILES: Final = "amx"
"""The beginning of the names of instruction sets that have tiles."""

StepFunction = Callable[..., None]


@cache
def _initialize() -> None:
    """Make LLVM's code generator for this architecture available; the second call does nothing."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()  # for inline assembly; LLVM ends the process without it


@cache
def _initialize_others() -> None:
    """Make LLVM's code generators for all architectures available."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def host_target() -> CpuTarget:
    """Return the CPU that code of this process is for: this machine's with all its features, unless one is assumed."""
    return _assumed()[-1] if _assumed() else this_cpu()


@cache
def _assumed() -> list[CpuTarget]:
    return []


@contextmanager
def assumed_cpu(target: CpuTarget) -> Generator[None]:
    """Let all code of this process be for a CPU that can do less than this machine's, to test it here.

    Raises:
        ValueError: this machine cannot run code for it.
    """
    missing = missing_features(target)
    if missing:
        raise ValueError(f"expected a CPU with {', '.join(missing)}, got {this_cpu().cpu}, which has not")
    _assumed().append(target)
    try:
        yield
    finally:
        _assumed().pop()


@cache
def this_cpu() -> CpuTarget:
    """Return this machine's CPU with all its features."""
    return CpuTarget.from_features(binding.get_host_cpu_name(), _host_features().flatten(), host_name())


def _host_features() -> binding.FeatureMap:
    found = binding.get_host_cpu_features()
    found.update(dict.fromkeys(told_features(architecture_of(host_name())), True))
    if not _may_use_tiles():
        found.update({name: False for name in found if name.startswith(TILES)})
    return found


@cache
def _may_use_tiles() -> bool:
    """Return whether Linux lets this process use the registers of tiles, which it asks for."""
    question = architecture_of(host_name()).ask_for_tiles
    return bool(question) and platform.system() == LINUX and ctypes.CDLL(None).syscall(*question) == 0


def missing_features(target: CpuTarget) -> tuple[str, ...]:
    """Return the features that code for `target` needs and this machine lacks; another architecture is one."""
    if target.architecture_name != host_name():
        return (target.architecture_name,)
    host = _host_features()
    needed = [feature[1:] for feature in target.features.split(",") if feature.startswith("+")]
    return tuple(feature for feature in needed if not host.get(feature, False))


@made_once
def _jit() -> tuple[binding.LLJIT, Iterator[int]]:
    """Return the loader of objects, and numbers for their names; making a loader costs more than a load."""
    # JITLink: the older linker ends the process where code comes to lie far from its data, as in large models
    return binding.create_lljit_compiler(use_jit_link=True), itertools.count()


def emit_object(llvm_ir: str, target: CpuTarget) -> bytes:
    """Return the object file of a module.

    The IR is final: kernels are emitted as they should be scheduled, so LLVM's optimiser pipeline is left out.
    """
    return _target_machine(target).emit_object(binding.parse_assembly(llvm_ir))


def emit_assembly(llvm_ir: str, target: CpuTarget) -> str:
    """Return the instructions of a module as text, with a comment that names each block of the IR."""
    machine = _target_machine(target)
    machine.set_asm_verbosity(True)
    return machine.emit_assembly(binding.parse_assembly(llvm_ir))


def _target_machine(target: CpuTarget) -> binding.TargetMachine:
    _initialize()
    return _llvm_target(target).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="default"
    )


def _llvm_target(target: CpuTarget) -> binding.Target:
    if target.architecture_name == host_name() and not target.triple:
        return binding.Target.from_default_triple()
    _initialize_others()
    return binding.Target.from_triple(target.triple or target.architecture.triple)


@dataclass(frozen=True)
class MachineCode:
    """Loaded functions by name; they stay loaded as long as this object lives."""

    functions: Mapping[str, StepFunction]
    addresses: Mapping[str, int]
    owners: tuple[object, ...]


def load_object(image: bytes, arities: Mapping[str, tuple[int, int]]) -> MachineCode:
    """Load an object file; `arities` gives each function's number of pointer and of 64-bit arguments.

    Calls through the result release Python's global lock.
    """
    _initialize()
    jit, numbers = _jit()
    builder = binding.JITLibraryBuilder().add_object_img(image)
    for name in arities:
        builder = builder.export_symbol(name)
    tracker = builder.link(jit, f"redpebble{next(numbers)}")
    addresses = {name: tracker[name] for name in arities}
    functions = {name: _function(addresses[name], *arity) for name, arity in arities.items()}
    return MachineCode(functions, addresses, (tracker,))


def _function(address: int, pointers: int, sizes: int) -> StepFunction:
    arguments: Sequence[type[ctypes.c_void_p | ctypes.c_int64]] = [ctypes.c_void_p] * pointers
    return ctypes.CFUNCTYPE(None, *arguments, *[ctypes.c_int64] * sizes)(address)
