"""Native code between the functions of a rank."""
