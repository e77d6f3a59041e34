"""A bundle that is ready to run: entry points, their state between calls, and the replay."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from opcompat.bundle import Bundle, reference_path
from opcompat.errors import BundleError
from opcompat.manifest import EntryPointInfo, Init, Leaf, Manifest
from opcompat.runtime.inputs import Array, InputError, require, take
from opcompat.runtime.noise import draw
from opcompat.runtime.reference import read_init, read_reference
from opcompat.runtime.replay import ReplayResult, replay_entry_point
from opcompat.runtime.session import PACKAGES, Session, installed, open_engine


def load(
    path: str | os.PathLike[str], format: str | None = None, *, threads: int = 1, optimize: bool = True
) -> LoadedBundle:
    """Opens a bundle to run it.

    Args:
      path: the bundle's folder.
      format: "onnx" or "tflite"; None takes the first that is in the bundle and has its runtime installed.
      threads: how many the runtime may use for one call.
      optimize: False turns off ONNX Runtime's graph optimization, or LiteRT's XNNPACK delegate.

    Raises BundleError if the bundle is damaged, or no installed runtime can run it. Contents of files are
    not compared with their hashes: `load(...).bundle.check_files()` does.
    """
    bundle = Bundle.open(path)
    return LoadedBundle(bundle, format or _first_format(bundle), threads, optimize)


def _first_format(bundle: Bundle) -> str:
    present = [name for name in PACKAGES if name in bundle.manifest.formats]
    if not present:
        raise BundleError(f"{bundle.path}: holds none of the formats {', '.join(PACKAGES)}")
    for name in present:
        if installed(name):
            return name
    packages = " or ".join(PACKAGES[name] for name in present)
    raise BundleError(f"{bundle.path}: no runtime for it is installed: pip install {packages}")


class LoadedBundle:
    """A bundle in one format. Files are opened when an entry point is first used."""

    def __init__(self, bundle: Bundle, format: str, threads: int = 1, optimize: bool = True) -> None:
        self.bundle = bundle
        self.format = format
        self._engine = open_engine(bundle.path, bundle.manifest, format, threads=threads, optimize=optimize)
        self._sessions: dict[str, Session] = {}

    @property
    def manifest(self) -> Manifest:
        return self.bundle.manifest

    @property
    def runtime(self) -> str:
        """As in "onnxruntime 1.32.0"."""
        return f"{self._engine.runtime} {self._engine.version}"

    @property
    def entry_points(self) -> tuple[str, ...]:
        return tuple(self.manifest.entry_points)

    def entry_point(self, name: str) -> LoadedEntryPoint:
        """A new caller of an entry point, with a state of its own. Raises BundleError if there is none."""
        self._info(name)
        return LoadedEntryPoint(self, name)

    def session(self, name: str) -> Session:
        """The unchecked, stateless function below an entry point; all its callers share it."""
        if name not in self._sessions:
            self._sessions[name] = self._engine.session(name)
        return self._sessions[name]

    def replay(self, entry_point: str | None = None) -> ReplayResult:
        """Runs the recorded reference of one entry point, or of all that have one, and compares.

        Raises BundleError if there is no recording, or it is damaged. A difference does not raise:
        `ReplayResult.raise_if_failed` does.
        """
        names = [entry_point] if entry_point else [n for n in self.entry_points if self._recorded(n)]
        if not names:
            raise BundleError(f"{self.bundle.path}: holds no recorded reference")
        return ReplayResult(
            tuple(
                replay_entry_point(
                    name,
                    self._info(name),
                    self.session(name),
                    read_reference(self.bundle.file(reference_path(name)), self._info(name)),
                    self.format,
                    self.runtime,
                )
                for name in names
            )
        )

    def _recorded(self, name: str) -> bool:
        return reference_path(name) in self.manifest.files

    def _info(self, name: str) -> EntryPointInfo:
        if name not in self.manifest.entry_points:
            raise BundleError(f"{self.bundle.path}: no entry point {name!r}; there are {', '.join(self.entry_points)}")
        return self.manifest.entry_points[name]


class LoadedEntryPoint:
    """One entry point: `policy(inputs)` without state, or `policy.step(inputs)`, which feeds it back.

    Inputs come as a mapping, by dotted name or nested: {"obs.vector": x} or {"obs": {"vector": x}}. Results
    are numpy arrays by dotted name. Both have the file dtypes that `inputs` and `outputs` list. Wrong inputs
    raise InputError (a ValueError and a BundleError), a runtime that fails raises CrashError.
    """

    def __init__(self, owner: LoadedBundle, name: str) -> None:
        self.name = name
        self._owner = owner
        self._info = owner.manifest.entry_points[name]
        self._state: dict[str, Array] | None = None

    @property
    def inputs(self) -> tuple[Leaf, ...]:
        return self._info.inputs

    @property
    def outputs(self) -> tuple[Leaf, ...]:
        return self._info.outputs

    @property
    def state(self) -> dict[str, Array] | None:
        """What the next step takes from here, by input name: a copy. None before the first step or reset."""
        return None if self._state is None else {name: array.copy() for name, array in self._state.items()}

    @state.setter
    def state(self, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._state = None
            return
        leaves = self._state_leaves()
        state = take(value, leaves, f"{self.name}.state")
        require(state, leaves, f"{self.name}.state")
        self._state = {name: array.copy() for name, array in state.items()}

    def __call__(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Runs once, with every input given; the state is neither used nor changed."""
        return self._run(take(inputs or {}, self.inputs, self.name))

    def noise(self, rng: np.random.Generator) -> dict[str, Array]:
        """Fresh noise for all inputs that stand for draws, by name; none unless the bundle's sampling is "noise"."""
        return {leaf.name: draw(leaf, rng) for leaf in self.inputs if leaf.noise}

    def reset(self, inputs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Sets the state to its first value, by running the entry points that give it.

        `inputs`, or keywords, are those entry points' own inputs. Raises InputError where one is missing,
        and BundleError if this entry point has no state, or nothing says how it begins.
        """
        given = {**(inputs or {}), **more}
        self._check_init()
        sources = self._init_entry_points()
        leaves = {leaf.name: leaf for name in sources for leaf in self._owner._info(name).inputs}
        self._state = self._first_state(take(given, leaves.values(), f"{self.name}.reset"))

    def step(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Runs once, with the state from the last step, and keeps what is fed back for the next.

        The first step resets by itself if the entry points that give the first state take nothing, or
        nothing but what `inputs` holds, and no key or noise: used twice, it would repeat its draws. A state given in
        `inputs` is used in the place of the kept one.
        """
        given = take(inputs or {}, self.inputs, self.name)
        if self._state is None and any(leaf.name not in given for leaf in self._state_leaves()):
            self._state = self._automatic_state(given)
        outputs = self._run({**(self._state or {}), **given})
        fed_back = {name: outputs[output].copy() for output, name in self._info.feedback.items()}
        kept = {x.name: given[x.name] for x in self._state_leaves() if x.name in given}
        self._state = {**(self._state or {}), **kept, **fed_back}
        return outputs

    def _run(self, given: Mapping[str, Array]) -> dict[str, Array]:
        require(given, self.inputs, self.name)
        return self._owner.session(self.name)(given)

    def _state_leaves(self) -> list[Leaf]:
        names = {*self._info.feedback.values(), *self._info.init}
        return [leaf for leaf in self.inputs if leaf.name in names]

    def _init_entry_points(self) -> list[str]:
        """The entry points that give parts of the first state, each once."""
        return sorted({init.split()[0] for init in self._info.init.values() if init.output})

    def _check_init(self) -> None:
        if not self._state_leaves():
            raise BundleError(f"{self.name}: feeds nothing back, so it has no state to reset")
        unknown = [leaf.name for leaf in self._state_leaves() if leaf.name not in self._info.init]
        if unknown:
            raise BundleError(
                f"{self.name}: the bundle does not say how {', '.join(unknown)} begins: give it at the first step"
            )

    def _automatic_state(self, given: Mapping[str, Array]) -> dict[str, Array]:
        self._check_init()
        needed = {x.name: x for n in self._init_entry_points() for x in self._owner._info(n).inputs}
        missing = [x for x in needed.values() if x.key or x.noise or x.name not in given]
        if missing:
            raise InputError(
                f"{self.name}: call reset({', '.join(f'{x.name}={x.type}' for x in missing)}) first: "
                f"{', '.join(self._init_entry_points())} takes it for the first state"
            )
        shared = {name: given[name] for name in needed}
        return self._first_state(take(shared, needed.values(), f"{self.name}.reset"))

    def _first_state(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Runs each entry point that gives a part of the state once, and reads the rest from files."""
        results = {}
        for name in self._init_entry_points():
            leaves = self._owner._info(name).inputs
            require(given, leaves, f"{self.name}.reset: {name}")
            results[name] = self._owner.session(name)({x.name: given[x.name] for x in leaves})
        return {name: self._first_value(name, init, results) for name, init in self._info.init.items()}

    def _first_value(self, name: str, init: Init, results: Mapping[str, Mapping[str, Array]]) -> Array:
        if not init.output:
            return read_init(self._owner.bundle.file(init.file), self._info.input(name))
        source, leaf = init.split()
        return results[source][leaf].copy()
