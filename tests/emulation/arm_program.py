"""The program that runs on ARM: networks of a folder, each with the inputs of its calls in NAME.npz, into NAME.out.npz.

A network is NAME.pebble, or NAME.onnx whose library is NAME.so; an array of calls is named NUMBER/INPUT.
"""

import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def calls_in(file: Path) -> Iterator[dict[str, NDArray[Any]]]:
    """Return the inputs of each call."""
    with np.load(file) as content:
        count = 1 + max(int(name.split("/")[0]) for name in content.files)
        for number in range(count):
            own = [name for name in content.files if name.startswith(f"{number}/")]
            yield {name.split("/", 1)[1]: content[name] for name in own}


def main(folder: Path, threads: int) -> None:
    """Run all networks of a folder."""
    for file in sorted(folder.glob("*.pebble")):
        from redpebble.runtime.network import Network
        from redpebble.runtime.store.artefact import read_artefact

        network = Network(*read_artefact(file), threads)
        _write(file, [network.run(None, feeds) for feeds in calls_in(file.with_suffix(".npz"))])
    for file in sorted(folder.glob("*.onnx")):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(str(file.with_suffix(".so")))
        session = onnxruntime.InferenceSession(str(file), options)
        _write(file, [session.run(None, feeds) for feeds in calls_in(file.with_suffix(".npz"))])
    print(platform.machine())


def _write(file: Path, results: list[Any]) -> None:
    arrays = {f"{number}/{index}": one for number, some in enumerate(results) for index, one in enumerate(some)}
    np.savez(file.with_suffix(".out.npz"), **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
