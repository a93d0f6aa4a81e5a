"""Model families, found by listing this folder: one file each, except for small ones in `padded.py`."""
