"""The `pebble` dialect: layers of sparse networks, their constants, and what was decided about them."""
