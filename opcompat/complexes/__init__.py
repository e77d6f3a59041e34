"""Complex numbers as pairs of floats: `split` is the pass, `forms` its table, `arithmetic` the mathematics."""

from opcompat.complexes.forms import is_complex, part_dtype
from opcompat.complexes.split import RULE, from_pairs, pairs_of, split_complex

__all__ = ["RULE", "from_pairs", "is_complex", "pairs_of", "part_dtype", "split_complex"]
