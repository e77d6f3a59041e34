"""Model files that hold a runtime's own ops: read in a child process, and judged op by op without conversion."""
