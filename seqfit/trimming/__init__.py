"""trimming."""
