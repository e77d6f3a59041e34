"""The third of the zoo that runs at every change; `python -m tests.zoo.run` runs the whole."""

from __future__ import annotations

import json

import pytest

from tests.zoo.policy import names
from tests.zoo.run import RESULTS, TABLE, good, run, table

SUBSET = (
    "belief_filter",
    "brax_ppo_stochastic",
    "cem_planner",
    "ddpm_sampler",
    "decision_transformer",
    "distrax_beta",
    "distrax_squashed",
    "dreamerv3_package",
    "flax_nnx_train_switch",
    "haiku_transformer",
    "mctx_gumbel",
    "purejaxrl_recurrent",
    "random_shooting",
    "realnvp_tfp",
    "resnet_encoder",
    "structured_observations",
    "vit_encoder",
)
"""Together they use every rule and primitive that the whole zoo does."""


@pytest.mark.zoo
@pytest.mark.parametrize("name", SUBSET)
def test_policy(name: str) -> None:
    result = run(name)
    assert good(result), result["problem"]


def test_the_table_is_of_this_zoo_and_of_these_results() -> None:
    results = json.loads(RESULTS.read_text())
    assert tuple(r["name"] for r in results) == names()
    assert TABLE.read_text() == table(results)


def test_the_subset_uses_what_the_zoo_does() -> None:
    results = [r for r in json.loads(RESULTS.read_text()) if not r["problem"]]
    for kind in ("rules", "primitives"):
        whole = {x for r in results for x in r[kind]}
        assert whole == {x for r in results if r["name"] in SUBSET for x in r[kind]}
