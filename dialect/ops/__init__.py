"""Operations of the `pebble` dialect, one file a group."""
