"""The page of `explain` in a real browser: on phones and wide screens, light and dark, by mouse and by keyboard."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import onnx
import pytest

from redpebble.models import zoo
from redpebble.models.exports.stored import stored_export
from redpebble.options import Options
from redpebble.runtime.jit import host_target
from redpebble.tools.explain.explanation import ExplainRequest
from redpebble.tools.explain.saved_orders import SearchBudget
from redpebble.tools.explain.serving.server import WorkbenchServer
from redpebble.tools.explain.serving.workbench import Workbench
from redpebble.tools.explain_commands import ExplainOutput, explain_and_print
from redpebble.tuning.measure_kernels import Tuning
from tests.browser import CHROMIUM, Browser, chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

WIDTHS = (390, 820, 1440)
LOWEST_CONTRAST = 4.5
"""Ratio that WCAG asks for between a text and what is behind it."""

CONTRASTS = """
(() => {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!color.startsWith('rgba(0, 0, 0, 0')) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  return [...document.querySelectorAll('h1,h2,h3,p,dt,dd,th,td,li span,a,label,text,small,summary,figcaption')]
    .filter(element => element.getClientRects().length && element.textContent.trim())
    .map(element => {
      const style = getComputedStyle(element);
      const ink = element instanceof SVGElement ? style.fill : style.color;
      return [element.tagName + '.' + element.getAttribute('class'), ratio(light(ink), light(paper(element)))];
    });
})()
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, spec in (("mlp", "ffnn(depth=3, width=64, density=0.1)"), ("dense", "ffnn(width=64, density=1.0)")):
        zoo.save(zoo.build(spec), folder / f"{name}.onnx")
    models = {
        "bert": stored_export("bert.classic"),
        "nothing": onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> agraph (float[N, 4] x) => (float[N, 4] y) { y = Softmax (x) }'
        ),
    }
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    for path in folder.glob("*.onnx"):
        request = ExplainRequest(64, 1, SearchBudget(proposals=500))
        explain_and_print(path, request, Options(), ExplainOutput(path.with_suffix(".html")))
    return {path.stem: path for path in folder.glob("*.html")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["mlp", "dense", "bert", "nothing"])
def test_a_page_fits_its_screen_can_be_read_and_asks_for_nothing(
    name: str, width: int, theme: str, pages: dict[str, Path], browser: Browser
) -> None:
    browser.open(pages[name], width, theme)
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert {address.partition(":")[0] for address in browser.requests} <= {"file", "data"}
    assert not browser.faults
    shown = browser.evaluate(
        "[...document.querySelectorAll('svg.wide,svg.narrow')].filter(s => s.getClientRects().length).length"
    )
    drawn = browser.evaluate("document.querySelectorAll('svg.wide,svg.narrow').length")
    # of each chart the shape for this screen; charts of the other batch are hidden as well
    assert 0 < shown < drawn or not drawn
    contrasts = browser.evaluate(CONTRASTS)
    assert not [(what, ratio) for what, ratio in contrasts if ratio < LOWEST_CONTRAST]


def panels(browser: Browser) -> list[int]:
    """Return the levels that are shown."""
    shown = "[...document.querySelectorAll('.panel')].map((p, i) => p.hidden ? -1 : i).filter(i => i >= 0)"
    return browser.evaluate(shown)


def test_the_slider_and_the_bars_show_one_level(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["mlp"], 820)
    count = browser.evaluate("document.querySelectorAll('.panel').length")
    assert count >= 3
    assert panels(browser) == [count - 1]
    browser.evaluate("document.getElementById('level').focus()")
    browser.press("ArrowLeft", 37)
    assert panels(browser) == [count - 2]
    browser.press("Home", 36)
    assert panels(browser) == [0]
    assert browser.evaluate("document.getElementById('level').getAttribute('aria-valuetext')") == "import"
    browser.evaluate("[...document.querySelectorAll('.of-64 .levels button')][1].focus()")
    browser.press("Enter", 13)
    browser.call("Input.dispatchKeyEvent", type="char", text="\r")
    assert panels(browser) == [1]
    browser.evaluate("[...document.querySelectorAll('.of-64 .levels button')][2].click()")
    assert panels(browser) == [2]
    assert browser.evaluate("document.getElementById('level').value") == "2"


def test_the_batch_is_chosen_for_the_whole_page(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["mlp"], 1440)
    visible = "[...document.querySelectorAll('.of-{}')].filter(e => e.getClientRects().length).length"
    assert browser.evaluate(visible.format(64)) > browser.evaluate(visible.format(1)) == 0
    browser.evaluate("document.getElementById('batch-64').focus()")
    browser.press("ArrowLeft", 37)
    assert browser.evaluate(visible.format(1)) > browser.evaluate(visible.format(64)) == 0


def test_the_bars_are_as_long_as_the_bytes_that_stand_beside_them(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["mlp"], 1440)
    widths = browser.evaluate(
        "[...document.querySelectorAll('.of-64 .levels .track')].map(t => "
        "[...t.querySelectorAll('.weights,.values')].reduce((sum, bar) => sum + bar.getBoundingClientRect().width, 0))"
    )
    assert widths[0] == max(widths) > 2 * widths[-1] > 0


def test_without_a_script_all_levels_are_shown(pages: dict[str, Path], browser: Browser) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["mlp"], 820)
        document = browser.call("DOM.getDocument")["root"]["nodeId"]
        hidden = browser.call("DOM.querySelectorAll", nodeId=document, selector=".panel[hidden]")["nodeIds"]
        assert not hidden
        assert browser.call("DOM.querySelectorAll", nodeId=document, selector=".panel")["nodeIds"]
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_the_workbench_is_used_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    zoo.save(zoo.build("ffnn(depth=2, width=64, density=0.1)"), path)
    server = WorkbenchServer(Workbench(path, Tuning.predicted(host_target(), None)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        for width, theme in ((390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")):
            browser.open(server.url, width, theme)
            assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            assert not [(what, ratio) for what, ratio in browser.evaluate(CONTRASTS) if ratio < LOWEST_CONTRAST]
            assert not browser.faults
            assert {address for address in browser.requests if "favicon" not in address} == {server.url}
        browser.evaluate("document.querySelector('input[value=pebble-reorder-neurons]').click()")
        browser.evaluate("document.querySelector('.kernels select').value = 'dense_outputs'")
        browser.evaluate("document.querySelector('input[name=batch]').value = '32'")
        browser.submit("document.querySelector('button[value=apply]').click()")
        assert browser.evaluate("document.querySelector('input[name=batch]').value") == "32"
        assert not browser.evaluate("document.querySelector('input[value=pebble-reorder-neurons]').checked")
        # what was chosen for tiles of 64 is kept, though a batch of 32 has none
        assert "dense_outputs from 64" in browser.evaluate("document.querySelector('#save').textContent")
        browser.evaluate("document.querySelector('input[name=batch]').removeAttribute('max')")
        browser.evaluate("document.querySelector('input[name=batch]').value = '99999'")
        browser.submit("document.querySelector('button[value=apply]').click()")
        assert (
            browser.evaluate("document.querySelector('.fault').textContent") == "batch: expected 1 to 4096, got 99999"
        )
        browser.submit("document.querySelector('button[value=reset]').click()")
        assert "Nothing was chosen" in browser.evaluate("document.querySelector('#save').textContent")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
