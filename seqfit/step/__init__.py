"""One optimizer step: micro-batches -> normalised loss -> clip -> update. No I/O."""
