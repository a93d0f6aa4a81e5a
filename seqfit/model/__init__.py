"""transformers' own models, loaded with care: build, loss, decoding, checkpoint folders. No forked model code."""
