"""The command line as `python -m redpebble`."""

from .tools.main import main

main()
