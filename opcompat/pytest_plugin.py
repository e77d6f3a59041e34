"""The pytest plugin: the fixture `opcompat`, whose `check` fails a test with the report.

JAX is imported when `check` is called, not when pytest starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opcompat.checking.data import CheckReport


class Checker:
    """What the fixture `opcompat` gives."""

    def check(self, models: Any, **options: Any) -> CheckReport:
        """`opcompat.check`, with the same arguments. Fails the test with the report as text unless it is ok."""
        __tracebackhide__ = True
        from opcompat import packs
        from opcompat.checking.run import check

        report = check(models, **options)
        if not report.ok:
            pytest.fail(packs.renderers()["text"](report), pytrace=False)
        return report


@pytest.fixture(scope="session")
def opcompat() -> Checker:
    """Checks policies: `def test_policy(opcompat): opcompat.check(model)`."""
    return Checker()
