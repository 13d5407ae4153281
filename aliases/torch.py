"""`import redpebble.torch`: another name of `redpebble.pytorch`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("redpebble.pytorch")
