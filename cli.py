"""Runs the command line from a checkout: `python cli.py scan model/`. An installed package has `opcompat`."""

import importlib.util
import sys

if __name__ == "__main__":
    if any(importlib.util.find_spec(name) is None for name in ("click", "opcompat.reports")):
        print("error: this checkout is not installed: run `pip install -e .` in it first", file=sys.stderr)
        sys.exit(2)
    from opcompat.cli import main

    main()
