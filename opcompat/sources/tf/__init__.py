"""Reads TensorFlow's files without TensorFlow: the messages, the checkpoint, and graphs that call StableHLO."""
