"""Clean-ups of ONNX graphs that only ONNX has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from opcompat.lowering.graph import Graph, Node, Tensor

_GEMM = frozenset({"float32", "float64"})


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
    return all(x is not None and x.rank == 2 and x.dtype in _GEMM for x in node.inputs)


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
