"""A kernel family is one record, one format file and one code file, and its name is a string nowhere else."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from redpebble.kernels.families import FAMILIES, is_dense, takes_any_rows
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.machine import Machine
from redpebble.kernels.prediction import candidates, predicted_us
from redpebble.kernels.prices import PRICES
from redpebble.kernels.tile_widths import TILE_WIDTHS, WIDTHS
from redpebble.kernels.work import Layer
from redpebble.lowering.kernels.table import any_rows_code_of, code_of
from redpebble.sparse.csr import CscMatrix

ROOT = Path(__file__).parent.parent.parent
FORMATS, CODE = ROOT / "kernels/formats", ROOT / "lowering/kernels"

EMPTY = (np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
"""Pointers, rows and values of a weight of one output without connections."""


def test_a_family_has_a_format_file_and_a_code_file_of_its_name() -> None:
    declared = {file.stem for file in FORMATS.glob("*.py") if "\nFAMILY = " in file.read_text()}
    assert declared == set(FAMILIES)
    for name, family in FAMILIES.items():
        assert family.name == name
        assert callable(code_of(family).emit)
        assert (CODE / f"{name}.py").exists()
        assert set(family.widths) <= set(TILE_WIDTHS)


def test_a_family_for_any_number_of_rows_has_code_for_it() -> None:
    chosen = [family for family in FAMILIES.values() if family.any_rows]
    assert chosen
    for family in chosen:
        assert callable(any_rows_code_of(family).emit_rows)
        assert callable(any_rows_code_of(family).emit_leaving)


@pytest.mark.slow
def test_the_name_of_a_family_is_a_string_in_its_own_files_alone() -> None:
    wrong: list[str] = []
    for file in sorted(ROOT.glob("*/**/*.py")):
        relative = file.relative_to(ROOT)
        if relative.parts[0] in ("tests", "build", ".venv") or relative == Path("kernels/prices.py"):
            continue
        text = file.read_text()
        if not any(f'"{name}"' in text for name in FAMILIES):
            continue
        strings = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        own = {file.stem} if file.parent in (FORMATS, CODE) else set[str]()
        wrong += [f"{relative} has {name}" for name in (strings & set(FAMILIES)) - own]
    assert not wrong, wrong


def test_what_is_no_family_of_ours_computes_no_zeros_and_takes_no_rows() -> None:
    assert not is_dense("abacus")
    assert not takes_any_rows("abacus")
    dense = {name for name in FAMILIES if is_dense(name)}
    assert dense == {name for name, family in FAMILIES.items() if "dense" in family.stored and not family.rounds}


def test_prices_are_for_families_there_are() -> None:
    for by_lanes in PRICES.values():
        for lanes, known in by_lanes.items():
            assert all(lanes in FAMILIES[name].lanes for name in known)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_share_of_outputs_keeps_their_weights_and_the_panels_inside(is_sparse: bool) -> None:
    dense = np.where(np.random.default_rng(0).random((9, 12)) < 0.4, np.float32(2), np.float32(0))
    panels = [np.array([[0, 1], [4, 5], [5, 6], [7, 8]]), np.array([[2]])]
    weight = CscMatrix.from_dense(dense) if is_sparse else dense
    share = LayerWeights(weight, np.arange(12, dtype=np.float32), panels, blocks=3).share(4, 8)
    assert np.array_equal(share.dense, dense[:, 4:8])
    assert np.array_equal(share.sparse.to_dense(), dense[:, 4:8])
    assert share.bias.tolist() == [4, 5, 6, 7]
    assert [outputs.tolist() for outputs in share.panels] == [[[0, 1], [1, 2]], []]
    assert share.blocks == 3


def test_a_layer_of_more_inputs_than_a_family_takes_has_no_price_for_it() -> None:
    limited = next(family for family in FAMILIES.values() if family.most_inputs < 1 << 32)
    machine = Machine(lanes=8)
    for inputs, known in ((limited.most_inputs, True), (limited.most_inputs + 1, False)):
        layer = Layer(inputs, np.full(8, 100, dtype=np.int64))
        assert (limited.name in candidates(layer, limited.widths[0], machine)) == known
    weights = LayerWeights(CscMatrix((limited.most_inputs + 1, 1), *EMPTY), np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="expected at most 65536 inputs, got 65537"):
        limited.pack(weights)


def test_prices_told_in_those_of_another_family_are_those_of_the_machine() -> None:
    layer = Layer(256, np.full(1024, 26, dtype=np.int64))
    for family in (one for one in FAMILIES.values() if one.priced_in is not None):
        assert family.priced_in is not None
        other, unit = family.priced_in
        lanes, rounded = min(family.prices), replace(layer, rounded=family.rounds == "bf16")
        known = {name: own[lanes] for name, own in PRICES.items() if lanes in own}
        paces = {name: own[other][unit] for name, own in known.items() if family.name not in own}
        machines = {name: Machine(lanes=lanes, prices=name, bfloat=True) for name in paces}
        times = {name: predicted_us(family.name, rounded, 1, machine) for name, machine in machines.items()}
        first, second, *_ = paces
        assert times[first] / times[second] == pytest.approx(paces[first] / paces[second], rel=0.1)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_codes_with_few_zeros_are_priced_for_kernels_of_codes_alone(lanes: int) -> None:
    machine = Machine(lanes)
    for each, has_floats in ((50, False), (10, True)):
        layer = Layer(100, np.full(100, each), code_bits=4)
        for width in WIDTHS:
            found = [FAMILIES[name].rounds for name in candidates(layer, width, machine)]
            assert "groups" in found
            assert any(rounds != "groups" for rounds in found) == has_floats
