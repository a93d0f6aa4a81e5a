"""Model families by architecture, found by listing this folder. `family.py` has the contract they fulfil."""
