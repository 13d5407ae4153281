"""The functions behind the API: they read, optimize, compile and place a model with the pipeline."""
