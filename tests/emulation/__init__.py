"""Code for 64-bit ARM under qemu: see `arm_root.py` for what that needs, and `make test-arm`."""
