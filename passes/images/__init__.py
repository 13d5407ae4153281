"""Passes on convolutions and what runs on images beside them."""
