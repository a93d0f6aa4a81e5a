"""How good a model is: generate answers, score them, write them to the run directory."""
