"""Times of attention on this machine, by itself."""

import time

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from ..dialect.ops.attention import AttentionOp, Heads, Weighting
from ..dialect.symbolic_sizes import NAME
from ..dialect.tensors import f32_tensor
from ..runtime.code_memory import code_memory
from ..runtime.jit import host_target
from ..runtime.network import Network
from ..theory.attention_cost import AttentionSize

SECONDS = 0.05
"""Seconds of calls, at least three of them."""


def measured_us(size: AttentionSize) -> float:
    """Return the microseconds of the fastest call on one thread, the call itself included."""
    artefact = code_memory().artefact_of(_module(size), host_target())
    network = Network(artefact.program, artefact.image, 1)
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal([entry.constant or 1 for entry in value.shape], dtype=np.float32)
        for value in artefact.program.inputs
    }
    best, calls, end = float("inf"), 0, time.perf_counter() + SECONDS
    while calls < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        network.run(None, feeds)
        best, calls = min(best, time.perf_counter() - begun), calls + 1
    return 1e6 * best


def _module(size: AttentionSize) -> ModuleOp:
    lengths = (size.queries, size.key_size), (size.keys, size.key_size), (size.keys, size.value_size)
    types = [f32_tensor((size.samples, rows, size.heads * features)) for rows, features in lengths]
    if size.masked:
        types.append(f32_tensor((size.samples, 1, size.queries, size.keys)))
    block = Block(arg_types=types)
    q, k, v, *mask = block.args
    op = AttentionOp((q, k, v), mask[0] if mask else None, Heads(size.heads, size.heads), Weighting(0.1))
    block.add_ops([op, ReturnOp(op.result)])
    names = ArrayAttr([DictionaryAttr({NAME: StringAttr(f"x{index}")}) for index in range(len(types))])
    return ModuleOp([FuncOp("main", (types, [op.result.type]), Region(block), arg_attrs=names)])
