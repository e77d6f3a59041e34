"""The test matrix: every primitive, through the whole pipeline, in both runtimes."""
