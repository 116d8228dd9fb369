"""Goal: a chart that any browser opens and that tells the same as the table.
Method: parse it as XML and look at where the bars end.
"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.case import Figure
from bench.chart import LABEL_WIDTH, MISSED, PLOT_WIDTH, REACHED, UNJUDGED, to_svg
from bench.results import Results
from tests.unit.bench.runs import PLAIN, a_case, an_outcome, results_of

SVG = "{http://www.w3.org/2000/svg}"
ONE = LABEL_WIDTH + PLOT_WIDTH * 6 / 8  # two of the eight doublings of the scale lie above 1


def a_run(ratio: float, figure: Figure, *, quick: bool = False) -> Results:
    case = a_case(figure, PLAIN, title="1 KB <fast> & small")
    ours, theirs = {figure.key: ratio, "p50_ms": 1.0}, {figure.key: 1.0, "p50_ms": 1.0}
    return results_of(an_outcome(case, [ours], [theirs]), quick=quick)


def bar_of(svg: str) -> dict[str, str]:
    """All rectangles are the background and one bar per judged figure."""
    _, bar = ElementTree.fromstring(svg).findall(f"{SVG}rect")
    return bar.attrib


@pytest.mark.parametrize(
    ("ratio", "begin", "end"),
    [
        (0.5, LABEL_WIDTH + PLOT_WIDTH * 5 / 8, ONE),
        (2.0, ONE, LABEL_WIDTH + PLOT_WIDTH * 7 / 8),
        (0.0, float(LABEL_WIDTH), ONE),
        (float("inf"), ONE, float(LABEL_WIDTH + PLOT_WIDTH)),
    ],
    ids=["half", "twice", "nothing", "endless"],
)
def test_a_bar_goes_from_one_to_the_ratio(ratio: float, begin: float, end: float) -> None:
    bar = bar_of(to_svg(a_run(ratio, Figure("x", "x", "s", at_most=1.0))))
    assert float(bar["x"]) == pytest.approx(begin, abs=0.1)
    assert float(bar["x"]) + float(bar["width"]) == pytest.approx(end, abs=0.2)


def test_colours_are_the_verdict() -> None:
    figure = Figure("x", "x", "s", at_most=0.5)
    assert bar_of(to_svg(a_run(0.4, figure)))["fill"] == REACHED
    assert bar_of(to_svg(a_run(0.6, figure)))["fill"] == MISSED
    assert bar_of(to_svg(a_run(0.6, figure, quick=True)))["fill"] == UNJUDGED


def test_titles_are_escaped_and_figures_without_target_are_left_out() -> None:
    root = ElementTree.fromstring(to_svg(a_run(1.0, Figure("x", "memory", "MB", at_most=1.0))))
    texts = [element.text or "" for element in root.findall(f"{SVG}text")]
    assert "1 KB <fast> & small: memory" in texts
    assert not any("p50" in text for text in texts)
