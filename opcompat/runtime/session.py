"""One entry point in one runtime: arrays in, arrays out. Verification and devices run the same classes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from opcompat.errors import BundleError, CrashError
from opcompat.manifest import WIDTHS, EntryPointInfo, Format, Manifest
from opcompat.runtime.inputs import Array

PACKAGES = {"onnx": "onnxruntime", "tflite": "ai-edge-litert"}
"""Format -> the package that runs it, in order of preference."""

_Type: TypeAlias = "tuple[str, list[Any]]"  # dtype and shape; a dimension that varies is no number

_MODULES = {"onnx": "onnxruntime", "tflite": "ai_edge_litert"}


class Session(Protocol):
    """Runs one entry point, without state."""

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Takes every input and returns every output, by leaf name, in the manifest's file dtypes.

        Inputs are not checked here (`opcompat.runtime.inputs` does). The results are the caller's own.
        Raises CrashError if the runtime refuses to run.
        """
        ...


class Engine(Protocol):
    """The files of one format, opened in their runtime."""

    runtime: str
    version: str

    def session(self, entry_point: str) -> Session:
        """Raises BundleError if the runtime cannot load the file, or the file contradicts the manifest."""
        ...


def installed(format: str) -> bool:
    """Whether the runtime of a format can be imported."""
    return importlib.util.find_spec(_MODULES[format]) is not None


def open_engine(path: Path, manifest: Manifest, format: str, *, threads: int = 1, optimize: bool = True) -> Engine:
    """Opens one format of the bundle at `path`.

    `threads` is what one call may use. `optimize` turns on what the runtime does by default: graph
    optimization in ONNX Runtime, the XNNPACK delegate in LiteRT. Results may differ in the last bits.

    Raises BundleError if the bundle lacks the format, or its runtime is not installed.
    """
    if format not in PACKAGES:
        raise BundleError(f"no runtime for format {format!r}: {', '.join(PACKAGES)}")
    if format not in manifest.formats:
        raise BundleError(f"{path}: holds no {format}, only {', '.join(manifest.formats) or 'nothing'}")
    if not installed(format):
        raise BundleError(f"{path}: {format} needs {PACKAGES[format]}: pip install {PACKAGES[format]}")
    if threads < 1:
        raise BundleError(f"threads must be 1 or more, not {threads}")
    engine = OnnxEngine if format == "onnx" else TfliteEngine
    return engine(path, manifest, threads, optimize)


def open_session(
    path: Path, manifest: Manifest, format: str, entry_point: str, *, threads: int = 1, optimize: bool = True
) -> Session:
    """`open_engine` for a single entry point."""
    return open_engine(path, manifest, format, threads=threads, optimize=optimize).session(entry_point)


# ONNX Runtime


class OnnxEngine:
    """One ONNX Runtime session per entry point, opened when it is asked for."""

    runtime = PACKAGES["onnx"]

    def __init__(self, path: Path, manifest: Manifest, threads: int, optimize: bool) -> None:
        import onnxruntime

        self.version: str = onnxruntime.__version__
        self._path, self._manifest = path, manifest
        self._errors = _exceptions(onnxruntime.capi.onnxruntime_pybind11_state)
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads
        self._options.inter_op_num_threads = 1
        self._options.log_severity_level = 4
        levels = onnxruntime.GraphOptimizationLevel
        self._options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL

    def session(self, entry_point: str) -> Session:
        import onnxruntime

        info, form = _entry_point(self._manifest, entry_point), self._manifest.formats["onnx"]
        path = self._path / form.path_of(entry_point)
        try:
            model = onnxruntime.InferenceSession(str(path), self._options, providers=["CPUExecutionProvider"])
        except self._errors as error:
            raise BundleError(f"{path}: ONNX Runtime {self.version} cannot load it: {error}") from error
        interface = _Interface(info, form, entry_point)
        inputs, outputs = (
            {v.name: (_onnx_dtype(v.type), list(v.shape)) for v in values}
            for values in (model.get_inputs(), model.get_outputs())
        )
        interface.check(inputs, outputs, path)
        return _OnnxSession(model, interface, self._errors, f"{entry_point} (ONNX Runtime {self.version})")


class _OnnxSession:
    def __init__(self, model: Any, interface: _Interface, errors: tuple[type[Exception], ...], where: str) -> None:
        self._model, self._interface, self._errors, self._where = model, interface, errors, where
        self._outputs = list(interface.outputs)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            values = self._model.run(self._outputs, self._interface.to_file(inputs))
        except self._errors as error:
            raise CrashError(f"{self._where}: {error}") from error
        return self._interface.from_file(dict(zip(self._outputs, values, strict=True)))


def _exceptions(module: Any) -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises: its errors share no base class below Exception."""
    own = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError, TypeError)


def _onnx_dtype(text: str) -> str:
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


# LiteRT


class TfliteEngine:
    """One interpreter for all signatures of the file. Not for calls from several threads at once."""

    runtime = PACKAGES["tflite"]

    def __init__(self, path: Path, manifest: Manifest, threads: int, optimize: bool) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self.version: str = importlib.metadata.version(self.runtime)
        self._path, self._manifest, self._form = path, manifest, manifest.formats["tflite"]
        self._interpreter: Any = Interpreter
        resolvers = OpResolverType
        self._options = {
            "num_threads": threads,
            "experimental_op_resolver_type": resolvers.AUTO
            if optimize
            else resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        }
        self._open: dict[Path, Any] = {}

    def session(self, entry_point: str) -> Session:
        info = _entry_point(self._manifest, entry_point)
        path = self._path / self._form.path_of(entry_point)
        try:
            if path not in self._open:
                self._open[path] = self._interpreter(model_path=str(path), **self._options)
            runner = self._open[path].get_signature_runner(entry_point)
            inputs, outputs = runner.get_input_details(), runner.get_output_details()
        except (ValueError, RuntimeError) as error:
            raise BundleError(f"{path}: LiteRT {self.version} cannot load it: {error}") from error
        interface = _Interface(info, self._form, entry_point)
        interface.check(_tflite_types(inputs), _tflite_types(outputs), path)
        return _TfliteSession(runner, interface, f"{entry_point} (LiteRT {self.version})")


class _TfliteSession:
    def __init__(self, runner: Any, interface: _Interface, where: str) -> None:
        self._runner, self._interface, self._where = runner, interface, where

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            values = self._runner(**self._interface.to_file(inputs))
        except (ValueError, RuntimeError) as error:
            raise CrashError(f"{self._where}: {error}") from error
        return self._interface.from_file(values)


def _tflite_types(details: Mapping[str, Mapping[str, Any]]) -> dict[str, _Type]:
    return {name: (np.dtype(d["dtype"]).name, [int(n) for n in d["shape"]]) for name, d in details.items()}


# Both


def _entry_point(manifest: Manifest, name: str) -> EntryPointInfo:
    if name not in manifest.entry_points:
        raise BundleError(f"no entry point {name!r}; there are {', '.join(manifest.entry_points)}")
    return manifest.entry_points[name]


class _Interface:
    """Between the manifest's names and dtypes and those that stand in a file."""

    def __init__(self, info: EntryPointInfo, form: Format, entry_point: str) -> None:
        self.inputs = {leaf.name: leaf for leaf in info.inputs}
        self.outputs = {form.output_name(entry_point, leaf.name): leaf for leaf in info.outputs}
        self._stored = {name: form.reinterpret.get(name, name) for name in WIDTHS}

    def check(self, inputs: Mapping[str, _Type], outputs: Mapping[str, _Type], path: Path) -> None:
        """Raises BundleError unless names, dtypes and shapes in the file are the manifest's."""
        for leaves, found in ((self.inputs, inputs), (self.outputs, outputs)):
            wanted = {name: (self._stored[x.file_dtype], list(x.shape)) for name, x in leaves.items()}
            differ = sorted(n for n in {*wanted, *found} if wanted.get(n) != found.get(n))
            if differ:
                shown = [f"{n}: {wanted.get(n)} in the manifest, {found.get(n)} here" for n in differ[:4]]
                raise BundleError(f"{path}: does not fit the manifest ({'; '.join(shown)}); convert again")

    def to_file(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {
            name: np.asarray(inputs[name], order="C").view(self._stored[leaf.file_dtype])
            for name, leaf in self.inputs.items()
        }

    def from_file(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Copies: runtimes may hand out memory that their next call overwrites."""
        return {
            leaf.name: np.array(values[name]).view(leaf.file_dtype).reshape(leaf.shape)
            for name, leaf in self.outputs.items()
        }
