"""What lies between the two ends of a run: loopback, or the test bed's long fat pipe.

The client runs at the near end, a peer's server at the far one. Both ends see the same files.
"""

import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import cgroup

ROOT = Path(__file__).resolve().parents[2]
DIRECT_SHELL = ROOT / "bench" / "direct-shell"
WAN = ROOT / "testbed" / "wan"

# The pipe's queue: what fills it once, and at least this long at its rate.
MIN_QUEUE_MS = 10


class Loopback:
    """Both ends here, nothing between."""

    host = "127.0.0.1"  # of the far end, as the near one calls it
    shell = shlex.quote(str(DIRECT_SHELL))  # takes ssh's place
    link = None

    def near(self, command):
        """The command as it has to be started to run at the near end."""
        return list(command)

    def far(self, command):
        """The same for the far end."""
        return list(command)

    def refresh(self):
        """Forgets what earlier runs taught the kernel about the way."""

    def busy_s(self):
        """CPU seconds that emulating the network has taken: not a run's, and not foreign either."""
        return 0.0


LOOPBACK = Loopback()


@contextmanager
def over(link, directory):
    """The network of a link for the time of a `with`; None is loopback."""
    if link is None:
        yield LOOPBACK
    else:
        with Wan(link, directory).up() as wan:
            yield wan


@dataclass(frozen=True)
class Link:
    """The numbers of a long fat pipe."""

    round_trip_ms: float
    rate_mbit: float
    loss_percent: float

    @property
    def bytes_per_s(self):
        """The line rate."""
        return self.rate_mbit * 1e6 / 8

    @property
    def queue_mb(self):
        """What is on the way when the pipe is full, in MB."""
        return self.bytes_per_s * max(self.round_trip_ms, MIN_QUEUE_MS) / 1e3 / 1e6

    @property
    def words(self):
        """For titles; also what tells two links apart."""
        return f"{self.rate_mbit:g} Mbit/s × {self.round_trip_ms:g} ms × {self.loss_percent:g} % loss"


class Wan(Loopback):
    """testbed/wan, while it is up. The private files of the two ends are the same, their networks aren't."""

    host = "10.98.0.2"

    def __init__(self, link, directory):
        self.link = link
        self._directory = str(directory)
        self.shell = shlex.join([str(WAN), "shell", self._directory])

    @staticmethod
    def missing():
        """Why there can be no pipe here, or None."""
        if os.geteuid() != 0:
            return "it needs root"
        absent = [program for program in ("ip", "cc") if not shutil.which(program)]
        if absent:
            return f"not installed: {', '.join(absent)}"
        return None if os.path.exists("/dev/net/tun") else "there is no /dev/net/tun"

    @contextmanager
    def up(self):
        """The pipe, for the time of a `with`."""
        link = self.link
        numbers = [link.round_trip_ms / 2, link.rate_mbit, link.loss_percent, link.queue_mb]
        try:
            subprocess.run([str(WAN), "up", self._directory, *(f"{number:g}" for number in numbers)], check=True)
            yield self
        finally:
            subprocess.run([str(WAN), "down", self._directory], check=True)

    def near(self, command):
        return [str(WAN), "exec", self._directory, *command]

    def far(self, command):
        return [str(WAN), "shell", self._directory, self.host, shlex.join(["exec", *map(str, command)])]

    def refresh(self):
        for end in (self.near, self.far):
            subprocess.run(end(["ip", "tcp_metrics", "flush", "all"]), check=True)

    def busy_s(self):
        user_s, system_s = cgroup.process_times_s(int(Path(self._directory, "pid").read_text()))
        return user_s + system_s
