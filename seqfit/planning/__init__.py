"""Know before you run: memory and time of a step, predicted on fake tensors, and the search for a strategy."""
