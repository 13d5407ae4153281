"""What can be cut: rows, batch, owners of neurons."""
