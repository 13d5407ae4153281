"""Gradients of constants as steps of a program."""
