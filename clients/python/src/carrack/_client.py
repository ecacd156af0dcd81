"""The verbs, asked of a server. One connection for each question; a client may be shared by threads."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import time
from typing import Any, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from ._errors import Away, CarrackError, NotFound, Refused, of_problem
from ._records import Mover, Transfer

DEFAULT_SOCKET = "/run/carrack/queue.sock"

# A server that is watched says something every 15 seconds.
SILENCE_S = 60.0

# A daemon that is started anew is waited for so often, and so long each time.
TRIES = 30
PAUSE_S = 1.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """Whoever keeps the transfers: `unix:PATH`, `http://HOST:PORT` (of this host only with a token), `https://HOST:PORT`.

    Without a server that is CARRACK_SERVER, else the daemon of this machine; without a token CARRACK_TOKEN.
    """

    def __init__(
        self,
        server: Optional[str] = None,
        token: Optional[str] = None,
        *,
        ca_file: Optional[str] = None,
        timeout: float = 60.0,
    ) -> None:
        self._server = server or os.environ.get("CARRACK_SERVER") or _of_this_machine()
        self._token = (token or os.environ.get("CARRACK_TOKEN") or "").strip()
        self._timeout = timeout
        self._tls: Optional[ssl.SSLContext] = None
        if self._server.startswith("unix:"):
            path = self._server[len("unix:") :]
            self._socket: Optional[str] = path[2:] if path.startswith("//") else path
            self._address: Tuple[str, int] = ("", 0)
            return
        self._socket = None
        parts = urlsplit(self._server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refused(
                f"{self._server!r} is no server", "write unix:/path, http://host:port or https://host:port"
            )
        self._address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_file)
        elif self._token and not _is_loopback(parts.hostname):
            raise Refused(f"{self._server}: everybody on the way could read the token", "write https://")

    def submit(
        self,
        source: str,
        destination: str,
        *,
        priority: int = 5,
        label: str = "",
        options: Optional[Mapping[str, Any]] = None,
    ) -> Transfer:
        """Submit a transfer. It is kept durably when this returns."""
        submission = {
            "source": source,
            "destination": destination,
            "priority": priority,
            "label": label,
            "options": dict(options or {}),
        }
        return Transfer.of(self._ask("POST", "/v1/transfers", submission))

    def transfer(self, id: str) -> Transfer:
        """One transfer, by its id or the beginning of it that no other has."""
        return Transfer.of(self._ask("GET", _path(id)))

    def transfers(self, limit: int = 100, after: Optional[str] = None) -> List[Transfer]:
        """The latest transfers, the latest first; with `after`, the id of the last one of a page, the next page."""
        page = "" if after is None else f"&after={_checked(after)}"
        return [Transfer.of(value) for value in self._ask("GET", f"/v1/transfers?limit={int(limit)}{page}")]

    def cancel(self, id: str) -> Transfer:
        """End a transfer. What is complete at the destination stays."""
        return Transfer.of(self._ask("POST", _path(id, "cancel")))

    def pause(self, id: str) -> Transfer:
        """Have a transfer wait."""
        return Transfer.of(self._ask("POST", _path(id, "pause")))

    def resume(self, id: str) -> Transfer:
        """Go on with a transfer that waits, or try again what failed."""
        return Transfer.of(self._ask("POST", _path(id, "resume")))

    def movers(self) -> List[Mover]:
        """The movers of the fleet; none where one machine carries its transfers out itself."""
        return [Mover.of(value) for value in self._ask("GET", "/v1/movers")]

    def wait(self, id: str, timeout: Optional[float] = None) -> Transfer:
        """Its last record, once it is over. TimeoutError if that takes longer than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        last: Optional[Transfer] = None
        for last in self._watch(id, deadline):
            pass
        if last is None or not last.is_over:
            raise Away("nobody says any more how the transfer is")
        return last

    def watch(self, id: str) -> Iterator[Transfer]:
        """The transfer as it is now and whenever it changes, until it is over.

        Goes on by itself where the server is away for half a minute at most.
        """
        return self._watch(id, None)

    def watch_all(self) -> Iterator[Transfer]:
        """Every transfer that is not over as it is now, and each one whenever it changes, is new, or ends. Never ends by itself.

        Goes on by itself where the server is away for half a minute at most; what was told before is told again then.
        """
        has_begun = False
        tries = 0
        while True:
            try:
                for transfer in self._events_of("/v1/events", "", None):
                    has_begun, tries = True, 0
                    yield transfer
            except Away:
                # Who was never there is not waited for.
                if not has_begun or tries >= TRIES:
                    raise
            tries += 1
            time.sleep(PAUSE_S)

    def _watch(self, id: str, deadline: Optional[float]) -> Iterator[Transfer]:
        last: Optional[Transfer] = None
        tries = 0
        while True:
            try:
                for transfer in self._events(id, deadline):
                    tries = 0
                    if transfer != last:
                        last = transfer
                        id = transfer.id
                        yield transfer
                    if transfer.is_over:
                        return
            except Away:
                # Who was never there is not waited for.
                if last is None or tries >= TRIES:
                    raise
            tries += 1
            _check(deadline, id)
            time.sleep(PAUSE_S)

    def _events(self, id: str, deadline: Optional[float]) -> Iterator[Transfer]:
        return self._events_of(_path(id, "events"), id, deadline)

    def _events_of(self, path: str, id: str, deadline: Optional[float]) -> Iterator[Transfer]:
        connection = self._connection(SILENCE_S if deadline is None else min(SILENCE_S, _left(deadline, id)))
        try:
            answer = self._send(connection, "GET", path, None)
            if answer.status != 200:
                raise _problem(answer.status, answer.read())
            name, data = "", ""
            while True:
                try:
                    line = answer.readline().decode("utf-8", "replace")
                except (OSError, http.client.HTTPException) as error:
                    _check(deadline, id)
                    raise Away(f"{self._server}: {error}") from error
                _check(deadline, id)
                if not line:
                    return
                line = line.rstrip("\r\n")
                if line:
                    field, _, value = line.partition(":")
                    value = value[1:] if value.startswith(" ") else value
                    if field == "event":
                        name = value
                    elif field == "data":
                        data += value
                    continue
                if data and name == "transfer":
                    yield Transfer.of(json.loads(data))
                elif data and name == "problem":
                    problem = json.loads(data)
                    raise of_problem(int(problem.get("status", 500)), problem)
                name, data = "", ""
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = self._connection(self._timeout)
        try:
            answer = self._send(connection, method, path, body)
            try:
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise Away(f"{self._server}: {error}") from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise _problem(answer.status, content)
        return json.loads(content)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._socket is not None:
            return _UnixConnection(self._socket, timeout)
        host, port = self._address
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        headers = {}
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body)
        if self._token and self._socket is None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, content, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            hint = "`carrack serve` with a [queue] has to run there" if self._socket else ""
            raise Away(f"{self._server}: {error}", hint) from error


def _of_this_machine() -> str:
    own = os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), "carrack", "queue.sock")
    return "unix:" + (own if os.path.isabs(own) and os.path.exists(own) else DEFAULT_SOCKET)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked(id: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z]+", id):
        raise NotFound(f"there is no transfer {id!r}")
    return id


def _path(id: str, verb: str = "") -> str:
    id = _checked(id)
    return f"/v1/transfers/{id}/{verb}" if verb else f"/v1/transfers/{id}"


def _problem(status: int, content: bytes) -> CarrackError:
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        return Away(f"this is no carrack: it answered {status}", status=status)
    return of_problem(status, problem)


def _left(deadline: float, id: str) -> float:
    _check(deadline, id)
    return max(deadline - time.monotonic(), 0.001)


def _check(deadline: Optional[float], id: str) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeoutError(f"transfer {id} is not over yet")
