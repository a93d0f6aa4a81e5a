"""Files become tokenized splits, and splits become batches: sources, splits, the cache of token ids, the loader."""
