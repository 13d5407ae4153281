"""A server of one page for one person, on the loopback address alone.

Whoever asks has to know the address, which begins with a secret; to come by the name of this machine; and, to change
something, from the page itself. So neither other users of the machine nor pages of other sites get an answer.
"""

import secrets
import signal
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from typing_extensions import override
from xdsl.utils.exceptions import DiagnosticException

from ....foundation.errors import RedpebbleError
from ....runtime.jit import host_target
from ....runtime.store.cache import default_folder
from ....tuning.measure_kernels import Tuning
from ...console.console import console
from ...console.working import working
from .workbench import Settings, Workbench
from .workbench_page import workbench_page

ADDRESS: Final = "127.0.0.1"

MOST_BYTES: Final = 1 << 20
"""Bytes of a form."""

SECONDS: Final = 20
"""Seconds after which whoever sends nothing is no longer waited for."""

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"

FORM: Final = "application/x-www-form-urlencoded"

HTML, TEXT, JSON = "text/html; charset=utf-8", "text/plain; charset=utf-8", "application/json"


class Answer(NamedTuple):
    """An answer: its status, the type of its content, the content, and an address to go on to."""

    status: int
    kind: str = TEXT
    content: str = ""
    location: str = ""


class RefusalError(RedpebbleError):
    """A request that gets one line for an answer."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class WorkbenchServer(ThreadingHTTPServer):
    """A server of a workbench; `url` is the page's address, which ends in a slash."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, bench: Workbench, port: int = 0) -> None:
        """Listen on a port of the loopback address, 0 for any that is free.

        Raises:
            OSError: the port is taken, or this user may not have it.
        """
        super().__init__((ADDRESS, port), _Handler)
        self.bench, self.lock = bench, Lock()
        self.secret = secrets.token_urlsafe(18)
        self.url = f"http://{ADDRESS}:{self.server_port}/{self.secret}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """The names by which a browser comes here."""
        return f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"

    def answer_get(self, page: str) -> Answer:
        """Return the page, or the file of choices.

        Raises:
            RefusalError: there is no such page.
        """
        with self.lock:
            if page == "choices.json":
                return Answer(200, JSON, self.bench.view.choices.text + "\n")
            if page:
                raise RefusalError(404, f"expected the page or choices.json, got {page!r}")
            return Answer(200, HTML, workbench_page(self.bench))

    def answer_post(self, page: str, form: Mapping[str, list[str]]) -> Answer:
        """Set what a form says, and measure where it asks for that.

        Raises:
            RefusalError: no form goes there.
        """
        if page != "set":
            raise RefusalError(404, f"expected a form for 'set', got one for {page!r}")
        with self.lock:
            try:
                self._take(form)
            except (RedpebbleError, DiagnosticException, ValueError) as error:
                line = " ".join(str(error).split())
                return Answer(400, HTML, workbench_page(self.bench, line))
        return Answer(303, location=f"/{self.secret}/")

    def _take(self, form: Mapping[str, list[str]]) -> None:
        (action,) = form.get("do", ["apply"])[-1:]
        if action not in ("apply", "measure", "reset"):
            raise ValueError(f"do: expected apply, measure or reset, got {action!r}")
        settings = Settings() if action == "reset" else settings_in(form, self.bench)
        self.bench.set(settings)
        if action == "measure":
            self.bench.measure()


def settings_in(form: Mapping[str, list[str]], bench: Workbench) -> Settings:
    """Return the settings that a form of the page states; kernels for tiles of other widths stay as they were.

    Raises:
        ValueError: a number is none, or there is no such pass, layer or width.
    """
    known, names = bench.view.settings, {line.name for line in bench.view.layers}
    passes = [one.name for one in bench.passes]
    for name in form.get("pass", []):
        if name not in passes:
            raise ValueError(f"pass: expected one of {', '.join(passes)}, got {name!r}")
    wishes = dict(known.wishes)
    for field, values in form.items():
        word, _, rest = field.partition(":")
        width, _, layer = rest.partition(":")
        if word != "kernel":
            continue
        if not width.isdecimal() or layer not in names:
            raise ValueError(f"kernel: expected WIDTH:LAYER with a layer of the page, got {rest!r}")
        wishes.pop((layer, int(width)), None)
        if values[-1]:
            wishes[layer, int(width)] = values[-1]
    return Settings(
        _number(form, "batch", known.batch),
        _number(form, "threads", known.threads),
        frozenset(passes) - frozenset(form.get("pass", [])),
        wishes,
    )


def _number(form: Mapping[str, list[str]], name: str, known: int) -> int:
    text = form.get(name, [str(known)])[-1].strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{name}: expected a whole number, got {text!r}")
    return int(text)


class _Handler(BaseHTTPRequestHandler):
    """A request."""

    server_version, sys_version = "redpebble", ""
    timeout = SECONDS

    @property
    def _served(self) -> WorkbenchServer:
        assert isinstance(self.server, WorkbenchServer)
        return self.server

    def do_GET(self) -> None:
        self._reply(is_form=False)

    def do_POST(self) -> None:
        self._reply(is_form=True)

    def _reply(self, *, is_form: bool) -> None:
        try:
            page = self._page()
            answer = self._served.answer_post(page, self._form()) if is_form else self._served.answer_get(page)
        except RefusalError as refusal:
            answer = Answer(refusal.status, content=f"{refusal}\n")
        content = answer.content.encode()
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": POLICY,
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        if answer.location:
            self.send_header("Location", answer.location)
        self.end_headers()
        self.wfile.write(content)

    def _page(self) -> str:
        """Return the part of the address behind the secret.

        Raises:
            RefusalError: the request does not come from this machine's address, or does not know the secret.
        """
        host = self.headers.get("Host", "")
        if host not in self._served.hosts:
            raise RefusalError(403, f"expected a request to {self._served.hosts[0]}, got one to {host!r}")
        _, secret, *rest = [*self.path.partition("?")[0].split("/", 2), ""]
        if not secrets.compare_digest(secret.encode(), self._served.secret.encode()):
            raise RefusalError(404, "expected the address that redpebble explain printed, got another one")
        return rest[0]

    def _form(self) -> dict[str, list[str]]:
        """Return the fields of a form.

        Raises:
            RefusalError: it comes from another site, or is none.
        """
        origin = self.headers.get("Origin")
        if origin is not None and origin not in [f"http://{host}" for host in self._served.hosts]:
            raise RefusalError(403, f"expected a form of this page, got one of {origin!r}")
        kind = self.headers.get_content_type()
        if kind != FORM:
            raise RefusalError(415, f"expected a form as {FORM}, got {kind}")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal() or int(length) > MOST_BYTES:
            raise RefusalError(
                413, f"expected a form with a Content-Length of up to {MOST_BYTES} bytes, got {length!r}"
            )
        content = self.rfile.read(int(length))
        try:
            return parse_qs(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=10_000)
        except ValueError:
            raise RefusalError(400, "expected a form in UTF-8 of up to 10000 fields, got another content") from None

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is for the address."""


def serve_until_interrupted(server: WorkbenchServer) -> None:
    """Show the address of the page, and serve it until Ctrl-C or a signal to end."""
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        console.print(server.url, highlight=False, soft_wrap=True)
        console.print("open this address in a browser of this machine; Ctrl-C ends it", highlight=False)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def serve_and_print(models: Sequence[Path], port: int) -> None:
    """Serve the page of a model until Ctrl-C.

    Raises:
        ModelError: the model is unreadable.
        OSError: the port is taken, or this user may not have it.
        ValueError: there are several models.
    """
    if len(models) != 1:
        raise ValueError(f"expected one model with --serve, got {len(models)}")
    (model,) = models
    with working("choosing kernels of", model):
        bench = Workbench(model, Tuning.recalled(host_target(), default_folder()))
    serve_until_interrupted(WorkbenchServer(bench, port))
