"""Which split: predicted times, the simulator, Mt-KaHyPar."""
