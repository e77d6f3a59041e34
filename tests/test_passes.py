"""Clean-ups of a lowered graph: dead code, equal nodes, needless broadcasts."""

from __future__ import annotations

from typing import Any

import numpy as np

from opcompat.lowering.graph import Graph, Node, Tensor, Weight
from opcompat.lowering.lower import PLACEHOLDER
from opcompat.lowering.passes import drop_dead, merge_equal, skip_broadcasts

SHAPE = (2, 3)


def tensor(shape: tuple[int, ...] = SHAPE, dtype: str = "float32", **content: Any) -> Tensor:
    return Tensor(shape, dtype, **content)


def node(op: str, *inputs: Tensor | None, shape: tuple[int, ...] = SHAPE, dtype: str = "float32", **rest: Any) -> Node:
    return Node(op, inputs, (tensor(shape, dtype),), **rest)


def graph(nodes: list[Node], *outputs: Tensor, inputs: tuple[Tensor, ...] = ()) -> Graph:
    return Graph("g", list(inputs), list(outputs), nodes)


def ops(g: Graph) -> list[str]:
    return [n.op for n in g.walk()]


X, Y = tensor(), tensor()

# Dead code


def test_dead_nodes_go_with_what_only_they_use() -> None:
    used = node("Neg", X)
    first = node("Exp", X)
    second = node("Log", first.outputs[0])
    g = drop_dead(graph([first, used, second], used.outputs[0], inputs=(X, Y)))
    assert ops(g) == ["Neg"]
    assert g.inputs == [X, Y]


def test_what_a_body_captures_is_alive() -> None:
    captured, dead = node("Exp", X), node("Log", X)
    inner, inner_dead = node("Neg", captured.outputs[0]), node("Sin", X)
    owner = node("Loop", X, bodies={"body": graph([inner_dead, inner], inner.outputs[0])})
    assert ops(drop_dead(graph([captured, dead, owner], owner.outputs[0]))) == ["Exp", "Loop", "Neg"]


def test_what_a_body_returns_from_outside_is_alive() -> None:
    captured = node("Exp", X)
    owner = node("If", X, bodies={"then": graph([], captured.outputs[0])})
    assert ops(drop_dead(graph([captured, owner], owner.outputs[0]))) == ["Exp", "If"]


def test_what_a_body_two_levels_down_captures_is_alive() -> None:
    captured = node("Exp", X)
    leaf = node("Neg", captured.outputs[0])
    middle = node("If", X, bodies={"then": graph([leaf], leaf.outputs[0])})
    owner = node("Loop", X, bodies={"body": graph([middle], middle.outputs[0])})
    assert ops(drop_dead(graph([captured, owner], owner.outputs[0]))) == ["Exp", "Loop", "If", "Neg"]


def test_a_placeholder_is_never_dropped() -> None:
    assert ops(drop_dead(graph([node(PLACEHOLDER, X, problem="why")], X))) == [PLACEHOLDER]


# Equal nodes


def test_equal_nodes_become_one() -> None:
    one, two = node("Exp", X), node("Exp", X)
    last = node("Add", one.outputs[0], two.outputs[0])
    g = merge_equal(graph([one, two, last], last.outputs[0], two.outputs[0]))
    assert ops(g) == ["Exp", "Add"]
    assert g.nodes[1].inputs == (one.outputs[0], one.outputs[0])
    assert g.outputs[1] is one.outputs[0]


def test_equality_spreads() -> None:
    pairs = [node("Exp", X), node("Exp", X)]
    chains = [node("Neg", p.outputs[0]) for p in pairs]
    assert ops(merge_equal(graph([*pairs, *chains], *(c.outputs[0] for c in chains)))) == ["Exp", "Neg"]


def test_what_differs_stays() -> None:
    different = [
        node("Exp", X),
        node("Log", X),
        node("Exp", Y),
        node("Exp", None),
        node("Exp", X, attrs={"axis": 0}),
        node("Exp", X, attrs={"axis": 1}),
        node("Exp", X, attrs={"axis": 1.0}),
        node("Exp", X, attrs={"axis": True}),
        node("Exp", X, attrs={"data": np.array([0.0])}),
        node("Exp", X, attrs={"data": np.array([-0.0])}),
        node("Exp", X, dtype="int32"),
        node("Exp", X, shape=(3, 2)),
        node("Exp", tensor((), data=np.float32(0.0).reshape(()))),
        node("Exp", tensor((), data=np.float32(-0.0).reshape(()))),
        node("Exp", tensor((), "int32", data=np.int32(0).reshape(()))),
        node("Exp", tensor(weight=Weight("w"))),
        node("Exp", tensor(weight=Weight("w", (("transpose", (1, 0)),)))),
        node("Exp", tensor(weight=Weight("v"))),
    ]
    assert len(merge_equal(graph(different, *(n.outputs[0] for n in different))).nodes) == len(different)


def test_constants_and_weights_are_equal_by_content() -> None:
    pairs = [
        [node("Exp", tensor((), data=np.float32(2).reshape(()))) for _ in range(2)],
        [node("Log", tensor(weight=Weight("w"))) for _ in range(2)],
    ]
    nodes = [n for pair in pairs for n in pair]
    assert ops(merge_equal(graph(nodes, *(n.outputs[0] for n in nodes)))) == ["Exp", "Log"]


def test_bodies_follow_what_was_merged_around_them() -> None:
    one, two = node("Exp", X), node("Exp", X)
    deep = node("Neg", two.outputs[0])
    inner = node("If", two.outputs[0], bodies={"then": graph([deep], deep.outputs[0], two.outputs[0])})
    owner = node("Loop", two.outputs[0], bodies={"body": graph([inner], inner.outputs[0])})
    g = merge_equal(graph([one, two, owner], owner.outputs[0]))
    assert ops(g) == ["Exp", "Loop", "If", "Neg"]
    first = one.outputs[0]
    _, loop = g.nodes
    (branch,) = loop.bodies["body"].nodes
    then = branch.bodies["then"]
    assert loop.inputs == (first,)
    assert branch.inputs == (first,)
    assert then.nodes[0].inputs == (first,)
    assert then.outputs[1] is first


def test_equal_nodes_in_one_body_become_one_and_bodies_are_kept_apart() -> None:
    def body() -> Graph:
        one, two = node("Exp", X), node("Exp", X)
        total = node("Add", one.outputs[0], two.outputs[0])
        return graph([one, two, total], total.outputs[0])

    loops = [node("Loop", X, bodies={"body": body()}) for _ in range(2)]
    g = merge_equal(graph(loops, *(n.outputs[0] for n in loops)))
    assert ops(g) == ["Loop", "Exp", "Add", "Loop", "Exp", "Add"]


def test_placeholders_are_not_merged() -> None:
    nodes = [node(PLACEHOLDER, X, problem="why") for _ in range(2)]
    assert len(merge_equal(graph(nodes, *(n.outputs[0] for n in nodes))).nodes) == 2


# Broadcasts

SKIP = skip_broadcasts("Expand", frozenset({"Add"}))
SMALL = tensor((3,))


def expand(x: Tensor, shape: tuple[int, ...] = SHAPE) -> Node:
    return node("Expand", x, tensor((len(shape),), "int64"), shape=shape)


def test_an_op_that_broadcasts_takes_the_small_operand() -> None:
    wide = expand(SMALL)
    add = node("Add", X, wide.outputs[0])
    g = SKIP(graph([wide, add], add.outputs[0]))
    assert g.nodes[1].inputs == (X, SMALL)
    assert ops(drop_dead(g)) == ["Add"]


def test_a_chain_of_broadcasts_goes_as_a_whole() -> None:
    first = expand(SMALL, (1, 3))
    second = expand(first.outputs[0])
    add = node("Add", second.outputs[0], X)
    assert SKIP(graph([first, second, add], add.outputs[0])).nodes[2].inputs == (SMALL, X)


def test_one_broadcast_stays_where_it_gives_the_shape() -> None:
    one, other = expand(SMALL), expand(SMALL)
    add = node("Add", one.outputs[0], other.outputs[0])
    inputs = SKIP(graph([one, other, add], add.outputs[0])).nodes[2].inputs
    assert inputs == (SMALL, other.outputs[0])


def test_other_ops_keep_their_broadcast() -> None:
    wide = expand(SMALL)
    other = node("Concat", X, wide.outputs[0])
    assert SKIP(graph([wide, other], other.outputs[0])).nodes[1].inputs == (X, wide.outputs[0])


def test_optional_operands_and_bodies() -> None:
    wide = expand(SMALL)
    add = node("Add", X, wide.outputs[0], None)
    owner = node("If", X, bodies={"then": graph([wide, add], add.outputs[0])})
    SKIP(graph([owner], owner.outputs[0]))
    assert owner.bodies["then"].nodes[1].inputs == (X, SMALL, None)
