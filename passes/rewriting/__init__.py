"""Edits of IR that several passes share."""
