"""Write the stored exports: `python -m redpebble.models.exports.write_exports` (needs the extra `zoo`).

Each architecture goes through both of torch's exporters: "classic" (torch.onnx.export by tracing) and "dynamo" (by
torch.export). What is stored is the graph; large initializers keep their shape and lose their values, which
`redpebble.models.exports.stored` makes anew.
"""

import gzip
import io
import logging
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import onnx

from .architectures import ARCHITECTURES, Architecture
from .stored import FOLDER, hollow
from .torch_networks import FirstOutput

torch: Any = import_module("torch")

Exporter = Literal["classic", "dynamo"]
OPSETS: Final[dict[Exporter, int]] = {"classic": 17, "dynamo": 20}


def export(architecture: Architecture, exporter: Exporter) -> onnx.ModelProto:
    """Return the file that an exporter of torch writes for an architecture."""
    warnings.simplefilter("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    module = architecture.module.eval()
    if exporter == "dynamo":
        program = torch.onnx.export(
            module,
            architecture.examples,
            dynamo=True,
            dynamic_shapes=_dynamic_shapes(architecture),
            input_names=list(architecture.inputs),
            output_names=list(architecture.outputs),
            opset_version=OPSETS[exporter],
            verbose=False,
        )
        return program.model_proto
    file = io.BytesIO()
    torch.onnx.export(
        module,
        architecture.examples,
        file,
        dynamo=False,
        dynamic_axes={name: dict(axes) for name, axes in architecture.axes.items()},
        input_names=list(architecture.inputs),
        output_names=list(architecture.outputs),
        opset_version=OPSETS[exporter],
    )
    return onnx.ModelProto.FromString(file.getvalue())


def _dynamic_shapes(architecture: Architecture) -> object:
    """Return the free axes in the structure of the examples: a list where an example is one."""
    dims: dict[str, object] = {}
    named = [
        {axis: dims.setdefault(name, torch.export.Dim(name)) for axis, name in axes.items()}
        for axes in architecture.axes.values()
    ]
    single = len(architecture.examples) - 1
    found = tuple(named[:single]) + ((named[single:],) if len(named) > single + 1 else tuple(named[single:]))
    # modules that take any number of inputs have one parameter for all of them
    return (found,) if isinstance(architecture.module, FirstOutput) else found


def write(name: str, exporter: Exporter, folder: Path = FOLDER) -> Path:
    """Write one export, its weights left out, and return its path."""
    torch.manual_seed(0)
    model = hollow(export(ARCHITECTURES[name](), exporter))
    path = folder / f"{name}.{exporter}.onnx.gz"
    path.write_bytes(gzip.compress(model.SerializeToString(deterministic=True), 9, mtime=0))
    return path


def main() -> None:
    """Write the exports whose names begin with what is given, or all."""
    wanted = tuple(sys.argv[1:]) or ("",)
    for name in ARCHITECTURES:
        for exporter in OPSETS:
            if not f"{name}.{exporter}".startswith(wanted):
                continue
            try:
                path = write(name, exporter)
                print(f"{path.name}: {path.stat().st_size} bytes", flush=True)
            except Exception:
                # torch's exporters raise what they like; the others are still wanted
                print(f"{name}.{exporter}: {traceback.format_exc().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
