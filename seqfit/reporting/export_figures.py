"""Charts as files for papers: the sections of a page come in, SVG, PNG and one PDF go out.

A headless browser opens the page and draws each chart as the page does, in light colours on white. It needs Chromium or
Chrome and no Python package.

    figures/loss.svg  loss.png  loss-minutes.svg  loss-minutes.png  ...   a chart, over each of its x axes
    figures/figures.pdf                                                   all of them, one per page, as vectors
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqfit.errors import RunError, SeqfitError
from seqfit.reporting.html import Html, render_page
from seqfit.system import is_root

BROWSER = "SEQFIT_BROWSER"
PDF = "figures.pdf"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_ON_MACS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_MOST_SECONDS = 180
_DRAWING_MILLISECONDS = 120_000  # virtual time of the page, which stands still while it computes
_HANDED_OVER = re.compile(r'<script id="(pictures|failure)"[^>]*>(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Picture:
    name: str
    svg: str
    png: bytes
    width: int
    height: int


def export_figures(title: str, parts: Sequence[Html], folder: Path) -> list[Path]:
    """Write every chart of a page into the folder; returns the files."""
    browser = find_browser()
    with tempfile.TemporaryDirectory(prefix="seqfit-figures-") as scratch:
        pictures = draw_pictures(render_page(title, parts, use="export"), browser, Path(scratch))
        if not pictures:
            raise RunError(
                f"'{title}' has no charts",
                "charts need records of steps, evaluations or telemetry",
                "Wait until the run has written some, or omit --figures",
            )
        pdf = _print_pictures(pictures, browser, Path(scratch))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = []
            for picture in pictures:
                for suffix, content in (("svg", picture.svg.encode()), ("png", picture.png)):
                    written.append(folder / f"{picture.name}.{suffix}")
                    written[-1].write_bytes(content)
            (folder / PDF).write_bytes(pdf)
            return [*written, folder / PDF]
        except OSError as error:
            raise RunError(
                f"'{folder}' can't be written to ({error.strerror})",
                "charts are written into a folder, which is created if missing",
                "Choose another with --figures",
            ) from error


def find_browser() -> str:
    """$SEQFIT_BROWSER, else the first of the usual programs."""
    named = os.environ.get(BROWSER)
    candidates = [named] if named else [*_PROGRAMS, _ON_MACS]
    found = next((path for name in candidates if (path := shutil.which(name))), None)
    if found is None:
        raise SeqfitError(
            f"{BROWSER} is '{named}', which is no program here" if named else "no Chromium or Chrome was found",
            "charts are drawn by the script of the page, which needs a browser",
            f"Install one (apt install chromium), or set {BROWSER} to yours; the PNG and SVG buttons of the page work "
            "without it",
        )
    return found


def draw_pictures(page: str, browser: str, scratch: Path) -> list[Picture]:
    """The charts of a page that is made for export, each under a unique name."""
    (scratch / "charts.html").write_text(page, "utf-8", errors="backslashreplace")
    options = [f"--virtual-time-budget={_DRAWING_MILLISECONDS}", "--dump-dom"]
    document = _run_browser(browser, options, scratch / "charts.html")
    found = _HANDED_OVER.search(document)
    if found is None or found[1] == "failure":
        raise _browser_failure(browser, json.loads(found[2]) if found else "it returned no charts")
    pictures: list[Picture] = []
    taken = Counter[str]()  # two charts named loss become loss and loss-2
    for one in json.loads(found[2]):
        taken[one["name"]] += 1
        name = one["name"] if taken[one["name"]] == 1 else f"{one['name']}-{taken[one['name']]}"
        png = base64.b64decode(one["png"].partition(",")[2])
        pictures.append(Picture(name, one["svg"], png, one["width"], one["height"]))
    return pictures


def _print_pictures(pictures: Sequence[Picture], browser: str, scratch: Path) -> bytes:
    """One PDF; each page has the size of its chart."""
    styles, shown = [], []
    for number, picture in enumerate(pictures):
        encoded = base64.b64encode(picture.svg.encode()).decode()
        styles.append(f"@page p{number} {{ size: {picture.width}px {picture.height}px; margin: 0 }}")
        style = f"page: p{number}; height: {picture.height}px; overflow: hidden"
        shown.append(f'<div style="{style}"><img src="data:image/svg+xml;base64,{encoded}"></div>')
    document = f"<!doctype html><style>body {{ margin: 0 }} {' '.join(styles)}</style>{''.join(shown)}"
    (scratch / "print.html").write_text(document, "utf-8")
    _run_browser(browser, ["--no-pdf-header-footer", f"--print-to-pdf={scratch / PDF}"], scratch / "print.html")
    if not (scratch / PDF).is_file():
        raise _browser_failure(browser, "it printed nothing")
    return (scratch / PDF).read_bytes()


def _run_browser(browser: str, options: Sequence[str], page: Path) -> str:
    """Its output; it has its own profile and leaves nothing behind."""
    as_root = ["--no-sandbox"] if is_root() else []  # Chromium refuses to run as root with one
    command = [browser, *_OPTIONS, *as_root, f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=_MOST_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise _browser_failure(browser, f"it took more than {_MOST_SECONDS} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise _browser_failure(browser, said[-1]) from error
    return done.stdout


def _browser_failure(browser: str, why: str) -> SeqfitError:
    return SeqfitError(
        f"'{browser}' could not draw the charts ({why})",
        "charts are drawn by a browser",
        f"Set {BROWSER} to another Chromium or Chrome, or save charts with the buttons of the page",
    )
