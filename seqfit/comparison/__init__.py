"""A fair comparison of strategies for one recipe: matrix, trials in fresh processes, statistics, tables."""
