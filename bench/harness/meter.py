"""One measured run: start, wait for both ends, count."""

import itertools
import os
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from . import cgroup, machine, servers, verify

# How long a receiver may work on after its client has ended.
RECEIVER_TIMEOUT_S = 60
RECEIVER_POLL_S = 0.001
# The kernel keeps a process's peak itself, so only what comes after the last look is lost. Looking costs a few percent of
# a core, which the other tools don't pay: so it is done in one round only, and not often.
PEAK_POLL_S = 0.05

_run_numbers = itertools.count()


@dataclass
class Measurement:
    """What one run took."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    cpu_by: str = ""  # cgroup or rusage
    foreign_cores: float = 0.0  # taken by other processes during the run
    peak_rss: dict = field(default_factory=dict)  # role: bytes, of watched processes
    probe_gb_per_s: float = 0.0  # memory copy before the run
    slow_probe: bool = False
    timed_out: bool = False
    moved_bytes: int = 0  # in the destination when the time was over
    problems: list = field(default_factory=list)

    @property
    def ok(self):
        """Whether the copy is complete and right."""
        return not self.problems


class PeakSampler(threading.Thread):
    """Looks at the peak memory of all processes of one name, until stopped."""

    def __init__(self, pids, name, client_pid):
        super().__init__(daemon=True)
        self._pids = pids
        self._name = name
        self._client_pid = client_pid
        self._stop_event = threading.Event()
        self._peaks = {}  # pid: bytes

    def run(self):
        while not self._stop_event.wait(PEAK_POLL_S):
            self.look()

    def look(self):
        """Takes one sample."""
        for pid in self._pids():
            if cgroup.process_name(pid) == self._name:
                peak = cgroup.peak_rss_bytes(pid)
                if peak:
                    self._peaks[pid] = max(peak, self._peaks.get(pid, 0))

    def stop(self):
        """Peak bytes by role: the process that was started, and the largest of the others."""
        self._stop_event.set()
        self.join()
        roles = {}
        for pid, peak in self._peaks.items():
            role = "initiator" if pid == self._client_pid else "remote"
            roles[role] = max(peak, roles.get(role, 0))
        return roles


class _Client:
    """The timed command. When its time is over, it is looked at what it has done, and it is killed."""

    def __init__(self, command, case, timeout_s):
        log_path = case.scratch / "client.log"
        self._log_path = log_path
        self._destination = case.destination
        self._timeout_s = timeout_s
        self.timed_out = False
        self.moved_bytes = 0
        with open(log_path, "wb") as log:
            self.start_s = time.perf_counter()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.pid = self._process.pid
        self._timer = threading.Timer(timeout_s, self._give_up)
        self._timer.start()

    def _give_up(self):
        self.timed_out = True
        self.moved_bytes = verify.stored_bytes(self._destination)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self):
        """Waits for its end; a problem in words, or None."""
        status = self._process.wait()
        self._timer.cancel()
        if self.timed_out:
            self._timer.join()
            return f"> {self._timeout_s:g} s ({self.moved_bytes / 1e6:,.0f} MB in that time)"
        if status != 0:
            tail = Path(self._log_path).read_text(errors="replace").strip().splitlines()[-3:]
            return f"exit status {status}: {' / '.join(tail)}"
        return None


def measure(tool, case, release_reserve, timeout_s, with_peaks=True):
    """Runs `tool` once on `case`; `release_reserve` is called right before the clock starts."""
    result = Measurement()
    group = cgroup.make_group(f"carrack-bench-{os.getpid()}-{next(_run_numbers)}")
    result.cpu_by = group.kind
    try:
        with ExitStack() as stack:
            with group.joined():
                server = stack.enter_context(tool.serving(case))
            server_pids = set(group.pids())
            release_reserve()
            watched_name = tool.watched_name if with_peaks else None
            _run(tool, case, group, server, server_pids, result, timeout_s, watched_name)
    except (OSError, subprocess.SubprocessError) as error:
        result.problems.append(str(error))
    finally:
        for pid in group.pids():
            if pid != os.getpid():
                servers.end(pid)
        group.close()
    return result


def _run(tool, case, group, server, server_pids, result, timeout_s, watched_name):
    """The part between the clock's start and its end."""
    cpu_before, busy_before_s = group.cpu_s(), _busy_s(case)
    with group.joined():
        client = _Client(case.network.near(tool.client(case)), case, timeout_s)
    sampler = None
    if watched_name:
        sampler = PeakSampler(group.pids, watched_name, client.pid)
        sampler.start()
    problem = client.wait()
    if problem is None:
        problem = _wait_for_receivers(tool, group, server, server_pids)
    result.wall_s = time.perf_counter() - client.start_s
    cpu_after, busy_after_s = group.cpu_s(), _busy_s(case)
    if sampler:
        result.peak_rss = sampler.stop()
    result.cpu_s, result.user_s, result.system_s = (after - before for after, before in zip(cpu_after, cpu_before))
    result.foreign_cores = max(0.0, busy_after_s - busy_before_s - result.cpu_s) / result.wall_s
    result.timed_out, result.moved_bytes = client.timed_out, client.moved_bytes
    if problem:
        result.problems.append(problem)


def _busy_s(case):
    """What the machine has computed, without the emulation of a network."""
    return machine.busy_s() - case.network.busy_s()


def _wait_for_receivers(tool, group, server, server_pids):
    """Waits for the end of the other end; a problem in words, or None."""
    if server is not None and server.takes_one:
        return None if server.wait_done(RECEIVER_TIMEOUT_S) else f"receiver failed: {server.log_tail()}"
    deadline_s = time.monotonic() + RECEIVER_TIMEOUT_S
    while tool.receiver_names:
        names = [cgroup.process_name(pid) for pid in group.pids() if pid not in server_pids]
        if not any(name in tool.receiver_names for name in names):
            break
        if time.monotonic() > deadline_s:
            return "the receiver doesn't end"
        time.sleep(RECEIVER_POLL_S)
    return None
