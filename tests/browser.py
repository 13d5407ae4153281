"""A headless Chromium for tests of pages, spoken to by its DevTools protocol over pipes."""

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""Path of the program; None where there is none."""

PATIENCE: Final = 60.0
"""Seconds after which a browser that says nothing is given up."""

OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


Value = Any
"""Value of JavaScript: a number, a text, a truth value, or a list of these."""


class Browser:
    """One tab of a browser; `requests` are the addresses that it asked for, `faults` what pages complained about."""

    def __init__(self, ends: tuple[int, int]) -> None:
        self._out, self._in = ends
        self._number, self._rest = 0, b""
        self._events: list[dict[str, Any]] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self._events.append(answer)

    def open(self, page: Path | str, width: int, theme: str = "light") -> None:
        """Open a file or an address on a screen of this width; earlier requests and complaints are forgotten."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self._await_load()

    def submit(self, expression: str) -> None:
        """Evaluate an expression that sends a form, and wait for the page that answers it."""
        self._events.clear()
        self.evaluate(expression)
        self._await_load()

    def _await_load(self) -> None:
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())

    def evaluate(self, expression: str) -> Value:
        """Return the value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for since a page was opened."""
        sent = [event for event in self._events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def faults(self) -> list[dict[str, Any]]:
        """Exceptions and complaints of pages since one was opened."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event for event in self._events if event.get("method") in kinds]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            assert ready, f"the browser said nothing for {PATIENCE} s"
            received = os.read(self._in, 1 << 16)
            assert received, "the browser has ended"
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def chromium(folder: Path) -> Generator[Browser]:
    """A browser whose profile is in an empty folder; it ends behind the block."""
    assert CHROMIUM is not None
    commands, answers = os.pipe(), os.pipe()
    for end in (commands[0], answers[1]):
        os.set_inheritable(end, True)
    line = f'exec "$0" "$@" 3<&{commands[0]} 4>&{answers[1]}'
    process = subprocess.Popen(
        ["bash", "-c", line, CHROMIUM, *OPTIONS, f"--user-data-dir={folder}"],
        pass_fds=(commands[0], answers[1]),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        yield Browser((commands[1], answers[0]))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(commands[1])
        os.close(answers[0])
