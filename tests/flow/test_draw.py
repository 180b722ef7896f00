"""Pictures of graphs that branch and join; a plain line is drawn in test_graph."""

from pathlib import Path

from flow import Collect, Context, Drop, Emit, Fail, Freshness, Graph, Items, Processes, Retry

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


def test_what_happens_to_failed_items_is_shown_where_it_is_not_that_the_run_ends():
    graph = Graph("g")
    a = graph.source("a", [1])
    tried = graph.stage("tried", number, on_error=Retry(2, then=Drop()))
    again = graph.stage("again", number, on_error=Retry(1))
    marked = graph.stage("marked", number, on_error=Emit(lambda value, failure, context: value))
    plain = graph.stage("plain", number, on_error=Fail())
    routed = graph.route("routed", plain, by=kind, to={"math": graph.sink("end", show, on_error=Drop())}, on_error=Drop())
    _ = a >> tried >> again >> marked >> plain >> routed
    nodes = [line.strip() for line in graph.draw().splitlines() if line.lstrip().startswith("[")]
    assert nodes == [
        "[a]  source, list",
        "[tried]  stage, number, on error: retry 2, then drop",
        "[again]  stage, number, on error: retry 1, then fail",
        "[marked]  stage, number, on error: emit a lambda",
        "[plain]  stage, number",
        "[routed]  route, by kind, on error: drop",
        "[end]  sink, show, on error: drop",
    ]


def test_a_bound_on_staleness_is_shown_whole():
    def bound(freshness: Freshness) -> str:
        graph = Graph("g")
        sink = graph.sink("sink", object(), collect=Collect(1))  # type: ignore[call-overload]
        graph.feedback(sink, graph.latest("w", int), initial=0, freshness=freshness)
        (line,) = [line.strip() for line in graph.draw().splitlines() if "^" in line]
        return line

    assert bound(Freshness(2)) == "^  (w: int, max_lag=2) back to nobody"
    assert bound(Freshness(3, "drop", 1)) == "^  (w: int, max_lag=3, depth=1, late dropped) back to nobody"


def test_a_durable_edge_is_shown_as_such():
    graph = Graph("g")
    a, b, c = graph.source("a", [1]), graph.stage("b", number), graph.sink("c", show)
    _ = a >> b >> c
    graph.edge(b, c, durable=True)
    graph.edge(b, c, capacity=Items(3))
    assert "     |  int  at most 3  durable" in graph.draw().splitlines()
