"""What every mover of data has in common, and what a run gives it."""

import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import servers
from .network import LOOPBACK, ROOT, Loopback

SSHD = ROOT / "testbed" / "sshd"
# The far end's name in the private sshd's configuration.
SSH_HOST = "carrack-test"


@dataclass
class Case:
    """One run's places."""

    kind: str  # of the workload
    source: Path
    destination: Path  # exists and is empty
    scratch: Path  # for logs and configuration
    port: int  # the first of `servers.PORTS_EACH` free ones
    network: Loopback = LOOPBACK
    ssh: str = ""  # the private sshd's client command, while one runs


class Tool:
    """A mover of data. Subclasses say how it is started."""

    security = "none"
    programs = ()
    # It logs in by ssh, whose start-up is inside its time.
    over_ssh = False
    # Names of processes that may end after the client, and whose end ends the run.
    receiver_names = ()
    follows_links = False
    keeps_metadata = False
    # It makes a directory of the source's name in the destination.
    keeps_name = False
    # Name of the processes whose peak memory is recorded.
    watched_name = None

    def __init__(self, name):
        self.name = name

    def missing(self):
        """Why it can't run here, or None."""
        absent = [program for program in self.programs if not shutil.which(program)]
        return f"not installed: {', '.join(absent)}" if absent else None

    @contextmanager
    def serving(self, _case):
        """Runs what has to run before the clock starts; yields a `Server` or None."""
        yield None

    def client(self, case):
        """The command that is timed, for the near end."""
        raise NotImplementedError

    def settings(self, kind):
        """What of the command line was chosen, in words."""
        raise NotImplementedError

    def copy_of(self, case):
        """Where the copy of the source is afterwards."""
        return case.destination / case.source.name if self.keeps_name else case.destination


@contextmanager
def running(command, case, name, takes_one=False):
    """A server process at the far end for the time of a `with`."""
    server = servers.Server(case.network.far(command), case.port, case.scratch / f"{name}.log", takes_one)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def private_sshd(case):
    """The test bed's sshd at the far end; sets `case.ssh`."""
    directory = str(case.scratch / "sshd")
    command = case.network.far([SSHD, "up", directory, case.network.host])
    up = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    case.ssh = up.stdout.strip()
    try:
        yield None
    finally:
        subprocess.run([str(SSHD), "down", directory], check=True)
