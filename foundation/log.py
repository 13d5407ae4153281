"""The logger of the package, `redpebble`: what was compiled, what came from the cache, what could not be kept.

Programs listen with `logging.getLogger("redpebble")`, the command line with `redpebble --verbose`.
"""

import logging
from typing import Final

LOG: Final = logging.getLogger("redpebble")
LOG.addHandler(logging.NullHandler())
