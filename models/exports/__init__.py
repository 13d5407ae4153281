"""Real architectures as torch's two exporters write them: the graphs are stored, their weights are made anew."""
