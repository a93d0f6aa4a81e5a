"""A smaller vocabulary: which tokens are kept, sliced weights, a shrunk tokenizer, remapped data."""
