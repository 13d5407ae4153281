"""Reports: what the IR says of its layers, networks and splits."""
