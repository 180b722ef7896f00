"""Where the ways through a graph lead, against an account that walks every way one by one."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow._spec import EdgeSpec, NodeSpec, Spec

KINDS = ("stage", "stage", "repeat", "group", "merge", "broadcast")


@st.composite
def graphs(draw: st.DrawFn) -> Spec:
    """Any graph without a cycle, sound or not; the first node is a source, as is each that nothing leads to."""
    nodes, edges = [NodeSpec("0", "source", None, None, int)], []
    for index in range(1, draw(st.integers(1, 9))):
        before = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True))
        kind = draw(st.sampled_from(KINDS)) if before else "source"
        nodes.append(NodeSpec(str(index), kind, None, int, int))
        edges += [EdgeSpec(str(source), str(index)) for source in before]
    order = draw(st.permutations(nodes))
    return Spec("g", {}, {node.name: node for node in order}, tuple(edges), {}, ())


def ways_back(spec: Spec, name: str) -> Iterator[list[str]]:
    """Every way from a node to a node that nothing leads to."""
    before = [edge.source for edge in spec.edges if edge.target == name]
    if not before:
        yield [name]
    for source in before:
        for way in ways_back(spec, source):
            yield [name, *way]


def cut(spec: Spec, way: list[str]) -> list[str]:
    """A way up to where its items were repeated: groups and repeats on it match like brackets."""
    open_groups = 0 if spec.nodes[way[0]].kind != "group" else 1
    for index, name in enumerate(way[1:], 1):
        kind = spec.nodes[name].kind
        open_groups += kind == "group"
        if kind == "repeat" and open_groups <= 1:
            return way[: index + 1]
        open_groups -= kind == "repeat"
    return way


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(graphs())
def test_origins_opener_and_path_are_those_of_every_single_way(spec):
    for name in spec.nodes:
        ways = [cut(spec, way) for way in ways_back(spec, name)]
        ends = {way[-1] for way in ways}
        assert set(spec.origins(name)) == ends
        opener = next(iter(ends)) if len(ends) == 1 and ends != {name} else None
        if opener is not None and spec.nodes[opener].kind != "repeat":
            opener = None
        assert spec.opener(name) == opener
        if opener is not None:
            path = spec.path(name)
            assert set(path) == {step for way in ways for step in way}
            assert path[0] == opener
            assert path[-1] == name


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(graphs())
def test_depths_are_the_lengths_of_the_longest_ways(spec):
    assert spec.depths() == {name: max(len(way) for way in ways_back(spec, name)) - 1 for name in spec.nodes}


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(graphs())
def test_ancestors_and_sinks_are_those_of_every_single_way(spec):
    before = {name: {step for way in ways_back(spec, name) for step in way[1:]} for name in spec.nodes}
    assert {name: spec.ancestors(name) for name in spec.nodes} == before
    assert all(spec.sinks_of(name) == set() for name in spec.nodes)
