"""A fair tournament of ways to train one recipe: matrix, trials in fresh processes, results, tables."""
