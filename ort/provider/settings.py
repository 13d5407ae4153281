"""Settings of the execution provider: entries of a session's configuration."""

import ctypes
from dataclasses import dataclass
from typing import Final

from ..custom_ops.node import OrtFunctions
from ..native.ep_api import ContextSlot
from ..native.ep_library import EP_NAME

TRUST_CODE: Final = "trust_code"
"""Option of the provider: "1" lets a session run the native code that a model file holds."""

ENABLE, EMBED, FILE_PATH = "ep.context_enable", "ep.context_embed_mode", "ep.context_file_path"
"""onnxruntime's own entries."""


@dataclass(frozen=True)
class EpSettings:
    """Settings of one session."""

    writes_context: bool = False
    """Whether onnxruntime writes a model that holds what was compiled."""
    embeds: bool = False
    """Whether that lies in the model, or beside it."""
    context_path: str = ""
    """Path of that model; empty for onnxruntime's choice."""
    trusts_code: bool = False


def read_settings(functions: OrtFunctions, options: int) -> EpSettings:
    """Return the settings in an `OrtSessionOptions`.

    Raises:
        ValueError: a switch is neither "0" nor "1".
    """
    trust = f"ep.{EP_NAME.lower()}.{TRUST_CODE}"
    enable, embed, path, trusts = (_entry(functions, options, key) for key in (ENABLE, EMBED, FILE_PATH, trust))
    return EpSettings(enable == "1", embed == "1", path, _switch(TRUST_CODE, trusts))


def _switch(name: str, text: str) -> bool:
    if text not in {"", "0", "1"}:
        raise ValueError(f"option {name}: expected '0' or '1', got {text!r}")
    return text == "1"


def _entry(functions: OrtFunctions, options: int, key: str) -> str:
    """Return an entry, empty where there is none."""
    if not functions.word(ContextSlot.HasSessionConfigEntry, options, key.encode()) & 1:
        return ""
    size = ctypes.c_size_t(0)
    functions.call(ContextSlot.GetSessionConfigEntry, options, key.encode(), None, ctypes.addressof(size))
    text = ctypes.create_string_buffer(size.value)
    address = ctypes.addressof(text)
    functions.call(ContextSlot.GetSessionConfigEntry, options, key.encode(), address, ctypes.addressof(size))
    return text.value.decode(errors="replace")
