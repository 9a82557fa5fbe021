# SPDX-License-Identifier: Apache-2.0
"""The scene in Debian's Chromium: it follows, the slider chooses, and nobody gets in without the token."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from PIL import Image

import forebay
from tests.viz.conftest import field
from tests.viz.test_view import SCENE, scene_file

pytest.importorskip("trame", reason="trame is not installed: pip install 'forebay[web]'")
pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")
if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
    pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver", allow_module_level=True)


class View:
    """A running ``forebay view --web``."""

    def __init__(self, address: str, folder: Path) -> None:
        scene = scene_file(folder, SCENE)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forebay", "view", address, "--scene", scene, "--web"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window."""
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=900,700"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def wait(browser: Any, condition: Callable[[Any], Any], what: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60, 0.1).until(condition, what)


def wait_for_text(browser: Any, element: str, text: str) -> None:
    script = f"return document.getElementById('{element}')?.textContent"
    wait(browser, lambda page: page.execute_script(script) == text, f"{element} never was {text!r}")


def picture(browser: Any) -> np.ndarray[Any, Any]:
    """What the page looks like, when a picture of the scene is there."""
    script = "return [...document.images].some(i => i.naturalWidth > 100)"
    wait(browser, lambda page: page.execute_script(script), "no picture of the scene came")
    return np.asarray(Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")).astype(int)


def requested_hosts(browser: Any) -> set[str]:
    """Hosts of all requests and websockets of the page."""
    found = re.findall(
        r'"url":"(?:https?|wss?)://([^/:"]+)', "".join(entry["message"] for entry in browser.get_log("performance"))
    )
    return set(found)


def listening_addresses(port: int) -> set[str]:
    """Where a port is open, as /proc writes it."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {
        where.partition(":")[0] for _, where, _, state, *_ in lines if state == "0A" and where.endswith(f":{port:04X}")
    }


@pytest.mark.timeout(300)
def test_page_follows_and_the_slider_chooses(reservation: str, tmp_path: Path, browser: Any) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:

        def write(number: int) -> None:
            with stream.step() as step:
                step["T"] = field(number)

        write(2)
        with View(address, tmp_path) as view:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?secret=\S{40,}", view.url)
            browser.get(view.url)
            wait_for_text(browser, "now", "step 0")
            first = picture(browser)
            write(8)
            wait_for_text(browser, "now", "step 1")
            wait(
                browser,
                lambda page: np.abs(picture(page) - first)[100:].mean() > 0.5,
                "the picture did not change with the step",
            )
            # The user stops following and goes back.
            browser.find_element("id", "live").click()
            browser.execute_script(
                "const s = document.getElementById('step'); s.value = 0; s.dispatchEvent(new Event('input'))"
            )
            wait_for_text(browser, "now", "step 0")
            wait(
                browser,
                lambda page: np.abs(picture(page) - first)[100:].mean() < 0.25,
                "the first step's picture did not come back",
            )
            assert requested_hosts(browser) == {"127.0.0.1"}


# crash-matrix: forebay view --web | a browser is killed while the stream runs | the server goes on; the next browser sees the newest step
@pytest.mark.timeout(300)
def test_browser_that_disconnects_leaves_the_server_following(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:

        def write(number: int) -> None:
            with stream.step() as step:
                step["T"] = field(number)

        write(0)
        with View(address, tmp_path) as view:
            with chromium() as first:
                first.get(view.url)
                wait_for_text(first, "now", "step 0")
                picture(first)
                driver = first.service.process.pid
                for child in Path(f"/proc/{driver}/task/{driver}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                write(1)
            with chromium() as second:
                second.get(view.url)
                wait_for_text(second, "now", "step 1")
                write(2)
                wait_for_text(second, "now", "step 2")
                picture(second)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("token", ["", "?secret=wslink-secret", "?secret=wrong"])
def test_nobody_gets_in_without_the_token(flow: str, tmp_path: Path, browser: Any, token: str) -> None:
    with View(flow, tmp_path) as view:
        browser.get(view.url.partition("?")[0] + token)
        refused = "return performance.getEntriesByType('resource').length > 0 && document.readyState === 'complete'"
        wait(browser, lambda page: page.execute_script(refused), "the page's files did not come")
        wait(
            browser,
            lambda page: any("webSocketFrameReceived" in entry["message"] for entry in page.get_log("performance")),
            "the server did not answer",
        )
        assert browser.execute_script("return document.getElementById('now') === null")
        # With the token the same page comes.
        browser.get(view.url)
        wait_for_text(browser, "now", "step 3")


# crash-matrix: forebay view --web | its parent is killed | the server ends by itself
@pytest.mark.timeout(300)
def test_killed_parent_leaves_no_server(flow: str, tmp_path: Path) -> None:
    scene = scene_file(tmp_path, SCENE)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); "
            "print(child.pid, flush=True); child.wait()",
            *(sys.executable, "-m", "forebay", "view", flow, "--scene", scene, "--web"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        assert parent.stdout.readline().startswith("http://127.0.0.1:")
        parent.kill()
        parent.wait()
        import select

        assert select.select([child], [], [], 60)[0], "the server goes on without its parent"
    finally:
        os.close(child)


def test_token_is_in_a_file_of_the_user_alone(flow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with View(flow, tmp_path) as view:
        keys = list(tmp_path.glob("forebay-view-*/token"))
        assert len(keys) == 1
        assert keys[0].stat().st_mode & 0o777 == 0o600
        assert view.url.endswith(keys[0].read_text())
        command = Path(f"/proc/{view.process.pid}/cmdline").read_text()
        assert keys[0].read_text() not in command
        port = int(re.findall(r":(\d+)/", view.url)[0])
        assert listening_addresses(port) == {"0100007F"}, "others than this machine can connect"
    assert not keys[0].exists()
