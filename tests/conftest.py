"""What holds for all tests."""

from hypothesis import Phase, settings

# To explain a failure Hypothesis traces every line on Python 3.11, of numba's compiler as well: it takes minutes
settings.register_profile("redpebble", phases=[phase for phase in Phase if phase is not Phase.explain])
settings.load_profile("redpebble")
