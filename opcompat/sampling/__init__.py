"""The sampling modes: what becomes of a policy's draws (`samplers.py` has the table), before anything else sees it.

Each mode turns the traced entry points into others of the same kind. Keys are gone from their interface, and in
noise mode each draw has an input of its own. Rules, lowering, reference and verification see just another function.

    samplers.py   the functions of jax.random, and how a call of one is recognised
    draws.py      replaces the draws of one jaxpr
    interface.py  inputs, outputs, feedback and init without keys and with noise
    proof.py      checks a noise form against the policy that it was made from
"""

from opcompat.sampling.interface import Sampled, apply
from opcompat.sampling.proof import prove

__all__ = ["Sampled", "apply", "prove"]
