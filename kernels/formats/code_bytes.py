"""`code_bytes`: the form of `code_bits` for weights of eight bits."""

from dataclasses import replace

from . import code_bits

FAMILY = replace(code_bits.FAMILY, name="code_bytes", code_bits=8)
