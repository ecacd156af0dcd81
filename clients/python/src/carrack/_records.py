"""What the API says, as values. Fields that are not known here are left out, so that a newer server can be asked."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Mapping, Optional, Type, TypeVar

_T = TypeVar("_T")


class State(str, enum.Enum):
    """What becomes of a transfer."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Nothing changes any more."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


def _known(kind: Type[_T], value: Mapping[str, Any]) -> Dict[str, Any]:
    names = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]
    return {name: entry for name, entry in value.items() if name in names}


@dataclass(frozen=True)
class Tally:
    """How far a transfer is."""

    files_found: int = 0
    bytes_found: int = 0
    is_scanned: bool = False
    files_done: int = 0
    bytes_done: int = 0
    bytes_moved: int = 0
    entries_failed: int = 0
    entries_skipped: int = 0
    entries_deleted: int = 0
    chunks_found: int = 0
    chunks_done: int = 0
    pairs: int = 0
    pairs_wanted: int = 0
    bytes_per_s: int = 0


@dataclass(frozen=True)
class Failure:
    """An entry that could not be copied."""

    path: str
    kind: str
    detail: str


@dataclass(frozen=True)
class Skipped:
    """A socket, pipe or device, which was left out."""

    path: str
    reason: str


@dataclass(frozen=True)
class Submission:
    """What was asked for."""

    source: str
    destination: str
    options: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 5
    label: str = ""


@dataclass(frozen=True)
class Session:
    """One of a transfer's sessions between two movers of a fleet, while it works."""

    source: str
    sink: str
    transport: str = "tcp"
    readers: int = 0
    streams: int = 0


@dataclass(frozen=True)
class Transfer:
    """A transfer."""

    id: str
    submission: Submission
    user: str
    state: State
    submitted_ms: int
    started_ms: Optional[int] = None
    ended_ms: Optional[int] = None
    resumes: bool = False
    tally: Tally = field(default_factory=Tally)
    failures: List[Failure] = field(default_factory=list)
    skipped: List[Skipped] = field(default_factory=list)
    losses: List[str] = field(default_factory=list)
    undeleted: List[str] = field(default_factory=list)
    reason: str = ""
    waits_for: str = ""
    manager: str = ""
    sessions: List[Session] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Nothing changes any more."""
        return self.state.is_over

    @property
    def is_complete(self) -> bool:
        """Everything that was asked for is done."""
        return self.state is State.DONE and self.tally.entries_failed == 0

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Transfer":
        """Of what the API says."""
        known = _known(cls, value)
        known["state"] = State(value["state"])
        known["submission"] = Submission(**_known(Submission, value["submission"]))
        known["tally"] = Tally(**_known(Tally, value.get("tally", {})))
        known["failures"] = [Failure(**_known(Failure, failure)) for failure in value.get("failures", [])]
        known["skipped"] = [Skipped(**_known(Skipped, skipped)) for skipped in value.get("skipped", [])]
        known["sessions"] = [Session(**_known(Session, session)) for session in value.get("sessions", [])]
        return cls(**known)


@dataclass(frozen=True)
class Mover:
    """A mover of a fleet."""

    id: str
    site: str
    host: str
    state: str
    paths: List[str]
    addresses: List[str]
    pairs: int
    pairs_max: int
    lanes: int
    software: str
    bytes_per_s: int
    ill: str = ""
    left_out: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Mover":
        """Of what the API says."""
        return cls(**_known(cls, value))
