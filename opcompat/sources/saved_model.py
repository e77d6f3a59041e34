"""A SavedModel of TensorFlow's own ops (TensorFlow, Keras, TFP): signatures are entry points, variables parameters.

tf2jax makes the functions. It is not believed: each is compared with TensorFlow itself before it is handed on.
"""

from __future__ import annotations

from pathlib import Path

from opcompat.config import did_you_mean
from opcompat.errors import SourceError
from opcompat.isolation import Limits, call
from opcompat.sources.base import Loaded, Options
from opcompat.sources.classic import install
from opcompat.sources.classic.survey import Survey, survey

ROUTES = ("tf2jax", "tf2onnx")
LIMITS = Limits(seconds=300.0, memory=16 << 30)
"""For loading and for one run of each signature in the child process."""


def load(source: str, options: Options) -> Loaded:
    """Raises SourceError for what cannot be read, UnsupportedError with every op that stands in the way, and
    VerificationError where what tf2jax makes of it differs from TensorFlow."""
    if options.via == "tf2onnx":
        raise SourceError(
            f"{source}: --via tf2onnx makes ONNX files, not a model; next: opcompat convert --via tf2onnx"
        )
    found = checked(source, options)
    found.check(found.refused)
    try_out(found, options)
    # TensorFlow and tf2jax are imported from here on.
    from opcompat.sources.classic.proof import prove_model
    from opcompat.sources.classic.signatures import opened
    from opcompat.sources.classic.through_tf2jax import model_of

    saved = opened(source, found.signatures, options.dims, xla=found.needs_xla)
    model = model_of(source, saved)
    prove_model(source, model, saved)
    return Loaded(model, source, Path(source).resolve())


def checked(source: str, options: Options) -> Survey:
    """What the file holds, read without TensorFlow. Raises SourceError, also where the extra is not installed."""
    if options.via and options.via not in ROUTES:
        raise SourceError(
            f"{source}: no route {options.via!r}{did_you_mean(options.via, ROUTES)}; there are {', '.join(ROUTES)}"
        )
    found = survey(source)
    install.require(source)
    return found


def try_out(found: Survey, options: Options) -> None:
    """Loads it in a child process first, where a crash or a hang does no harm. Raises SourceError and CrashError."""
    call(
        "opcompat.sources.classic.child:try_out",
        found.source,
        list(found.signatures),
        dict(options.dims),
        found.needs_xla,
        what=f"{found.source}: loading it in TensorFlow",
        limits=LIMITS,
    )
