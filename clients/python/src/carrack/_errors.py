"""What can go wrong, by what a caller can do about it."""

from __future__ import annotations

from typing import Any, Mapping


class CarrackError(Exception):
    """An error with a hint. `status` is that of HTTP, 0 where there was no answer."""

    def __init__(self, detail: str, hint: str = "", title: str = "", status: int = 0) -> None:
        super().__init__(f"{detail} (hint: {hint})" if hint else detail)
        self.detail = detail
        self.hint = hint
        self.title = title
        self.status = status


class NotFound(CarrackError):
    """There is no such transfer."""


class Refused(CarrackError):
    """What was asked for can't be."""


class Forbidden(CarrackError):
    """The one who asks may not."""


class Away(CarrackError):
    """The server can't be reached or can't answer; the same may work later."""


def of_problem(status: int, problem: Mapping[str, Any]) -> CarrackError:
    """The error of an answer of application/problem+json (RFC 9457)."""
    kind = CarrackError
    if status == 404:
        kind = NotFound
    elif status in (401, 403):
        kind = Forbidden
    elif 400 <= status < 500:
        kind = Refused
    elif status >= 500:
        kind = Away
    detail = str(problem.get("detail") or f"the server answered {status}")
    return kind(detail, str(problem.get("hint") or ""), str(problem.get("title") or ""), status)
