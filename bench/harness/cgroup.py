"""The processes of one run, and the CPU time they took.

A control group counts all threads and children of both ends, softirq work of loopback included, even
of processes that nobody waits for. Where none can be made, process accounting of what the harness
started takes its place (`RusageGroup`), which misses what a server's unwaited children did.
"""

import os
import resource
from contextlib import contextmanager
from pathlib import Path

from . import machine

V1_ROOT = Path("/sys/fs/cgroup/cpuacct")
V2_ROOT = Path("/sys/fs/cgroup")


class Group:
    """A control group for one run. New processes get in by being started inside `joined()`."""

    kind = "cgroup"

    def __init__(self, root, name):
        self._home = root / _own_group(root)
        self._path = root / name
        self._path.mkdir()
        self._v1 = (self._path / "cpuacct.usage").exists()

    @contextmanager
    def joined(self):
        """Puts the harness itself in for a moment, since children inherit: that costs a run nothing."""
        self._move_self(self._path)
        try:
            yield
        finally:
            self._move_self(self._home)

    @staticmethod
    def _move_self(path):
        (path / "cgroup.procs").write_text(f"{os.getpid()}\n")

    def pids(self):
        """The processes inside, ended ones not counted."""
        return [int(line) for line in (self._path / "cgroup.procs").read_text().split()]

    def cpu_s(self):
        """(total, user, system) CPU seconds of all processes that are or were inside."""
        if self._v1:
            values = [int((self._path / f"cpuacct.usage{part}").read_text()) for part in ("", "_user", "_sys")]
            return tuple(value / 1e9 for value in values)
        stat = dict(line.split() for line in (self._path / "cpu.stat").read_text().splitlines())
        return tuple(int(stat[key]) / 1e6 for key in ("usage_usec", "user_usec", "system_usec"))

    def close(self):
        """Removes the group; the run's processes have ended."""
        try:
            self._path.rmdir()
        except OSError:
            pass  # a process that lingers keeps it; an empty group costs nothing


class RusageGroup:
    """Stands in for `Group` where no control group can be made."""

    kind = "rusage"

    def __init__(self):
        self._servers = {}

    @contextmanager
    def joined(self):
        """Nothing to join: descendants are found by their parents."""
        yield

    def pids(self):
        """All descendants of the harness."""
        return descendants(os.getpid())

    def cpu_s(self):
        """(total, user, system) CPU seconds of waited-for children and of those still running."""
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        user, system = waited.ru_utime, waited.ru_stime
        for pid in self.pids():
            more_user, more_system = process_times_s(pid)
            user, system = user + more_user, system + more_system
        return user + system, user, system

    def close(self):
        """Nothing was made."""


def make_group(name):
    """A control group where one can be made, else its stand-in."""
    for root, file in ((V1_ROOT, "cpuacct.usage"), (V2_ROOT, "cgroup.controllers")):
        if not (root / file).exists():
            continue
        try:
            group = Group(root, name)
            with group.joined():
                pass
            return group
        except OSError:
            continue
    return RusageGroup()


def _own_group(root):
    """The harness's own group below `root`, to go back to."""
    wanted = "cpuacct" if root == V1_ROOT else ""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _number, controllers, path = line.split(":", 2)
        if (wanted in controllers.split(",")) if wanted else not controllers:
            return path.lstrip("/")
    return ""


def _stat_fields(pid):
    """/proc/PID/stat from the state on (field 3), or None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def process_times_s(pid):
    """(user, system) CPU seconds of a process and its waited-for children; nothing when it is gone."""
    fields = _stat_fields(pid)
    if not fields:
        return 0.0, 0.0
    user, system, children_user, children_system = (int(field) * machine.TICK_S for field in fields[11:15])
    return user + children_user, system + children_system


def all_pids():
    """Every process of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root_pid):
    """All processes below `root_pid`."""
    children = {}
    for pid in all_pids():
        fields = _stat_fields(pid)
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(pid)
    found, todo = [], [root_pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def process_name(pid):
    """The command name, at most 15 characters, or None when the process is gone (or a zombie)."""
    fields = _stat_fields(pid)
    if fields is None or fields[0] == "Z":
        return None
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def peak_rss_bytes(pid):
    """The most memory the process ever had (VmHWM), or None when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
