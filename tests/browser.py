"""JupyterLab in a real browser, on a copy of the course, and with nothing but loopback in reach.

python tests/browser.py NOTEBOOK… FOLDER    # run all cells of each; pictures of every page of it
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.clean import clean_environment  # noqa: E402

PAGE = {"width": 1200, "height": 1600}
OVERLAP = 60  # pixels that two pictures share, so that a cut line is whole in one of them
RUN_SECONDS = 120
SETTINGS = {  # no pop-ups, and every cell is drawn whether in view or not
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
IDLE = "#jp-main-statusbar >> text=/Python 3.*Idle/"  # a kernel, and one with nothing to do
PROMPTS = "[...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')]"


def executable() -> str | None:
    """Path of the browser on this machine."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(notebooks: list[Path]):
    """JupyterLab over copies of ``notebooks``, without outputs; yields ``url(view=, name=)``."""
    port, token = free_port(), secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="trimul-browser-") as home:
        work, settings = Path(home, "course", "notebooks"), Path(home, "settings")
        work.mkdir(parents=True)
        settings.mkdir()
        (work.parent / "assets").symlink_to(ROOT / "assets")
        (settings / "overrides.json").write_text(json.dumps(SETTINGS))
        for path in notebooks:
            copy_without_outputs(path, work / path.name)
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={token}"),
            *(f"--ServerApp.root_dir={work.parent}", f"--LabApp.app_settings_dir={settings}"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        env = clean_environment(home) | {"JUPYTER_DATA_DIR": f"{home}/data"}
        with open(Path(home, "log"), "w+") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
            try:
                answer(f"http://127.0.0.1:{port}/api?token={token}", process, log)
                yield f"http://127.0.0.1:{port}/{{view}}/tree/notebooks/{{name}}?token={token}&reset".format
            finally:
                process.terminate()  # it shuts its kernels down first
                process.wait(60)


def copy_without_outputs(source: Path, target: Path) -> None:
    """What is seen afterwards was made in the browser."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, target)


def answer(url: str, process, log) -> None:
    """Wait until the server answers; RuntimeError with its log if it does not."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(url, timeout=1).close()
        if process.poll() is not None:
            break
        time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read()[-2000:]}")


@contextlib.contextmanager
def page():
    """A browser page; ``page.strangers`` lists requests that went beyond this machine (refused)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=QUIET)
        tab = browser.new_page(viewport=PAGE)
        tab.set_default_timeout(60_000)
        tab.strangers = []

        def local_only(route, request):
            if request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
                return route.continue_()
            tab.strangers.append(request.url)
            return route.abort()

        tab.route("**/*", local_only)
        try:
            yield tab
        finally:
            browser.close()


def open_notebook(tab, url: str) -> None:
    """Open a notebook and wait until its kernel is idle."""
    tab.goto(url, wait_until="commit")
    tab.wait_for_selector(".jp-Notebook .jp-CodeCell")
    tab.wait_for_selector(IDLE)


def run_all(tab) -> None:
    """Run all cells and wait until none is waiting; TimeoutError after RUN_SECONDS."""
    tab.click(".lm-MenuBar-itemLabel:text-is('Run'), .jp-MenuBar >> text='Run'")
    tab.click("li[data-command='runmenu:run-all']")
    settle(tab)


def settle(tab) -> None:
    """Wait until something has run and nothing is waiting to."""
    limit = RUN_SECONDS * 1000
    tab.wait_for_function(f"{PROMPTS}.some(p => /\\[[*\\d]/.test(p.textContent))", timeout=limit)
    tab.wait_for_function(f"!{PROMPTS}.some(p => p.textContent.includes('*'))", timeout=limit)
    tab.wait_for_selector(IDLE, timeout=limit)
    tab.wait_for_timeout(500)  # the last outputs, and mathematics, are drawn after the kernel rests


def errors(tab) -> list[str]:
    """The text of every error, and of all that was written to stderr, shown under a cell."""
    kind = "application/vnd.jupyter.stderr"  # JupyterLab draws errors as such
    return tab.locator(f".jp-OutputArea-output[data-mime-type='{kind}']").all_inner_texts()


def pictures(tab) -> list[dict]:
    """Width and height, in pixels as drawn, of every picture under a cell."""
    return tab.evaluate(
        "[...document.querySelectorAll('.jp-OutputArea img')].map(i => ({"
        "width: i.complete && i.naturalWidth ? i.clientWidth : 0, height: i.clientHeight}))"
    )


def shoot(tab, folder: Path, stem: str) -> list[Path]:
    """Pictures of the whole notebook from top to bottom, one per screen; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    outer = "document.querySelector('.jp-WindowedPanel-outer')"
    end = "[...document.querySelectorAll('.jp-Notebook .jp-Cell')].at(-1).getBoundingClientRect()"
    tab.evaluate(f"{outer}.scrollTop = 0")
    tab.wait_for_timeout(300)  # until what lies above is drawn, and the cells are where they stay
    top = f"{outer}.getBoundingClientRect().top"
    screen, height = tab.evaluate(f"[{outer}.clientHeight, {end}.bottom - {top}]")
    paths = []
    for number, top in enumerate(range(0, int(height) - OVERLAP, screen - OVERLAP), start=1):
        tab.evaluate(f"{outer}.scrollTop = {top}")
        tab.wait_for_timeout(200)
        paths.append(folder / f"{stem}-{number:02}.png")
        tab.screenshot(path=paths[-1])
    return paths


def screenshots(notebook: Path, folder: Path) -> list[Path]:
    """Run all cells of a notebook in the browser; pictures of every page of it, in order."""
    with server([notebook]) as url, page() as tab:
        open_notebook(tab, url(view="doc", name=notebook.name))
        run_all(tab)
        for text in errors(tab):
            print(f"{notebook.name}: {text.strip().splitlines()[-1]}")
        return shoot(tab, folder, notebook.stem)


def main(arguments: list[str]) -> int:
    *notebooks, folder = arguments
    if not notebooks or not executable():
        print(__doc__ if executable() else "no browser: apt-get install chromium fonts-dejavu-core")
        return 2
    for notebook in notebooks:
        for path in screenshots(Path(notebook), Path(folder)):
            print(os.path.relpath(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
