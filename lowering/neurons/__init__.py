"""Code that runs neuron by neuron or connection by connection."""
