"""Folder of what is kept for the next process: compiled networks and loops, and what was measured of this machine."""

import os
from pathlib import Path
from typing import Final

import platformdirs

NO_FOLDER: Final = Path(os.devnull) / "redpebble"
"""The cache of a user without a home: it cannot be made, as one where nothing can be written."""

LOOPS: Final = "loops"
"""Folder inside of it, of loops that numba compiled."""


def default_folder() -> Path:
    """Return the folder for compiled networks: `REDPEBBLE_CACHE` where it is set, else the user's cache folder."""
    chosen = os.environ.get("REDPEBBLE_CACHE")
    try:
        folder = Path(chosen or platformdirs.user_cache_dir("redpebble"))
    except RuntimeError:  # nobody knows this user's home
        return NO_FOLDER
    # older platformdirs leave the ~ where it is
    return NO_FOLDER if folder.parts[:1] == ("~",) else folder
