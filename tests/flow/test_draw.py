"""Pictures of graphs that branch and join; a plain line is drawn in test_graph."""

from pathlib import Path

from flow import Context, Graph, Items, Processes

GOLDEN = Path(__file__).parents[1] / "golden"


def number(value: int, context: Context) -> int:
    return value


def show(value: int, context: Context) -> None:
    """Shows nothing."""


def kind(value: int) -> str:
    return "math"


def branching() -> Graph:
    graph = Graph("branching", pools={"engine": (1, 8), "sandbox": 4}, rates={"search": 2.5})
    tasks, others = graph.source("tasks", [1]), graph.source("others", [2])
    math = graph.stage("math", number, workers=2, needs={"engine": 1, "search": 1})
    code, checked = graph.stage("code", number, key=kind, placement=Processes()), graph.stage("checked", number)
    kinds = graph.route("kinds", tasks, by=kind, to={"math": math, "code": code, "else": code})
    copies = graph.broadcast("copies", checked)
    shares = graph.balance("shares", copies)
    answers = graph.merge("answers", [math, copies, others], weights={"math": 2})
    _ = tasks >> kinds
    _ = code >> checked >> copies >> shares >> graph.sink("first", show)
    _ = shares >> graph.sink("second", show)
    _ = answers >> graph.sink("end", show)
    graph.edge(copies, answers, capacity=Items(3))
    return graph


def test_branches_are_indented_and_a_merge_stands_where_its_last_input_ends():
    assert branching().draw() == (GOLDEN / "draw_branching.txt").read_text().rstrip("\n")


def test_a_line_goes_on_behind_the_branches_that_meet_again():
    graph = Graph("g")
    a = graph.source("a", [1])
    copies, left, right = graph.broadcast("copies", a), graph.stage("left", number), graph.stage("right", number)
    joined = graph.merge("joined", [left, right])
    _ = a >> copies >> left
    _ = copies >> right
    _ = joined >> graph.sink("end", show)
    assert graph.draw().splitlines() == [
        "graph g",
        "  [a]  source, list",
        "     |  int",
        "  [copies]  broadcast",
        "     +-- int",
        "     |    [left]  stage, number",
        "     |       |  int",
        "     |       +-> [joined]",
        "     +-- int",
        "          [right]  stage, number",
        "             |  int",
        "             +-> [joined]",
        "  [joined]  merge",
        "     |  int",
        "  [end]  sink, show",
    ]


def test_a_merge_with_an_input_from_nowhere_is_drawn_all_the_same():
    """A graph that cannot be built is looked at most."""
    graph = Graph("g")
    joined = graph.merge("joined", [graph.source("a", [1]), graph.stage("b", number)])
    back = graph.stage("back", number)
    _ = joined >> back >> graph.route("again", back, by=lambda value: value, to={1: joined})
    assert graph.draw().splitlines() == [
        "graph g",
        "  [a]  source, list",
        "     |  int",
        "     +-> [joined]",
        "  [b]  stage, number",
        "     |  int",
        "     +-> [joined]",
        "  [joined]  merge",
        "     |  int",
        "  [back]  stage, number",
        "     |  int",
        "  [again]  route, by a lambda",
        "     |  int",
        "     +-> [joined]",
    ]
