"""Files: artefacts, the cache, JSON, atomic writing."""
