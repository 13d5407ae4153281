"""Random MatMulNBits: any bits, groups, zeros and accuracy, odd sizes, outputs without a weight, NaN and infinities."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import redpebble
from redpebble.kernels.formats.stored_slots import is_stored, stored, unpacked_bytes
from redpebble.runtime.call_code import call_code
from redpebble.runtime.memory import address_of, aligned_bytes, aligned_copy
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.support.few_bits import Doubles, FewBits
from tests.support.few_bits_layers import constant_of, layer, packed_slots
from tests.support.lowering_modules import HERE, native
from tests.support.software_instructions import placed_by_masks, stored_with_zeros

Floats = NDArray[np.float32]

ROUNDED = 32
"""The most inputs that are rounded with one scale."""


def draw(seed: int, folder: Path) -> None:
    """A layer, and rows for it."""
    rng = np.random.default_rng(seed)
    case = FewBits(
        one_of(rng, (1, 7, 16, 31, 33, 64, 100, 257, 512)),
        one_of(rng, (1, 3, 16, 17, 40, 97)),
        bits=one_of(rng, (4, 4, 4, 8)),
        size=one_of(rng, (16, 32, 64, 128, 256)),
        zeros=one_of(rng, (0.0, 0.4, 0.5, 0.8, 0.9, 0.99, 1.0)),
        accuracy=one_of(rng, (0, 1, 2, 3, 4, 4, 4, 4)),
        has_zeros=bool(rng.random() < 0.4),
        float_zeros=bool(rng.random() < 0.2),
        has_bias=bool(rng.random() < 0.5),
        seed=int(rng.integers(1 << 30)),
        rank=one_of(rng, (2, 2, 3)),
        of_four=one_of(rng, (0, 0, 0, 2)),
        empty=one_of(rng, (0.0, 0.0, 0.5)),
    )
    if case.bits == 8:  # onnxruntime refuses zeros of floats there
        case = replace(case, float_zeros=False)
    (folder / "layer.json").write_text(json.dumps(asdict(case)))
    for rows in {one_of(rng, (0, 1, 2, 7, 17)), int(rng.integers(1, 70))}:
        x = rng.standard_normal((rows, case.inputs)) * one_of(rng, (1e-3, 1.0, 1e4))
        x[rng.random(x.shape) < one_of(rng, (0.0, 0.5))] = 0
        if rows and rng.random() < 0.3:
            x[rng.integers(rows), rng.integers(case.inputs)] = one_of(rng, (np.nan, np.inf, -np.inf))
        np.save(folder / f"x-{rows:02}.npy", x.astype(np.float32))


def check(folder: Path) -> str:
    """Our results are as near to those in double precision as rounded inputs let them be."""
    case = FewBits(**json.loads((folder / "layer.json").read_text()))
    compiled, session = redpebble.compile(case.model, cache=False), redpebble.session(case.model)
    judge = onnxruntime.InferenceSession(case.model.SerializeToString())
    is_rounded = case.accuracy == 4 and case.bits == 4
    targets = HERE.values() if is_rounded else ()
    kernels = [native(layer(constant_of(case), case.bias), target) for target in targets]
    if case.accuracy == 4:
        kernels.append(placed_by_masks(case))
    if is_rounded:
        kernels.append(stored_with_zeros(case))
    for path in sorted(folder.glob("x-*.npy")):
        x = np.load(path)
        shaped = x.reshape(len(x), 1, case.inputs) if case.rank == 3 else x
        ours, theirs, expected = (
            np.asarray(one.run(None, {"x": shaped})[0]).reshape(len(x), case.outputs)
            for one in (compiled, session, judge)
        )
        _compare(case, x, ours, "compile")
        if not np.array_equal(theirs, expected, equal_nan=True):  # what stays with onnxruntime is right
            _compare(case, x, theirs, "session")
        for network in kernels:
            _compare(case, x, np.asarray(network.run(None, {"x0": x})[0]), "kernel")
    return _stored(case) if is_rounded else "floats"


def _stored(case: FewBits) -> str:
    packed = packed_slots(case)
    kept = aligned_copy(stored(packed))
    if not is_stored(kept):
        return "codes, as they are"
    result = aligned_bytes(unpacked_bytes(kept))
    call_code().functions["unpack_slots"](address_of(kept), address_of(result))
    assert result.tobytes() == packed.tobytes(), "what is unpacked differs from what was packed"
    return "codes, stored smaller"


def _compare(case: FewBits, x: Floats, found: Floats, name: str) -> None:
    odd = ~np.isfinite(x).all(axis=1)
    with np.errstate(invalid="ignore"):
        off = np.abs(found - case.truth(x))[~odd]
    bound = _bound(case, x[~odd])
    assert np.all(off <= bound), f"{name}: values are wrong by up to {off.max()}"
    for row in np.flatnonzero(odd):
        reads = (case.weight[~np.isfinite(x[row])].astype(np.float32) != 0).any(axis=0)
        assert not np.isfinite(found[row][reads]).any(), f"{name}: a value that is not finite was lost"


def _bound(case: FewBits, x: Floats) -> Doubles:
    """How far results may be off: by the rounding of inputs to bytes, of scales to 16 bits, and of floats."""
    size, scales = np.abs(case.weight), np.abs(case.parts[1]).max(axis=1, initial=0)
    bound = 1e-5 * (np.abs(x).astype(np.float64) @ size + np.abs(case.bias)) + 1e-30
    if case.accuracy != 4:
        return bound
    block = max(ROUNDED, case.size)
    padded = np.pad(np.abs(x), ((0, 0), (0, -case.inputs % block)))
    blocks = padded.reshape(len(x), padded.shape[1] // block, block)
    largest = blocks.max(axis=2, initial=0).repeat(block, axis=1)[:, : case.inputs].astype(np.float64)
    steps = np.abs(case.steps)
    return bound + 1.01 * (largest / 254) @ size + (np.abs(x) @ steps) * scales / 65000


FEW_BITS = Fuzzer("few-bits", draw, check)
