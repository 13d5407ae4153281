"""A folder of onnxruntime-genai as a whole: its decoder is optimized, and all else is copied.

```
IN/  genai_config.json  model.onnx  model.onnx.data  tokenizer.json
OUT/ genai_config.json  model.onnx  model.onnx.data  tokenizer.json  model.so
```

With a library beside the decoder, the configuration names it, and onnxruntime-genai loads it by itself.
"""

import json
import shutil
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ...frontend.reading.external_files import files_of
from ...frontend.reading.model_source import read_model
from ...verification.compare import CheckPlan
from ..commands import OptimizeRequest, optimize_model
from ..inspection import NOTHING_SHOWN, Inspection

CONFIG: Final = "genai_config.json"


class GenaiFolder(NamedTuple):
    """A folder, its configuration as it was read, and the file name of its decoder."""

    path: Path
    config: dict[str, Any]
    decoder: str

    @property
    def model(self) -> Path:
        """The file of the decoder."""
        return self.path / self.decoder


def read_folder(path: Path) -> GenaiFolder:
    """Return a folder that onnxruntime-genai reads.

    Raises:
        ValueError: it has no configuration, or one that names no decoder in the folder.
    """
    file = path / CONFIG
    if not file.is_file():
        raise ValueError(f"{str(path)!r} cannot be read: is a directory without {CONFIG}")
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{file} cannot be read: expected JSON, got {str(error).splitlines()[0]}") from error
    name: object = config
    for key in ("model", "decoder", "filename"):
        name = cast("dict[str, object]", name).get(key) if isinstance(name, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f"{file}: expected a file name at model.decoder.filename, got {json.dumps(name)}")
    if Path(name).name != name or not (path / name).is_file():
        raise ValueError(f"{file}: expected the decoder in this folder, got {name!r}, which is not there")
    return GenaiFolder(path, config, name)


def optimize_folder(request: OptimizeRequest, plan: CheckPlan, inspection: Inspection = NOTHING_SHOWN) -> bool:
    """Write a folder with the optimized decoder; return False, with no model written, when a check fails.

    Raises:
        OSError: the folder cannot be written.
        ValueError: see `read_folder` and `optimize_model`; or the folder would be written over.
    """
    folder, target, files = read_folder(request.source), request.files.model, request.files
    if target.exists() and target.samefile(folder.path):
        raise ValueError(f"cannot write {target}: it is the folder that is read")
    if not inspection.stage:
        target.mkdir(exist_ok=True)
    inside = replace(request, source=folder.model, files=replace(files, model=target / folder.decoder))
    if not optimize_model(inside, plan, inspection):
        return False
    if not inspection.stage:
        own = {folder.decoder, CONFIG, *files_of(read_model(folder.model, any_version=True))}
        copy_others(folder.path, target, own)
        library = inside.files.model.with_suffix(".so").name if files.library else ""
        _write_config(folder, target / CONFIG, library)
    return True


def copy_others(source: Path, target: Path, own: Set[str]) -> None:
    """Copy what a folder holds beside its decoder, with the folders in it; hidden files stay."""
    for path in source.iterdir():
        if path.name in own or path.name.startswith("."):
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name, dirs_exist_ok=True)
        else:
            shutil.copyfile(path, target / path.name)


def _write_config(folder: GenaiFolder, path: Path, library: str) -> None:
    """Write the configuration, which is the same but for the library beside the decoder."""
    if not library:
        shutil.copyfile(folder.path / CONFIG, path)
        return
    folder.config["model"]["decoder"].setdefault("session_options", {})["custom_ops_library"] = library
    path.write_text(json.dumps(folder.config, indent=4) + "\n", encoding="utf-8")
