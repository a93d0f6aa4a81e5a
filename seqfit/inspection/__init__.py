"""What data looks like to a model, and a recipe guessed from its columns: `seqfit data`."""
