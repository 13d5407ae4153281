"""Analyses: questions about IR that change nothing."""
