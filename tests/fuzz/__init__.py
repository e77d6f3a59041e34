"""Mutated files: every loader answers with a result or an error of its own, in bounded time and memory."""
