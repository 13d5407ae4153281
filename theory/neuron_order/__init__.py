"""Orders of hidden neurons: which neurons stand beside each other in a layer."""
