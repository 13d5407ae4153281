"""Red-blue pebbling of connection orders: the memory machine, plain and compiled."""
