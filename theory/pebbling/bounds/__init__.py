"""Lower bounds on the transfers of any order."""
