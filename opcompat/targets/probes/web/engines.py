"""The runtimes of the web, asked in node or in headless Chromium: what each is asked, and what its table says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from opcompat.errors import ConfigError
from opcompat.targets.probes.answers import Answers, probe, rows
from opcompat.targets.probes.case import DTYPES, Case, difference
from opcompat.targets.probes.sandbox import CRASH, TIMEOUT, content, feeds, short
from opcompat.targets.probes.web.interface import BITS, Passage, fed, passes
from opcompat.targets.probes.web.process import NodeError, NodeProcess, decode, encode

HOST = Path(__file__).parent / "host.mjs"
OPSET = 21
AT_ONCE = 40
"""Models that are sent together."""

Model = tuple[bytes, Mapping[str, np.ndarray], Sequence[str]]
Judge = Callable[[Sequence[np.ndarray]], str]


@dataclass(frozen=True)
class Engine:
    """A runtime of the web. `packages`: what npm has to install; the first one gives the version.

    `passages`: dtypes that its interface lacks and that pass as others. `dtypes` and `ranks` are asked about, with
    special values at `special` ranks, and nothing that has one of `skipped`. `tolerance`: relative, of functions that
    are not exact.
    """

    packages: tuple[str, ...]
    form: str
    summary: str
    limits: Mapping[str, Any]
    dtypes: tuple[str, ...] = DTYPES
    ranks: Sequence[int] = range(7)
    special: tuple[int, ...] = (1, 2)
    skipped: tuple[str, ...] = ()
    passages: Mapping[str, Passage] = field(default_factory=dict)
    tolerance: float = 0.0
    has_64_bit: bool = True

    def cases(self) -> Iterator[Case]:
        """Every question: ordinary values, then special ones."""
        from opcompat.targets.probes import onnx_cases, onnx_more, tflite_cases

        modules = (onnx_cases, onnx_more) if self.form == "onnx" else (tflite_cases,)
        plain = (module.cases(self.dtypes, self.ranks) for module in modules)
        special = (module.cases(self.dtypes, self.special, special=True) for module in modules)
        bounds = [d for d in self.limits.get("interface", DTYPES) if d not in self.skipped]
        for case in chain(*plain, *special):
            if passes(case, bounds, self.passages):
                yield replace(case, tolerance=max(case.tolerance, self.tolerance)) if case.tolerance else case


_ORT = ("onnxruntime-web",)
_TFJS_DTYPES = ("float32", "int32", "bool")
_DELEGATED = (1, 2, 7)
"""Up to rank 6 a delegate runs many ops of TFLite, with kernels of its own."""
_ORT_NOTE = "Opsets other than 21 were not asked about: convert with the default opset."

ENGINES: Mapping[str, Engine] = {
    "onnxruntime-web": Engine(
        _ORT,
        "onnx",
        "onnxruntime-web in browsers and node, on the CPU (WebAssembly)",
        {"notes": ["Pass the weights file as externalData; examples/web/policy.mjs does.", _ORT_NOTE]},
        ranks=range(9),
    ),
    "onnxruntime-web-webgpu": Engine(
        (*_ORT, "puppeteer-core"),
        "onnx",
        "onnxruntime-web's WebGPU kernels, on Chromium's software renderer",
        {
            "fallback": "onnxruntime-web on the CPU (WebAssembly)",
            "notes": [
                "Elementary functions are exact to about 1e-3 only, which is what WebGPU promises: draws may differ.",
                "Shaders may take it that there are no NaN and no infinities.",
                "float16 depends on the graphics card: it was not asked about.",
                _ORT_NOTE,
            ],
        },
        dtypes=("float32", "int32", "uint32", "bool", "int64", "int8", "uint8"),
        ranks=range(5),
        skipped=("float16",),
        tolerance=1e-3,
    ),
    "litert-web": Engine(
        ("@litertjs/core", "@litertjs/wasm-utils", "puppeteer-core"),
        "tflite",
        "LiteRT.js in browsers, on the CPU (WebAssembly)",
        {
            "interface": ["float32", "int32", "uint8"],
            "notes": ["LiteRT.js does not throw where a model fails: read ERROR lines of the console."],
        },
        ranks=range(9),
        special=_DELEGATED,
        passages=BITS,
        has_64_bit=False,
    ),
    "tfjs": Engine(
        ("@tensorflow/tfjs-tflite", "@tensorflow/tfjs", "puppeteer-core"),
        "tflite",
        "TF.js running .tflite files with its package tfjs-tflite (WebAssembly)",
        {
            "signatures": 1,
            "interface": list(_TFJS_DTYPES),
            "notes": [
                "TF.js's own graph models come from TensorFlow SavedModels of classic ops, which opcompat does not "
                "write: the verdict is about tfjs-tflite, whose last release holds a TFLite of 2023.",
                "Outputs come in the order of the manifest, without their names.",
                "Bools come out as int32; logistic and what is behind erf and acosh lose NaN and infinities.",
            ],
        },
        dtypes=_TFJS_DTYPES,
        ranks=(0, 1, 2, 3, 4, 7),
        special=_DELEGATED,
        has_64_bit=False,
    ),
}
"""Name of the target -> its runtime."""


class WebSandbox:
    """Asks an engine, in a process that is replaced when a model ends or hangs it. A sandbox for `answers.probe`.

    Raises ConfigError, which says what to install, where the engine does not start.
    """

    def __init__(self, name: str, packages: Path | None = None) -> None:
        self.name, self.engine, self.packages = name, ENGINES[name], packages
        self.known: dict[int, str] = {}
        self.start()

    def start(self) -> None:
        try:
            self.process = NodeProcess(HOST, self.name, packages=self.packages)
        except NodeError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        ready = self.process.ready
        if "problem" in ready:
            self.process.close()
            raise ConfigError(f"{self.name}: {ready['problem']}; next: {self._install()}")
        self.version: str = ready["version"]
        self.where: str = ready["where"]

    def _install(self) -> str:
        command = f"npm install {' '.join(self.engine.packages)}"
        if "puppeteer-core" in self.engine.packages:
            command += ", and install Chromium (OPCOMPAT_CHROMIUM names it if it is not on PATH)"
        return command

    def ask(self, case: Case) -> str:
        """ "" where the result is right, else why not."""
        if id(case) not in self.known:
            self.prefetch([case])
        return self.known.pop(id(case))

    def ahead(self, questions: Iterable[Case]) -> Iterator[Case]:
        """The questions, with their answers fetched some at a time: each way there and back takes long."""
        rest = iter(questions)
        while chunk := list(islice(rest, AT_ONCE)):
            self.prefetch(chunk)
            yield from chunk
            self.known.clear()

    def prefetch(self, chunk: Sequence[Case]) -> None:
        models = [self._model(case) for case in chunk]
        results = self.run_all([m[:3] for m in models], TIMEOUT + len(chunk))
        for case, (*_, judge), result in zip(chunk, models, results, strict=True):
            self.known[id(case)] = result if isinstance(result, str) else judge(result)

    def _model(self, case: Case) -> tuple[bytes, Mapping[str, np.ndarray], Sequence[str], Judge]:
        if self.engine.form == "onnx":
            data, names = content(case, "onnx", OPSET)
            return data, feeds(case, "onnx"), names, lambda got: difference(case, got)
        from opcompat.lowering.tflite.writer import write

        model = fed(case, self.engine.passages)
        data = write({"main": model.graph}, {}, output_names={"main": list(model.outputs)})

        def judge(got: Sequence[np.ndarray]) -> str:
            return difference(case, model.read(_typed(got, case) if self.name == "tfjs" else got, case))

        return data, model.inputs, model.outputs, judge

    def run(self, data: bytes, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray] | str:
        """The results of a file, or why there are none."""
        return self.run_all([(data, inputs, outputs)], TIMEOUT)[0]

    def run_all(self, models: Sequence[Model], timeout: float) -> list[list[np.ndarray] | str]:
        requests = [
            {
                "model": encode(np.frombuffer(data, np.uint8)),
                "inputs": {name: encode(x) for name, x in inputs.items()},
                "outputs": list(outputs),
            }
            for data, inputs, outputs in models
        ]
        try:
            answers = self.process.ask(requests, timeout)
        except NodeError as error:
            self.process.close()
            self.start()
            if len(models) > 1:
                return [self.run_all([model], TIMEOUT)[0] for model in models]
            return ["hangs" if "no answer" in str(error) else CRASH]
        return [
            f"{a['stage']}: {short(a['error'])}" if "error" in a else [decode(x) for x in a["outputs"]] for a in answers
        ]

    def close(self) -> None:
        self.process.close()


def _typed(results: Sequence[np.ndarray], case: Case) -> list[np.ndarray]:
    """TF.js reads every integer as int32: back to the dtype that the model has."""
    return [x.astype(like.dtype) for x, like in zip(results, case.expected, strict=True)]


def make(name: str, date: str, questions: Iterable[Case] | None = None, packages: Path | None = None) -> dict[str, Any]:
    """Asks the engine that is installed, and returns the content of its table. Raises ConfigError."""
    engine, sandbox = ENGINES[name], WebSandbox(name, packages)
    try:
        asked = engine.cases() if questions is None else questions
        answers, tried = probe(sandbox.ahead(asked), sandbox)
    finally:
        sandbox.close()
    _spread(answers, engine.special)
    found = _rows(answers)
    return {
        "schema_version": 1,
        "target": name,
        "runtime": engine.packages[0],
        "version": sandbox.version,
        "date": date,
        "format": engine.form,
        "evidence": "probed",
        "generator": f"opcompat probe {name}",
        "source": f"asked in {sandbox.where}",
        "summary": engine.summary,
        "tried": tried,
        "has_64_bit": engine.has_64_bit,
        "limits": dict(engine.limits),
        "ops": _versioned(found) if engine.form == "onnx" else found,
    }


def _rows(answers: Answers) -> dict[str, list[dict[str, Any]]]:
    """Rows by op. Scalars stand apart: where an interface mishandles them, that says nothing of other ranks."""
    scalars = {about: {r: a for r, a in ranks.items() if r == 0} for about, ranks in answers.items()}
    others = {about: {r: a for r, a in ranks.items() if r} for about, ranks in answers.items()}
    found, more = rows(others), rows(scalars)
    return {op: [*found.get(op, ()), *more.get(op, ())] for op in sorted({*found, *more})}


def _spread(answers: Answers, asked: Sequence[int]) -> None:
    """Special values are asked at some ranks only: what is wrong there is taken to be wrong up to the next one."""
    for ranks in answers.values():
        for rank, (plain, special) in ranks.items():
            near = max((a for a in asked if a <= rank), default=min(asked))
            wrong = ranks.get(near, ("", ""))[1]
            if near != rank and wrong.startswith("wrong: ") and not plain and not special:
                ranks[rank] = plain, wrong


def _versioned(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of ONNX ops are about the version that was asked."""
    from opcompat.targets.onnx_types import schema

    return {op: [{**row, "since": schema(op, OPSET).since_version} for row in rows_] for op, rows_ in found.items()}
