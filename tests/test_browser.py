"""A newcomer's first minutes in JupyterLab, in a real browser."""

import importlib.util
import os

import browser
import pytest

NOTEBOOKS = sorted((browser.ROOT / "notebooks").glob("*.ipynb"))
BUILD = browser.ROOT / "build" / "browser"


def missing() -> str:
    """Why there is no browser here, or ""."""
    if importlib.util.find_spec("playwright") is None:
        return "needs playwright: make env"
    if browser.executable() is None:
        return "needs a browser: apt-get install chromium fonts-dejavu-core"
    return "" if NOTEBOOKS else "there are no lessons yet"


@pytest.fixture(scope="module")
def url():
    if why := missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    with browser.server(NOTEBOOKS) as address:
        yield address


@pytest.fixture
def tab(url):
    with browser.page() as tab:
        yield tab
        assert tab.strangers == []


def test_the_first_lesson_runs_from_top_to_bottom(url, tab):
    browser.open_notebook(tab, url(view="lab", name=NOTEBOOKS[0].name))
    browser.run_all(tab)
    assert browser.errors(tab) == []
    numbered = tab.evaluate(f"{browser.PROMPTS}.filter(p => /\\d/.test(p.textContent)).length")
    assert numbered == tab.locator(".jp-Notebook .jp-CodeCell").count()
    sizes = browser.pictures(tab)
    assert sizes and all(size["width"] > 200 and size["height"] > 50 for size in sizes), sizes
    assert all(path.stat().st_size > 20_000 for path in browser.shoot(tab, BUILD, "first-lesson"))


def test_a_reader_edits_a_cell_and_runs_it(url, tab):
    browser.open_notebook(tab, url(view="lab", name=NOTEBOOKS[-1].name))
    cell = tab.locator(".jp-Notebook .jp-CodeCell").first
    cell.locator(".cm-content").click()
    tab.keyboard.press("ControlOrMeta+a")
    tab.keyboard.type("import trimul; print(6 * 7, trimul.__name__)")
    tab.keyboard.press("Shift+Enter")
    browser.settle(tab)
    assert cell.locator(".jp-OutputArea-output").all_inner_texts() == ["42 trimul\n"]
