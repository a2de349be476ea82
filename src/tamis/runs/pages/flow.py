"""The flow of a run as a picture: a row for each stage, lines from stage to stage, branches with their names.

The lines are drawn as ``git log --graph`` draws history: a stage is on the leftmost line that leads to it, each further
port begins a line of its own, and lines that meet in one stage end there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.html import escaped
from tamis.stages.emit import DROPPED, MAIN

_LANE: Final = 18
_MINUS: Final = "\N{MINUS SIGN}"
_SHOWN_PARAMETER: Final = 300


@dataclass(frozen=True)
class Edge:
    """A line from one stage to another, by their numbers, and the port it begins at."""

    origin: int
    target: int
    port: str


@dataclass
class FlowRow:
    """How the row of one stage is drawn.

    Args:
        lane: The line that the stage is on, from the left.
        passing: Lines that pass by, each with its kind.
        entering: Lines that end in the stage, each with its kind.
        leaving: Lines that begin in the stage, each with its kind.
        ports: The names of the branches that lead here.
    """

    lane: int
    passing: list[tuple[int, str]] = field(default_factory=list)
    entering: list[tuple[int, str]] = field(default_factory=list)
    leaving: list[tuple[int, str]] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)


def edges_of(vertices: Sequence[Mapping[str, Any]]) -> list[Edge]:
    """The lines between the stages that are shown; those through internal stages are joined.

    >>> inside = {"name": "b", "internal": True, "edges": {"out": 2}}
    >>> edges_of([{"name": "a", "edges": {"out": 1}}, inside, {"name": "c", "edges": {"out": -1}}])
    [Edge(origin=0, target=2, port='out')]
    """
    found = []
    for number, vertex in enumerate(vertices):
        if vertex.get("internal"):
            continue
        for port, target in sorted(vertex["edges"].items(), key=lambda edge: edge[0] != MAIN):
            found += [Edge(number, end, str(port)) for end in _shown_targets(vertices, target, number)]
    return list(dict.fromkeys(found))


def _shown_targets(vertices: Sequence[Mapping[str, Any]], target: int, origin: int) -> Iterator[int]:
    """Where a line ends; lines only lead down, so that a damaged plan cannot make a circle."""
    if not origin < target < len(vertices):
        return
    if not vertices[target].get("internal"):
        yield target
        return
    for further in dict.fromkeys(vertices[target]["edges"].values()):
        yield from _shown_targets(vertices, further, target)


def layout(count: int, shown: Sequence[int], edges: Sequence[Edge]) -> list[FlowRow]:
    """The rows of the stages that are shown.

    Args:
        count: The number of stages.
        shown: The numbers of those that are shown, ascending.
        edges: The lines between them.

    >>> [row.lane for row in layout(3, [0, 1, 2], [Edge(0, 1, "out"), Edge(0, 2, "dropped")])]
    [0, 0, 1]
    """
    lanes: list[Edge | None] = []  # the line that is on each lane now
    rows = []
    for number in shown:
        coming = [lane for lane, edge in enumerate(lanes) if edge is not None and edge.target == number]
        lane = coming[0] if coming else _free_lane(lanes)
        row = FlowRow(lane)
        for other, edge in enumerate(lanes):
            if edge is not None:
                (row.entering if other in coming else row.passing).append((other, _kind(edge)))
        row.ports = list(dict.fromkeys(e.port for i in coming if (e := lanes[i]) is not None and e.port != MAIN))
        for other in coming:
            lanes[other] = None
        lanes[lane] = None
        for place, edge in enumerate(e for e in edges if e.origin == number):
            at = lane if place == 0 else _free_lane(lanes, after=lane)
            lanes[at] = edge
            row.leaving.append((at, _kind(edge)))
        rows.append(row)
    return rows


def _free_lane(lanes: list[Edge | None], after: int = -1) -> int:
    for lane in range(after + 1, len(lanes)):
        if lanes[lane] is None:
            return lane
    lanes.append(None)
    return len(lanes) - 1


def _kind(edge: Edge) -> str:
    return "side" if edge.port == DROPPED else ""


def flow_picture(steps: Sequence[Step], outline: Mapping[str, Any]) -> str:
    """The picture; without a plan, one stage after the other in the order of the counts."""
    by_name = {step.stage.name: step for step in steps}
    vertices: Sequence[Mapping[str, Any]] = outline.get("vertices") or [
        {"name": step.stage.name, "edges": {MAIN: number + 1}, "parameters": {}} for number, step in enumerate(steps)
    ]
    shown = [number for number, vertex in enumerate(vertices) if not vertex.get("internal")]
    if not shown:
        return ""
    rows = layout(len(vertices), shown, edges_of(vertices))
    lanes = 1 + max((lane for row in rows for lane in (row.lane, *_lanes(row))), default=0)
    most = max((step.before for step in steps if step.counts_rows), default=0)
    groups = outline.get("groups") or []
    items = []
    for number, row in zip(shown, rows, strict=True):
        vertex = vertices[number]
        items.append(_item(vertex, row, lanes, by_name.get(vertex["name"]), most, groups))
    heads = (
        f'<li class="row heads" aria-hidden="true">{_lanes_picture(None, lanes)}<span>Stage</span><span>Rows</span>'
        '<span class="figure">Rows out</span><span class="figure">Lost</span><span class="figure">Kept</span></li>'
    )
    return f'<ol class="flow" aria-label="The stages, in order">{heads}{"".join(items)}</ol>'


def _lanes(row: FlowRow) -> list[int]:
    return [lane for lane, _ in (*row.passing, *row.entering, *row.leaving)]


def _item(
    vertex: Mapping[str, Any],
    row: FlowRow,
    lanes: int,
    step: Step | None,
    most: int,
    groups: Sequence[Mapping[str, Any]],
) -> str:
    name = vertex["name"]
    own = name.rpartition(" / ")[2] if " / " in name else name
    ports = "".join(f'<span class="port">{escaped(port, 60)}</span>' for port in row.ports)
    figure_cells = '<span></span><span class="figure"></span><span class="figure"></span><span class="figure"></span>'
    if step is not None:
        lost = f"{_MINUS}{figures.number(step.lost)}<small> lost</small>" if step.lost else ""
        share = figures.percent(step.kept_share)
        bar = ""
        if step.counts_rows and most:
            bar = f'<span class="track">{_two_bars(step.before / most, step.after / most)}</span>'
        figure_cells = (
            f'{bar or "<span></span>"}<span class="figure">{escaped(step.shown_after)}<small> rows</small></span>'
            f'<span class="figure loss">{lost}</span><span class="figure">{escaped(share)}<small> kept</small></span>'
        )
    more = _more(vertex, step, groups)
    title = f'<b title="{escaped(name)}">{escaped(own)}</b>' if more else escaped(own)
    cells = f'{_lanes_picture(row, lanes)}<span class="stage">{ports}{title}</span>{figure_cells}'
    if not more:
        return f'<li><div class="row">{cells}</div></li>'
    details = f'<details data-key="{escaped(name)}"><summary class="row">{cells}</summary>'
    return f'<li>{details}<div class="more">{more}</div></details></li>'


def _two_bars(before: float, after: float) -> str:
    """Rows that came in, and in front of them those that are left."""
    return (
        f'<svg class="fill" aria-hidden="true"><rect class="gone" width="{100 * before:.2f}%" height="100%" rx="2"/>'
        f'<rect width="{100 * after:.2f}%" height="100%" rx="2"/></svg>'
    )


def _more(vertex: Mapping[str, Any], step: Step | None, groups: Sequence[Mapping[str, Any]]) -> str:
    """What is folded away: class, parameters, where it runs, what it counted itself."""
    facts = {"Stage": vertex["name"]} if " / " in vertex["name"] else {}
    if vertex.get("stage"):
        facts["Class"] = f"{vertex.get('module', '')}.{vertex['stage']}".lstrip(".")
    group = vertex.get("group")
    if isinstance(group, int) and 0 <= group < len(groups):
        with_it = [name for name in groups[group].get("stages", ()) if name != vertex["name"]]
        facts["Runs on"] = str(groups[group].get("runs", ""))
        if with_it:
            facts["Together with"] = ", ".join(map(str, with_it))
    for name, value in vertex["parameters"].items():
        facts[str(name)] = str(value)
    for name, number in (step.stage.custom if step else {}).items():
        facts[name] = figures.shown_score(number)
    shown = "".join(
        f"<dt>{escaped(name, 100)}</dt><dd>{escaped(value, _SHOWN_PARAMETER)}</dd>"
        for name, value in facts.items()
        if value
    )
    return f'<dl class="facts">{shown}</dl>' if shown else ""


def _lanes_picture(row: FlowRow | None, lanes: int) -> str:
    width = lanes * _LANE
    spacer = f'<svg width="{width}" height="1"></svg>'  # as wide as the lines, which are as tall as the row
    if row is None:
        return f'<span class="lanes" aria-hidden="true">{spacer}</span>'
    x = _x(row.lane)
    parts = [_line(kind, f"M{_x(lane)} 0 V100") for lane, kind in row.passing]
    parts += [_line(kind, _curve(_x(lane), 0, x, 50)) for lane, kind in row.entering]
    parts += [_line(kind, _curve(x, 50, _x(lane), 100)) for lane, kind in row.leaving]
    parts.append(f'<path class="dot" d="M{x} 50 h.01"/>')
    lines = f'<svg class="lines" width="{width}" viewBox="0 0 {width} 100" preserveAspectRatio="none">'
    return f'<span class="lanes" aria-hidden="true">{spacer}{lines}{"".join(parts)}</svg></span>'


def _x(lane: int) -> float:
    return lane * _LANE + _LANE / 2


def _line(kind: str, path: str) -> str:
    return f'<path class="{kind}" d="{path}"/>' if kind else f'<path d="{path}"/>'


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if x == to_x:
        return f"M{x} {y} V{to_y}"
    middle = (y + to_y) / 2
    return f"M{x} {y} C{x} {middle} {to_x} {middle} {to_x} {to_y}"
