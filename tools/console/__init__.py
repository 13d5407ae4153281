"""The terminal of the commands: its console, progress bars and lines."""
