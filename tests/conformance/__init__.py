"""JAX's own primitive suite, case by case, on both runtimes; and the analyzer's verdicts against what happened."""
