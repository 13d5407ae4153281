"""What stock `xdsl-opt` learns from us: the dialect, the passes and the target, each loaded only when it is used."""

from xdsl.ir import Dialect
from xdsl.universe import Universe


def _pebble() -> Dialect:
    from redpebble.dialect.pebble import Pebble

    return Pebble


REDPEBBLE_UNIVERSE = Universe(all_dialects={"pebble": _pebble})
