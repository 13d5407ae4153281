"""One layer at a time: structures that masks may have, and solvers that choose a mask and refit the weights."""
