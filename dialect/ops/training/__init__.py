"""Ops that only training has."""
