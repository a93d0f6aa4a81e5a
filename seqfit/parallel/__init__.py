"""Several processes that train one model: their process group, and how they share a step."""
