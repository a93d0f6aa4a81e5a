"""Several processes that train one model: who they are, and how they share a step."""
