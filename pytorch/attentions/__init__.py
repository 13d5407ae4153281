"""Attentions of modules: their heads as a structure."""
