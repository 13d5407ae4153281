"""The engines and tables of the command `bench`: one model, several engines beside each other."""
