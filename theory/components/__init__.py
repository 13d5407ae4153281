"""Layers that fall apart into groups without connections between them."""
