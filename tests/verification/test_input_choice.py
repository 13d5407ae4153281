"""Samples from files: what is damaged holds no arrays, and never arrays of other shapes than it says."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from redpebble.verification.feeds import InputChoice, arrays_of

VALUES = np.random.default_rng(2).standard_normal((40, 24)).astype(np.float32)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_file_of_arrays_is_refused_or_holds_what_its_checksums_say(
    tmp_path: Path, *, compressed: bool
) -> None:
    path, random = tmp_path / "x.npz", np.random.default_rng(4)
    (np.savez_compressed if compressed else np.savez)(path, x=VALUES)
    whole = path.read_bytes()
    refused: list[str] = []
    for number in range(60):
        damaged = bytearray(whole)
        if number % 3 == 0:
            del damaged[int(random.integers(len(whole))) :]
        else:
            # what a file is found by lies at both of its ends
            near_end = int(random.integers(300)) if number % 3 == 1 else int(random.integers(len(whole)))
            damaged[near_end if number % 2 else -1 - near_end] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            found = arrays_of(path)
        except ValueError as error:
            refused.append(str(error))
            continue
        for array in found.values():
            np.testing.assert_array_equal(array, VALUES)
    assert len(refused) > 30
    assert all(message.startswith(f"{path} holds no arrays: ") for message in refused)


def test_arrays_with_code_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([print], dtype=object))
    with pytest.raises(ValueError, match=r"x.npz holds no arrays: expected an .npz of numbers$"):
        arrays_of(tmp_path / "x.npz")


def model_of(inputs: str) -> onnx_ir.Model:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[m] y) {{ y = Identity (x) }}'
    return onnx_ir.from_proto(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    "inputs, choice, batches",
    [
        ("float[n, 4] x", InputChoice(), [1, 32]),
        ("float[4, 5] x", InputChoice(), [4]),
        ("float[n, 4] x", InputChoice(dims={"n": 3}), [3]),
        ("float[n, 4] x", InputChoice({"x": (7, 4)}), [7]),
        ("float[1, 4] x, float[n, 4] z", InputChoice(), [1, 32]),
    ],
)
def test_a_batch_that_changes_no_input_is_not_told_as_if_it_did(
    inputs: str, choice: InputChoice, batches: list[int]
) -> None:
    assert [batch for batch, _ in choice.of_batches(model_of(inputs), (1, 32))] == batches


def test_sizes_that_nobody_gave_are_told() -> None:
    model = model_of("float[n, words, n, 4] x, float[m, past] z")
    assert InputChoice().assumed(model) == {"words": 8, "past": 8}
    assert InputChoice({"z": (2, 3)}, {"words": 5}).assumed(model) == {}
    assert [*InputChoice().random(model, 2, np.random.default_rng(0))["x"].shape] == [2, 8, 2, 4]


@pytest.mark.parametrize("shape", [(3, 5), (4,), (3, 4, 1)])
def test_arrays_of_other_sizes_than_an_input_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(shape, np.float32))
    message = f"^input 'x' of the data: expected shape \\(any, 4\\), got {re.escape(str(shape))}$"
    with pytest.raises(ValueError, match=message):
        InputChoice(file=tmp_path / "x.npz").given(model_of("float[n, 4] x"))
