"""Kernel families: how weights are stored, how much work a layer is, and what it costs on a machine; numpy only."""
