"""Clean-ups of ONNX graphs that only ONNX has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor

_FLOATS = frozenset({"float32", "float64"})


def fuse_gemm(graph: Graph) -> Graph:
    """MatMul(x, w) + c -> Gemm(x, w, c), for matrices and a bias that broadcasts to their product.

    The sum is the same one, after the product; only its rounding order may differ. Changes `graph`, bodies
    included, and returns it.
    """
    uses = Counter(_used(graph))
    _fuse(graph, uses)
    return graph


def _used(graph: Graph) -> Iterable[int]:
    for node in graph.walk():
        yield from (id(x) for x in node.inputs if x is not None)
        for body in node.bodies.values():
            yield from (id(x) for x in body.outputs)
    yield from (id(x) for x in graph.outputs)


def _fuse(graph: Graph, uses: Counter[int]) -> None:
    products = {id(node.outputs[0]): node for node in graph.nodes if _is_product(node)}
    fused: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        for body in node.bodies.values():
            _fuse(body, uses)
        pair = _bias(node, products, uses)
        if pair is not None:
            product, bias = pair
            gone.add(id(product))
            fused[id(node)] = replace(
                product,
                op="Gemm",
                inputs=(*product.inputs[:2], bias),
                outputs=node.outputs,
                also=(*product.also, *node.served),
            )
    graph.nodes = [fused.get(id(n), n) for n in graph.nodes if id(n) not in gone]


def _is_product(node: Node) -> bool:
    """A product of matrices without a bias yet."""
    if node.op not in ("MatMul", "Gemm") or len(node.inputs) != 2:
        return False
    return all(x is not None and x.rank == 2 and x.dtype in _FLOATS for x in node.inputs)


def _bias(node: Node, products: dict[int, Node], uses: Counter[int]) -> tuple[Node, Tensor] | None:
    """(the product, the bias) if `node` adds a bias to a product that nothing else needs."""
    if node.op != "Add":
        return None
    for total, bias in (node.inputs, node.inputs[::-1]):
        product = None if total is None else products.get(id(total))
        if product is None or bias is None or bias is total or uses[id(total)] != 1:
            continue
        _, columns = node.outputs[0].shape
        # Only a bias row: a whole matrix would be copied before the product, which gains nothing.
        if node.outputs[0].shape == product.outputs[0].shape and bias.shape in ((columns,), (1, columns)):
            return product, bias
    return None


_LEFT_OUT = frozenset({"Cast", "Expand", "Identity"})
"""Ops that ONNX Runtime takes out of a graph where they change nothing."""

_NEUTRAL = frozenset({"Add", "Sub", "Mul", "Div"})
"""Ops that it takes out where one operand is a stored zero or one."""


def guard_reciprocals(graph: Graph) -> Graph:
    """Writes y * (1 / z) as y * (-1 / -z), which is exact, where ONNX Runtime may take out the op that makes y.

    ONNX Runtime (1.32) fuses y * (1 / z) to y / z. If it takes out the op that makes y in the same
    sweep (y = x + 0, say), the fused op asks for a y that is gone, and a valid file does not load. Weights count, too:
    whether they are zero or one is known only when they are stored. Changes `graph`, bodies included.
    """
    makers = {id(x): node for node in graph.nodes for x in node.outputs}
    risky: set[int] = set()
    for node in graph.nodes:
        for body in node.bodies.values():
            guard_reciprocals(body)
        if node.op == "Mul":
            for one, other in (node.inputs, node.inputs[::-1]):
                reciprocal, made_by = makers.get(id(one)), makers.get(id(other))
                if reciprocal is not None and made_by is not None and _may_go(made_by) and _is_reciprocal(reciprocal):
                    risky.add(id(reciprocal))
    graph.nodes = [part for node in graph.nodes for part in (_negated(node) if id(node) in risky else (node,))]
    return graph


def _may_go(node: Node) -> bool:
    stored = any(x is not None and x.is_constant and x.size == 1 for x in node.inputs)
    return node.op in _LEFT_OUT or (node.op in _NEUTRAL and stored)


def _is_reciprocal(node: Node) -> bool:
    one = node.inputs[0] if node.op == "Div" else None
    if one is None or one.data is None or one.size != 1 or one.dtype not in _FLOATS:
        return False
    return bool(np.all(one.data == 1))


def _negated(node: Node) -> tuple[Node, Node]:
    """1 / z as -1 / -z."""
    one, divisor = node.inputs
    assert one is not None
    assert divisor is not None
    negative = Tensor(divisor.shape, divisor.dtype)
    minus = Tensor(one.shape, one.dtype, data=np.full(one.shape, -1, one.dtype))
    return (
        replace(node, op="Neg", inputs=(divisor,), outputs=(negative,), attrs={}),
        replace(node, inputs=(minus, negative)),
    )
