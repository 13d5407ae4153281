"""The zoo's sentence encoders: sparse and shallow MiniLMs, their data, training, measure of quality and storage."""
