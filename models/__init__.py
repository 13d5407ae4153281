"""Seeded recipes of models to test and measure with."""
