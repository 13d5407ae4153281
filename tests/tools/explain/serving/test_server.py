"""The server of a workbench, asked by HTTP: what it shows, what it takes, and what it refuses."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode

import numpy as np
import onnx
import pytest

import redpebble
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models import zoo
from redpebble.models.exports.stored import stored_export
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.tools.explain.lowering_levels import Lowering, lowering_of
from redpebble.tools.explain.serving import workbench
from redpebble.tools.explain.serving.server import FORM, MOST_BYTES, WorkbenchServer
from redpebble.tools.explain.serving.workbench import Settings, Workbench
from redpebble.tools.explain.serving.workbench_page import workbench_page
from redpebble.tuning.measure_kernels import Tuning
from tests.end_to_end.test_choices import sparse_convolution
from tests.support.quantized_models import pruned_network, quantized, quantized_images

LAYER = "/layers.0/Gemm"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model.onnx"
    zoo.save(zoo.build("ffnn(depth=2, width=64, density=0.1)"), path)
    return path


@pytest.fixture(scope="module")
def running(model: Path) -> Iterator[WorkbenchServer]:
    server = WorkbenchServer(Workbench(model, Tuning.predicted(host_target(), None)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def served(running: WorkbenchServer) -> WorkbenchServer:
    running.bench.set(Settings())
    return running


class Reply:
    """An answer of the server."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.text, self.headers = answer.status, answer.read().decode(), answer.headers


def asked(server: WorkbenchServer, method: str, page: str = "", body: str = "", **headers: str) -> Reply:
    """Return the answer to a request for a page behind the secret, or for another path."""
    path = page if page.startswith("/") else f"/{server.secret}/{page}"
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        if method == "POST":
            headers.setdefault("Content-Type", FORM)
        connection.request(method, path, body or None, headers)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def set_to(server: WorkbenchServer, **fields: str | Sequence[str]) -> Reply:
    passes = [one.name for one in server.bench.passes]
    return asked(server, "POST", "set", urlencode({"pass": passes, **fields}, doseq=True))


def test_the_page_shows_passes_kernels_and_levels_and_loads_nothing(served: WorkbenchServer) -> None:
    reply = asked(served, "GET")
    assert reply.status == 200
    for word in ("pebble-fuse-layers", LAYER, "strips", "form tiles"):
        assert word in reply.text
    assert "<script" not in reply.text
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert not re.search(r'(src|href)="(?!choices\.json)', reply.text)


def test_what_was_chosen_is_a_file_that_compile_reads(served: WorkbenchServer, model: Path, tmp_path: Path) -> None:
    passes = [one.name for one in served.bench.passes if one.name != "pebble-reorder-neurons"]
    reply = set_to(served, **{"pass": passes, "batch": "1", "threads": "1"})
    assert (reply.status, reply.headers["Location"]) == (303, f"/{served.secret}/")
    reply = set_to(served, **{"pass": passes, f"kernel:1:{LAYER}": "dense_outputs"})
    assert reply.status == 303
    page = asked(served, "GET").text
    assert '<option value="dense_outputs" selected>' in page
    assert "--choices choices.json" in page
    (tmp_path / "choices.json").write_text(asked(served, "GET", "choices.json").text)
    net = redpebble.compile(model, cache=False, choices=tmp_path / "choices.json")
    kernels = {layer.name: layer.kernel for layer in net.report}
    assert kernels[LAYER].startswith("dense_outputs from 1, ")
    held = json.loads(asked(served, "GET", "choices.json").text)
    assert held["skip_passes"] == ["pebble-reorder-neurons"]
    # the choice for another width of tiles stays
    assert set_to(served, **{"pass": passes, "batch": "64", f"kernel:64:{LAYER}": "strips"}).status == 303
    held = json.loads(asked(served, "GET", "choices.json").text)
    assert re.fullmatch(r"dense_outputs from 1, .*strips from 64", held["kernels"][LAYER])
    assert set_to(served, do="reset").status == 303
    assert json.loads(asked(served, "GET", "choices.json").text)["kernels"] == {}


def test_another_kernel_and_the_way_back_do_not_lower_the_default_again(
    served: WorkbenchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[tuple[tuple[str, str], ...]] = []

    def counted(model: Path, options: Options, batches: Sequence[int]) -> Lowering:
        lowered.append(options.kernels)
        return lowering_of(model, options, batches)

    monkeypatch.setattr(workbench, "lowering_of", counted)
    (line,) = (line for line in served.bench.view.layers if line.name == LAYER)
    one, other = [family for family in line.predicted_us if family != line.priced[64]][:2]
    lowered.clear()
    for family in (one, other, one, ""):
        assert set_to(served, batch="64", **{f"kernel:64:{LAYER}": family}).status == 303
    assert [kernels[0][1].rpartition(", ")[2] for kernels in lowered] == [f"{one} from 64", f"{other} from 64"]


@pytest.mark.parametrize(
    ("target", "families"),
    [
        (CpuTarget.zen4(), {"byte_lookup", "byte_windows", "byte_quads", "byte_scattered"}),
        (CpuTarget.avxvnni(), {"byte_lookup", "byte_quads", "byte_scattered", "byte_shared_2", "byte_shared_4"}),
        (CpuTarget.avx2(), set[str]()),
    ],
)
def test_layers_on_codes_have_the_kernels_of_this_cpu_to_choose_from(
    target: CpuTarget, families: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "digits.onnx"
    zoo.save(zoo.build("digits_int8"), path)
    bench = Workbench(path, Tuning.predicted(target, None))
    assert len(bench.view.layers) == bool(families)
    for line in bench.view.layers:
        assert families <= set(line.predicted_us)
        bench.set(Settings(wishes={(line.name, 64): "byte_quads"}))
        ((name, kernel),) = bench.view.choices.kernels
        assert name == line.name
        assert kernel.endswith("byte_quads from 64")
        assert bench.view.after.levels[-1].total(64).predicted_us > bench.view.before.levels[-1].total(64).predicted_us


@pytest.mark.parametrize(
    ("width", "family", "kernel"),
    [
        (8, "byte_tiles", "byte_lookup from 1, byte_tiles from 8"),
        (64, "byte_tiles", "byte_lookup from 1, byte_tiles from 8"),
        (8, "byte_lookup", "byte_lookup from 1, byte_tiles from 64"),
        (64, "byte_shared_4", "byte_lookup from 1, byte_shared_4 from 64"),
    ],
)
def test_layers_on_codes_are_packed_for_one_kind_of_quads(width: int, family: str, kernel: str, tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    network = pruned_network([256, 256], 0.3)
    path.write_bytes(quantized(network, tmp_path, "qdq", "QUInt8", "QInt8").SerializeToString())
    features = CpuTarget.zen4().features + ",+amx-tile,+amx-int8,+avx512bw"
    target = CpuTarget.from_features("sapphirerapids", features)
    tuning = Tuning.predicted(target, None)
    bench = Workbench(path, replace(tuning, machine=replace(tuning.machine, prices="emerald_rapids")))
    (line,) = bench.view.layers
    bench.set(Settings(width, wishes={(line.name, width): family}))
    assert bench.view.choices.kernels == ((line.name, kernel),)


def test_a_convolution_of_codes_has_kernels_to_choose_from(tmp_path: Path) -> None:
    path = tmp_path / "conv.onnx"
    path.write_bytes(quantized_images(sparse_convolution(), tmp_path, "qdq", "QUInt8").SerializeToString())
    bench = Workbench(path, Tuning.predicted(host_target(), None))
    (line,) = bench.view.layers
    bench.set(Settings(wishes={(line.name, line.width): "byte_shared_4"}))
    assert bench.view.choices.kernels == ((line.name, "byte_shared_4"),)
    page = workbench_page(bench)
    assert '<option value="byte_shared_4" selected>' in page


def test_a_dense_convolution_of_few_outputs_has_a_line(tmp_path: Path) -> None:
    model, path = sparse_convolution(), tmp_path / "conv.onnx"
    weight = np.random.default_rng(0).standard_normal((3, 8, 3, 3)).astype(np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    path.write_bytes(model.SerializeToString())
    (line,) = Workbench(path, Tuning.predicted(host_target(), None)).view.layers
    assert line.priced[line.width] in line.predicted_us


def test_leaving_a_pass_out_is_told_beside_what_is_done_by_default(served: WorkbenchServer) -> None:
    passes = [one.name for one in served.bench.passes if one.name != "pebble-sparsify"]
    assert set_to(served, **{"pass": passes}).status == 303
    before, after = (one.levels[-1].total(64) for one in (served.bench.view.before, served.bench.view.after))
    assert after.weight_bytes > 2 * before.weight_bytes
    assert "--skip-passes pebble-sparsify" in asked(served, "GET").text


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"batch": "0"}, "batch: expected 1 to 4096, got 0"),
        ({"batch": "many"}, "batch: expected a whole number, got &#x27;many&#x27;"),
        ({"batch": "1e3"}, "batch: expected a whole number"),
        ({"batch": "9" * 99}, "batch: expected a whole number"),
        ({"threads": "100000"}, "threads: expected 1 to"),
        ({"pass": "pebble-nothing"}, "pass: expected one of "),
        ({"do": "erase"}, "do: expected apply, measure or reset, got &#x27;erase&#x27;"),
        ({"kernel:64:nope": "strips"}, "kernel: expected WIDTH:LAYER with a layer of the page"),
        ({f"kernel:x:{LAYER}": "strips"}, "kernel: expected WIDTH:LAYER"),
        ({f"kernel:64:{LAYER}": "abacus"}, f"layer {LAYER}: expected one of "),
        ({f"kernel:64:{LAYER}": "<script>"}, "&lt;script&gt;"),
    ],
)
def test_what_cannot_be_set_is_one_line_and_nothing_changes(
    served: WorkbenchServer, fields: dict[str, str], told: str
) -> None:
    before = served.bench.view.settings
    reply = set_to(served, **fields)
    assert reply.status == 400
    (line,) = re.findall(r'<p class="fault" role="alert">([^\n]*?)</p>', reply.text)
    assert told in line
    assert served.bench.view.settings == before


def test_only_who_knows_the_address_gets_an_answer(served: WorkbenchServer) -> None:
    assert served.server_address[0] == "127.0.0.1"
    for path in ("/", "/set", "/wrong/", f"/{served.secret[:-1]}/", "/../etc/passwd", "//", "/%E9/"):
        for method in ("GET", "POST"):
            reply = asked(served, method, path, "do=apply")
            assert reply.status == 404, path
            assert served.secret not in reply.text
    assert asked(served, "GET", "other").status == 404
    assert asked(served, "POST", "", "do=apply").status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "application/json"}, 415),
        ({"Content-Length": str(MOST_BYTES + 1)}, 413),
        ({"Content-Length": "-1"}, 413),
        ({"Content-Length": "many"}, 413),
    ],
)
def test_forms_of_others_are_refused_in_one_line(served: WorkbenchServer, headers: dict[str, str], status: int) -> None:
    reply = asked(served, "POST", "set", "do=reset", **headers)
    assert reply.status == status
    assert reply.text.startswith("expected ")
    assert reply.text.count("\n") == 1


def test_a_form_of_the_page_itself_is_taken(served: WorkbenchServer) -> None:
    for host in served.hosts:
        reply = asked(served, "POST", "set", "do=reset", Host=host, Origin=f"http://{host}")
        assert reply.status == 303


def test_content_that_is_no_form_is_refused(served: WorkbenchServer) -> None:
    for body in ("&".join(f"a{i}=1" for i in range(20_000)), "a=%ff"):
        reply = asked(served, "POST", "set", body)
        assert (reply.status, reply.text.count("\n")) == (400, 1)


def test_a_browser_that_connects_and_says_nothing_holds_nobody_up(served: WorkbenchServer) -> None:
    silent = http.client.HTTPConnection("127.0.0.1", served.server_port, timeout=30)
    silent.connect()
    assert asked(served, "GET").status == 200
    silent.close()


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_the_address_is_free_again(model: Path) -> None:
    command = [sys.executable, "-m", "redpebble", "explain", str(model), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", url)
        process.send_signal(signal.SIGINT)
        rest, complaints = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in rest + complaints
    assert not complaints.strip()


@pytest.mark.slow
def test_calls_and_kernels_are_measured_side_by_side(served: WorkbenchServer) -> None:
    assert set_to(served, do="measure", batch="7").status == 303
    page = asked(served, "GET").text
    assert "Measured here, batch 7, 1 thread<" in page
    assert ", measured " in page
    assert served.bench.measured is not None
    assert served.bench.measured.difference < 1e-4
    # other settings have other times
    assert set_to(served, batch="8").status == 303
    assert served.bench.measured is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert.classic", "resnet.classic"])
def test_a_model_that_is_covered_in_part_can_be_set_and_measured(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(stored_export(name).SerializeToString())
    bench = Workbench(path, Tuning.predicted(host_target(), None))
    bench.set(Settings(batch=2, skipped=frozenset({bench.passes[0].name})))
    if bench.view.layers:
        line = bench.view.layers[0]
        family = max(line.predicted_us, key=line.predicted_us.__getitem__)
        bench.set(Settings(batch=2, wishes={(line.name, line.width): family}))
        assert [kernel for kernel in bench.view.choices.kernels if family in kernel[1]]
    bench.measure()
    assert bench.measured is not None
    assert bench.measured.difference < 1e-3
