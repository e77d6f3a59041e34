"""The command line: a list of the commands, each in its own file in `commands/`."""

from __future__ import annotations

import click

from opcompat.commands.baseline import baseline
from opcompat.commands.bisect import bisect
from opcompat.commands.check import check
from opcompat.commands.convert import convert
from opcompat.commands.explain import explain
from opcompat.commands.probe import probe
from opcompat.commands.report import report
from opcompat.commands.rules import rules
from opcompat.commands.scan import scan
from opcompat.commands.targets import targets
from opcompat.commands.verify import verify

EPILOG = """
SOURCE is a folder with an opcompat.toml (factory = "module:function", which returns an opcompat.Model, or source =
"file"), module:function itself, a SavedModel of jax2tf, a file of jax.export, or StableHLO (.mlir, .mlirbc).

Exit codes: 0 clean; 1 findings or a mismatch; 2 usage, configuration or input; 3 a crash.
"""


@click.group(
    commands=[scan, convert, verify, bisect, check, baseline, report, rules, explain, targets, probe],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@click.version_option(package_name="opcompat", message="%(prog)s %(version)s")
def cli() -> None:
    """Takes JAX policies to ONNX Runtime and LiteRT, and proves that they act the same there."""


def main() -> None:
    """The console script."""
    cli(prog_name="opcompat")
