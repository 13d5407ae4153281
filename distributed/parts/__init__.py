"""The program of one rank, and its file."""
