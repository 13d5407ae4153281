"""The thread pool of native code."""
