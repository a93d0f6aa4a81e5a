"""The command line: one file per command, which parses, calls and prints; the work is done in the other packages."""
