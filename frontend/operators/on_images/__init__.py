"""Nodes on images: windows, patches, places of pixels."""
