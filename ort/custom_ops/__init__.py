"""Custom operators: this process as their compiler, and the tables a library reads."""
