"""Passes that lowering needs: tiles, their split over threads, their schedule."""
