"""A kernel family is one record, one format file and one code file, and its name is a string nowhere else."""

import ast
from pathlib import Path

import numpy as np
import pytest

from redpebble.kernels.families import FAMILIES, is_dense, takes_any_rows
from redpebble.kernels.family import LayerWeights
from redpebble.kernels.prices import PRICES
from redpebble.kernels.tile_widths import TILE_WIDTHS
from redpebble.lowering.kernels.table import any_rows_code_of, code_of
from redpebble.sparse.csr import CscMatrix

ROOT = Path(__file__).parent.parent.parent
FORMATS, CODE = ROOT / "kernels/formats", ROOT / "lowering/kernels"


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
    assert dense == {name for name, family in FAMILIES.items() if "dense" in family.stored}


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
