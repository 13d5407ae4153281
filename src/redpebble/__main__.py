"""The command line as `python -m redpebble`."""

from redpebble.tools.main import main

main()
