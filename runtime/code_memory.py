"""Code made before: a network that differs from an earlier one only in weights gets the same code.

Within a process no code is emitted twice; another process saves the step from LLVM IR to machine code, if there is a
folder to keep code in.
"""

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from xdsl.dialects.builtin import ModuleOp

from ..lowering.code_key import code_key
from ..lowering.cpu_target import CpuTarget
from ..lowering.shared_code import SharedCode, lower_to_share
from ..passes.rewriting.erase_unused import drop_weights
from .jit import emit_object
from .memory import aligned_copies
from .store.artefact import Artefact
from .store.cache import cache_key
from .store.checked_file import kept

MOST_KEPT_CODES: Final = 32
"""Codes that are kept, some hundred kilobytes each; the oldest goes first."""


class _Key(NamedTuple):
    code: str
    cpu: CpuTarget


class _Known(NamedTuple):
    shared: SharedCode
    image: bytes


class CodeMemory:
    """Object files by what their code depends on; several threads may use it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[_Key, _Known] = {}

    def artefact_of(self, module: ModuleOp, cpu: CpuTarget, folder: Path | None = None) -> Artefact:
        """Return native code of a module that was built for it, and is of no use afterwards.

        Machine code is kept in `folder`.
        """
        key = code_key(module)
        known = self._known.get(_Key(key, cpu)) if key is not None else None
        program = known.shared.program_of(module) if known is not None else None
        if known is not None and program is not None:
            drop_weights(module)
            image = known.image
        else:
            program, shared = lower_to_share(module, cpu)
            drop_weights(module)
            image = _object_of(program.llvm_ir, cpu, folder)
            if key is not None:
                self._keep(_Key(key, cpu), _Known(shared, image))
        return Artefact(replace(program, llvm_ir="", constants=aligned_copies(program.constants)), image)

    def _keep(self, key: _Key, known: _Known) -> None:
        while len(self._known) >= MOST_KEPT_CODES:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = known


@cache
def code_memory() -> CodeMemory:
    """Return the memory of this process."""
    return CodeMemory()


def _object_of(llvm_ir: str, cpu: CpuTarget, folder: Path | None) -> bytes:
    if folder is None:
        return emit_object(llvm_ir, cpu)
    key = cache_key(hashlib.sha256(llvm_ir.encode()).digest(), cpu, "object")
    return kept(folder / f"{key}.object", lambda: emit_object(llvm_ir, cpu))
