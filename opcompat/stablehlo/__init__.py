"""StableHLO -> JAX function: reads exported models, and takes unknown primitives apart.

    bytes, text, ir.Module ──parse──► Program ──evaluate──► lax calls (a plain JAX function)

`program` holds the frozen data, `parse` is the only file that touches MLIR, `regions` recognises what a body
computes, `ops` is the table from op name to function, `evaluate` walks a program, `importer` is the API.
"""

from opcompat.stablehlo.importer import decompose, import_module
from opcompat.stablehlo.program import InvalidModule, Undecomposable

__all__ = ["InvalidModule", "Undecomposable", "decompose", "import_module"]
