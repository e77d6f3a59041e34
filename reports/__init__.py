"""Renderers: each file has `render(report, *, color=False, width=None) -> str`, found by entry point."""
