"""Attention within segments, the chunked loss, dropout and norm: what a step spends its time in."""
