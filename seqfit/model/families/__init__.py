"""Model families: one file each, found by listing this folder. `family.py` has the contract they fulfil."""
