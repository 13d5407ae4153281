"""The theory of data movement in sparse networks: pure algorithms on arrays, without any IR."""
