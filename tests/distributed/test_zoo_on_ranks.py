"""Every model of the zoo computes on several ranks what it computes in onnxruntime, however it is split."""

from pathlib import Path

import pytest

from redpebble.models.zoo import build
from tests.distributed.launching import Case, assert_ranks_agree, write_case

KINDS = ("rows", "batch", "layers")

SMALL = (
    "ffnn(depth=3, width=33, density=0.02, skip=True)",
    "ffnn(depth=2, width=20, density=1.0)",
    "resmlp(depth=1, width=32)",
)
"""Chains, values with several readers, weights stored dense, layers without a connection, several outputs."""

ALL = (
    *SMALL,
    "bert_ffn",
    "bert_layer",
    "compact(widths=(16, 24, 16), density=0.3, memory=32)",
    "digits",
    "ffnn",
    "masked_mlp(width=48)",
    "radixnet(layers=12)",
    "resmlp",
    "structured(width=64)",
    "structured(pattern='block16x1', width=64, shuffled=True)",
)


TILES = {"batch_tile": 16}
THREADS = {"batch_tile": 64, "threads": 2}
MESSAGES = {"batch_tile": 16, "shared_memory": False}


def test_two_ranks_agree_with_onnxruntime(tmp_path: Path) -> None:
    write_case(tmp_path / "rows", build(SMALL[0]), Case("rows", 2, (0, 33)))
    write_case(tmp_path / "nodes", build("graph_network(kind='gat', nodes=40, widths=(5, 8))"), Case("nodes", 2, (1,)))
    assert_ranks_agree(tmp_path, 2)


@pytest.mark.slow
def test_two_ranks_agree_however_a_network_is_split(tmp_path: Path) -> None:
    for spec in SMALL[1:]:
        write_case(tmp_path / spec, build(spec), Case("rows", 2, (0, 33)))
    chain = build("ffnn(depth=2, width=40, density=0.2)")
    write_case(tmp_path / "batch", chain, Case("batch", 2, (0, 7)))
    write_case(tmp_path / "a pipeline", chain, Case("layers", 2, (300,), TILES))
    assert_ranks_agree(tmp_path, 2)


@pytest.mark.slow
def test_two_ranks_agree_in_every_way_to_send(tmp_path: Path) -> None:
    chain = build("ffnn(depth=2, width=40, density=0.2)")
    write_case(tmp_path / "many tiles", chain, Case("rows", 2, (300,), TILES))
    write_case(tmp_path / "messages", chain, Case("rows", 2, (300,), MESSAGES))
    write_case(tmp_path / "threads", chain, Case("rows", 2, (300,), THREADS))
    write_case(tmp_path / "whole blocks", chain, Case("rows", 2, (128,), usual_batch=1024))
    assert_ranks_agree(tmp_path, 2)


@pytest.mark.slow
def test_three_ranks_agree_with_onnxruntime(tmp_path: Path) -> None:
    write_case(tmp_path / "rows", build(SMALL[0]), Case("rows", 3, (7,)))
    write_case(tmp_path / "layers", build("ffnn(depth=2, width=40, density=0.2)"), Case("layers", 3, (7,)))
    assert_ranks_agree(tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_graph_networks_are_split_by_their_nodes(ranks: int, tmp_path: Path) -> None:
    for kind in ("gcn", "sage", "gin", "gat"):
        for nodes, degree in ((300, 6.0), (2, 3.0), (1, 0.0), (30, 0.0)):
            network = f"graph_network(kind={kind!r}, nodes={nodes}, degree={degree}, widths=(5, 16, 4))"
            write_case(tmp_path / f"{kind}{nodes}{degree}", build(network), Case("nodes", ranks, (1,)))
    assert_ranks_agree(tmp_path, ranks, seconds=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_agrees_with_onnxruntime(kind: str, ranks: int, tmp_path: Path) -> None:
    for spec in ALL:
        write_case(tmp_path / spec, build(spec), Case(kind, ranks))
    assert_ranks_agree(tmp_path, ranks, seconds=1200.0)
