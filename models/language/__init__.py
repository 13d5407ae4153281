"""SmolLM2 of the zoo: its texts, its base as a file, and what was trained as a small difference from the base."""
