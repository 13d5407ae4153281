"""`redpebble explain` and `schedule`: text, tables, charts, the page."""
