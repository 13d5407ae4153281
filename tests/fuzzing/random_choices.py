"""Kernels and passes chosen as a person does on the page of `explain --serve`: results stay onnxruntime's."""

import json
from pathlib import Path

import numpy as np

import redpebble
from redpebble.frontend.errors import ModelError
from redpebble.runtime.jit import host_target
from redpebble.tools.explain.serving.workbench import Settings, Workbench
from redpebble.tuning.measure_kernels import Tuning
from redpebble.verification.oracle import Oracle, OracleError, exact_session
from tests.fuzzing import random_layers, random_models
from tests.fuzzing.fuzzer import Fuzzer, one_of

MODELS = (random_layers.draw_images, random_layers.draw_quantized, random_layers.draw_quantized_images)


def draw(seed: int, folder: Path) -> None:
    """A network of layers that have kernels of their own, and the seed of what is chosen."""
    rng = np.random.default_rng(seed)
    one_of(rng, MODELS)(seed, folder)
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**settings, "seed": seed}))


def chosen(model: Path, seed: int) -> Settings:
    """Settings of the page that it takes: any passes, and any kernels of the lists for layers."""
    rng = np.random.default_rng(seed)
    bench = Workbench(model, Tuning.predicted(host_target(), None))
    skipped = frozenset(one.name for one in bench.passes if rng.random() < 0.1)
    bench.set(Settings(one_of(rng, (1, 7, 64)), 1, skipped))
    wishes = {
        (line.name, line.width): one_of(rng, sorted(line.predicted_us))
        for line in bench.view.layers
        if rng.random() < 0.7
    }
    return Settings(bench.view.settings.batch, 1, skipped, wishes)


def check(folder: Path) -> str:
    """What onnxruntime computes is what runs with any choice."""
    settings, model = json.loads((folder / "settings.json").read_text()), folder / "model.onnx"
    try:
        right = Oracle(model, exact=True)
    except OracleError:
        return "refused by onnxruntime"
    bench = Workbench(model, Tuning.predicted(host_target(), None))
    bench.set(chosen(model, settings["seed"]))
    choices = bench.view.choices
    session = native = None
    try:
        session = exact_session(lambda options: redpebble.session(model, options, choices=choices))
    except ValueError as error:  # it leaves a layer with onnxruntime that native code takes
        if "expected names of layers with a choice" not in str(error):
            raise
    try:
        native = redpebble.compile(model, cache=False, choices=choices)
    except ModelError as error:
        print(f"compile: {error}")
    for path in sorted(folder.glob("feeds-*.npz")):
        feeds = dict(np.load(path))
        try:
            expected = right.run(feeds)
        except OracleError:
            continue  # it refuses a batch of 0 here and there
        if not all(np.isfinite(one).all() for one in expected):
            continue
        runs = {"session": session, "compile": native}
        ways = {way: one.run(None, feeds) for way, one in runs.items() if one is not None}
        for way, found in ways.items():
            for ours, theirs in zip(found, expected, strict=True):
                allowed = settings["tolerance"] * max(1.0, random_models.largest(theirs))
                error = random_models.largest(ours.astype(np.float32) - theirs)
                assert error <= allowed, f"{way}, {choices.text}: off by {error:.3g}, accepted is {allowed:.3g}"
    return f"{len(choices.kernels)} kernels"


CHOICES = Fuzzer("choices", draw, check)
