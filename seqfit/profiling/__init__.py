"""Where a step's time and memory went: trace readers, tables, findings with the change to make, and their proof."""
