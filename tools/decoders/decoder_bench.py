"""`redpebble bench FOLDER`: tokens a second of a decoder, in prompts and in steps, beside onnxruntime.

Keys and values of the past lie in one buffer, into which GroupQueryAttention writes, as in onnxruntime-genai's loop.
"""

import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir
import onnxruntime
from numpy.typing import NDArray

from ...frontend.reading.model_source import read_model
from ...ort.any_model import session
from ...verification.decoder_inputs import DecoderInputs
from ...verification.measuring import Budget, Call, Timing, interleave
from ...verification.oracle import Oracle, session_options
from ..benching.machine import describe_machine
from ..console.console import console
from ..console.working import working
from ..explain.decoder_bytes import CONTEXTS
from ..json_reports import write_report
from .genai_folder import GenaiFolder, read_folder

Ids = NDArray[np.int64]

PROMPT_ROUNDS, STEP_ROUNDS = 3, 15
"""Rounds, at least; a prompt of a thousand tokens takes seconds."""

BLOCK: Final = 32
"""Neighbouring inputs of an output that share a scale where onnxruntime quantizes to four bits."""


class Case(NamedTuple):
    """New tokens of one text behind a past."""

    tokens: int
    past: int

    @property
    def name(self) -> str:
        return f"decode behind {self.past}" if self.past else f"prefill {self.tokens}"


def cases_of(config: Mapping[str, Any]) -> list[Case]:
    """Return the prompts and steps that the context of a model has room for."""
    most = config["model"].get("context_length", max(CONTEXTS) + 2) - 2
    lengths = sorted({min(length, most) for length in CONTEXTS})
    return [*(Case(length, 0) for length in lengths), *(Case(1, length) for length in lengths)]


@dataclass(frozen=True)
class DecoderBenchPlan:
    """Engines beside the folder (folders, `int8`, `int4`, `genai`), numbers of threads, seconds for each case."""

    against: Sequence[str] = ()
    threads: Sequence[int] = (1,)
    seconds: float = 1.0


@dataclass(frozen=True)
class DecoderRow:
    """One engine: tokens a second by the median of calls, by case."""

    engine: str
    threads: int
    tokens_a_second: Mapping[str, float] = field(default_factory=dict[str, float])


class SessionEngine:
    """A decoder in a session of onnxruntime; the file says how the past becomes the present."""

    def __init__(self, made: onnxruntime.InferenceSession, model: onnx_ir.Model, path: Path) -> None:
        inputs = DecoderInputs.of(model)
        if inputs is None:
            raise ValueError(f"{path}: expected a decoder of input_ids and past keys and values, got others")
        self.session, self.inputs = made, inputs
        # attention that writes new keys and values behind the past, in place
        self.shared = {
            past.name or "": present.name or ""
            for node in model.graph
            if node.op_type == "GroupQueryAttention"
            for past, present in zip(node.inputs[3:5], node.outputs[1:3], strict=True)
            if past is not None
        }

    def call(self, case: Case) -> Call:
        """Return a call with random tokens."""
        rng = np.random.default_rng(0)
        ids = rng.integers(0, self.inputs.vocabulary, (1, case.tokens))
        feeds = self.inputs.feeds(ids, case.past, rng)
        if self.shared.keys() != {one.name for one in self.inputs.past}:
            return lambda: self.session.run(None, feeds)
        binding = self.session.io_binding()
        for name, value in feeds.items():
            if name in self.shared:
                value = np.pad(value, ((0, 0), (0, 0), (0, case.tokens), (0, 0)))
            held = onnxruntime.OrtValue.ortvalue_from_numpy(value)
            binding.bind_ortvalue_input(name, held)
            if name in self.shared:
                binding.bind_ortvalue_output(self.shared[name], held)
        for output in self.session.get_outputs():
            if output.name not in self.shared.values():
                binding.bind_output(output.name)
        return lambda: self.session.run_with_iobinding(binding)


class GenaiEngine:
    """A folder in onnxruntime-genai's own loop, with the library that its configuration names."""

    def __init__(self, folder: GenaiFolder, threads: int) -> None:
        self.genai = import_module("onnxruntime_genai")
        config = self.genai.Config(str(folder.path))
        options = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self.model = self.genai.Model(config)
        self.vocabulary = int(folder.config["model"].get("vocab_size", 2))

    def call(self, case: Case) -> Call:
        """Return a call with random tokens."""
        parameters = self.genai.GeneratorParams(self.model)
        length = case.past + case.tokens
        parameters.set_search_options(max_length=length + 1, do_sample=False)
        ids = np.random.default_rng(0).integers(0, self.vocabulary, (1, length)).astype(np.int32)
        generator = self.genai.Generator(self.model, parameters)
        if case.past:
            generator.append_tokens(ids[:, : case.past])

        def run() -> None:
            generator.rewind_to(case.past)
            generator.append_tokens(ids[:, case.past :])

        return run


Engine = SessionEngine | GenaiEngine


def bench_folder(path: Path, plan: DecoderBenchPlan, report: Path | None) -> None:
    """Measure the decoder of a folder, and show a table that can be pasted.

    Raises:
        ModelError: a decoder is unreadable.
        ValueError: a folder is none of a decoder, or there is no such engine.
    """
    folder = read_folder(path)
    rows = list[DecoderRow]()
    with working("quantizing for", path), _files(folder, plan.against) as files:
        for threads in plan.threads:
            with working("making sessions of", path):
                engines = _engines(folder, files, plan.against, threads)
            with working("measuring", path):
                rows += _measured(engines, cases_of(folder.config), plan.seconds, threads)
    for line in table_lines(folder.path.resolve().name, rows):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    content = [{"engine": row.engine, "threads": row.threads, **row.tokens_a_second} for row in rows]
    write_report(report, "bench", {"machine": describe_machine(), "versions": versions(), "rows": content})


def _engines(folder: GenaiFolder, files: Mapping[str, Path], against: Sequence[str], threads: int) -> dict[str, Engine]:
    options = session_options(threads)
    model = read_model(folder.model, any_version=True)
    made = Oracle.of(lambda: session(folder.model, options)).session
    found: dict[str, Engine] = {"redpebble": SessionEngine(made, model, folder.model)}
    for name, path in files.items():
        oracle = Oracle(path, threads)
        found[f"onnxruntime, {name}"] = SessionEngine(oracle.session, read_model(path, any_version=True), path)
    if "genai" in against:
        found["onnxruntime-genai"] = GenaiEngine(folder, threads)
    return found


@contextmanager
def _files(folder: GenaiFolder, against: Sequence[str]) -> Generator[dict[str, Path]]:
    """Yield the files that onnxruntime runs, by name: the decoder itself, others, and those that it quantizes."""
    others = [one for one in against if one not in ("onnxruntime", "int8", "int4", "genai")]
    for one in others:
        if not Path(one).is_dir():
            raise ValueError(f"against: expected a folder, int8, int4 or genai, got {one!r}")
    found = {"the same file": folder.model} | {one: read_folder(Path(one)).model for one in others}
    if "genai" in against:
        try:
            import_module("onnxruntime_genai")
        except ModuleNotFoundError:
            raise ValueError("genai: expected the package onnxruntime-genai, got none") from None
    with tempfile.TemporaryDirectory() as scratch:
        for word in dict.fromkeys(one for one in against if one in ("int8", "int4")):
            source = next((path for path in reversed(found.values()) if _has_floats(path)), None)
            if source is None:
                raise ValueError(f"{word}: expected a folder with float weights to quantize, got none")
            found[f"{word} by its quantizer"] = _quantized(source, word, Path(scratch) / f"{word}.onnx")
        yield found


def _has_floats(path: Path) -> bool:
    return any(node.op_type == "MatMul" for node in read_model(path, any_version=True).graph)


def _quantized(source: Path, word: str, target: Path) -> Path:
    """Write a decoder whose products onnxruntime's own quantizer has made integers."""
    # the quantizers advise to prepare models for other devices
    logging.disable(logging.WARNING)
    try:
        return _by_quantizer(source, word, target)
    finally:
        logging.disable(logging.NOTSET)


def _by_quantizer(source: Path, word: str, target: Path) -> Path:
    if word == "int8":
        quantize = import_module("onnxruntime.quantization")
        quantize.quantize_dynamic(
            source, target, per_channel=True, op_types_to_quantize=["MatMul"], use_external_data_format=True
        )
        return target
    onnx: Any = import_module("onnx")
    quantizer: Any = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    made = quantizer.MatMulNBitsQuantizer(onnx.load(source), block_size=BLOCK, is_symmetric=True, accuracy_level=4)
    made.process()
    made.model.save_model_to_file(str(target), True)
    return target


def _measured(engines: Mapping[str, Engine], cases: Sequence[Case], seconds: float, threads: int) -> list[DecoderRow]:
    found: dict[str, dict[str, float]] = {name: {} for name in engines}
    for case in cases:
        calls = {name: engine.call(case) for name, engine in engines.items()}
        rounds = STEP_ROUNDS if case.past else PROMPT_ROUNDS
        # what one thread works itself, without what other programs take
        clock = time.thread_time if threads == 1 else time.perf_counter
        timings: Mapping[str, Timing] = interleave(calls, Budget(seconds, least_rounds=rounds, clock=clock))
        for name, timing in timings.items():
            found[name][case.name] = 1e6 * case.tokens / timing.median_us
    return [DecoderRow(name, threads, speeds) for name, speeds in found.items()]


def versions() -> dict[str, str]:
    """Return the versions of the packages that were measured."""
    found = dict[str, str]()
    for name in ("redpebble", "onnxruntime", "onnxruntime-genai"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def table_lines(name: str, rows: Sequence[DecoderRow]) -> list[str]:
    """Return a table of Markdown, with ratios to the first row of onnxruntime, and what was measured where."""
    cases = list(rows[0].tokens_a_second)
    lines = [f"| {name}, tokens a second | threads | " + " | ".join(cases) + " |", "|---" * (2 + len(cases)) + "|"]
    for row in rows:
        base = next(one for one in rows if one.engine.startswith("onnxruntime,") and one.threads == row.threads)
        cells = [f"{row.tokens_a_second[case]:,.1f} ({_ratio(row, base, case):.2f}x)" for case in cases]
        lines.append(f"| {row.engine} | {row.threads} | " + " | ".join(cells) + " |")
    machine, known = describe_machine(), ", ".join(f"{name} {number}" for name, number in versions().items())
    return [*lines, f"{machine['model']}, {os.cpu_count()} cores, {platform.system()}; {known}; medians, in turn"]


def _ratio(row: DecoderRow, base: DecoderRow, case: str) -> float:
    return row.tokens_a_second[case] / base.tokens_a_second[case]
