"""`redpebble prune FOLDER OUT --data TEXT`: a decoder and its tokenizer, pruned for texts, judged by its perplexity."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import onnx_ir

from ...frontend.reading.external_files import files_of
from ...frontend.reading.model_source import read_model
from ...models.exports.genai_decoders import run_builder
from ...ort.any_model import session
from ...pruning.options import PruneOptions
from ...pruning.prune import pruned
from ...pruning.texts import JUDGED, Ids, perplexity, windows_of
from ...verification.decoder_inputs import DecoderInputs
from ...verification.oracle import Oracle, session_options
from ..console.progress_bar import progress_bar
from ..console.working import working
from ..pruning_commands import PruneFiles, show_pruned
from .genai_folder import CONFIG, GenaiFolder, copy_others, read_folder

TOKENIZER: Final = "tokenizer.json"


def prune_folder(files: PruneFiles, options: PruneOptions) -> None:
    """Prune the decoder of a folder of onnxruntime-genai or transformers, and write one of onnxruntime-genai.

    Raises:
        ModelError: the decoder is unreadable, or has no layer to prune.
        ValueError: a folder, the texts or the options do not fit, or a package is not installed.
        OSError: a file cannot be read or written.
    """
    target = files.output
    if target.exists() and target.samefile(files.model):
        raise ValueError(f"cannot write {target}: it is the folder that is read")
    for name in ("labels", "metric", "validate"):
        if getattr(files, name) is not None:
            raise ValueError(f"{name}: expected none with texts, got {str(getattr(files, name))!r}")
    if options.stages > 1:
        raise ValueError(f"stages: expected 1 with texts, got {options.stages}")
    training = _training() if options.finetune else None
    windows = windows_of(tokens_of(files.data, files.model), options.seed)
    with _genai_folder(files.model) as folder:
        model = read_model(folder.model, any_version=True)
        inputs = DecoderInputs.of(model)
        if inputs is None:
            raise ValueError(f"{folder.model}: expected a decoder of input_ids and past keys and values, got others")
        heads, judged = _heads(model), inputs.feeds(windows.held_out[:JUDGED])
        plan = replace(options, keep=(*options.keep, *heads), finetune=0.0)
        with progress_bar() as watch:
            result = pruned(folder.model, inputs.feeds(windows.fitted), plan, watch, judged=judged)
        judge = _Judge(folder.model, inputs, windows.held_out, options.threads)
        perplexities = {"before": judge.of_file(), "after": judge.of_result(result.model)}
        told = f"perplexity {perplexities['before']:.4g} -> {perplexities['after']:.4g}"
        if training is not None:
            texts = training.Texts(windows.trained, options.finetune, options.seed, options.threads)
            trained, steps = training.trained_decoder(result.model, folder.model, inputs, heads, texts)
            perplexities["trained"] = judge.of_result(trained)
            told += f", {perplexities['trained']:.4g} after {steps} steps of training"
            if perplexities["trained"] < perplexities["after"]:
                result = replace(result, model=trained)
            else:
                told += ", which is not kept"
        target.mkdir(exist_ok=True)
        copy_others(folder.path, target, {folder.decoder, *files_of(model)})
        result.save(target / folder.decoder, external_data=True)
    tokens = int(windows.held_out[:, 1:].size)
    told += f"; {len(windows.held_out)} windows of {windows.held_out.shape[1]} tokens that nothing was fitted to"
    written = files._replace(output=target / folder.decoder)
    show_pruned(written, result, plan, told, {"perplexity": {**perplexities, "tokens": tokens}})


class _Judge(NamedTuple):
    """Perplexity on windows of held-out tokens: of a file by onnxruntime, of results by our session."""

    path: Path
    inputs: DecoderInputs
    windows: Ids
    threads: int

    def of_file(self) -> float:
        return self._of(Oracle(self.path, self.threads))

    def of_result(self, model: onnx_ir.Model) -> float:
        return self._of(Oracle.of(lambda: session(model, session_options(self.threads))))

    def _of(self, oracle: Oracle) -> float:
        with working("measuring the perplexity of", self.path):
            return perplexity(oracle.run, self.inputs, self.windows)


def _training() -> ModuleType:
    """Return the module that trains decoders.

    Raises:
        ValueError: torch is not installed.
    """
    try:
        from ...pytorch.imported import decoders
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ValueError("finetune: expected torch to train with, got none: pip install 'redpebble[torch]'") from None
    return decoders


def _heads(model: onnx_ir.Model) -> tuple[str, ...]:
    """Return the name of the layer that yields logits, if one does: texts tell too little of most of its outputs."""
    node = model.graph.outputs[0].producer()
    is_layer = node is not None and node.op_type in ("MatMul", "Gemm")
    return ((node.name or model.graph.outputs[0].name or ""),) if node is not None and is_layer else ()


@contextmanager
def _genai_folder(path: Path) -> Generator[GenaiFolder]:
    """Yield a folder of onnxruntime-genai; from one of transformers its model builder makes one."""
    if (path / CONFIG).exists() or not (path / "config.json").exists():
        yield read_folder(path)
        return
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run_builder(path, Path(scratch), "fp32")
        except ModuleNotFoundError as error:
            raise ValueError(f"{path}: a folder of transformers needs onnxruntime-genai and {error.name}") from None
        yield read_folder(Path(scratch))


def tokens_of(data: Path, folder: Path) -> list[list[int]]:
    """Return the tokens of a text file, or of each one in a folder, by the tokenizer of a model's folder.

    Raises:
        ValueError: there is no tokenizer, no text, or the package that reads tokenizers is not installed.
    """
    file = folder / TOKENIZER
    if not file.is_file():
        raise ValueError(f"{str(folder)!r}: expected {TOKENIZER} in the folder, got none")
    try:
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(file))
    except ModuleNotFoundError:
        raise ValueError("texts need the package tokenizers: pip install tokenizers") from None
    paths = sorted(path for path in data.rglob("*") if path.is_file()) if data.is_dir() else [data]
    texts = [_text(path) for path in paths]
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "expected UTF-8" if isinstance(error, UnicodeDecodeError) else (error.strerror or str(error)).lower()
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from error
