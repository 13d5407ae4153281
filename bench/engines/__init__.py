"""Engines: who is measured."""
