"""The peers: how each is started, with the settings that were best on each kind of input.

Settings are those of BASELINE's table (best of those tried on a 2-core machine with loopback); a
kind of input without settings of its own takes those of the nearest one.
"""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import servers

BENCH_DIR = Path(__file__).resolve().parents[1]
DIRECT_SHELL = BENCH_DIR / "direct-shell"
SSHD = BENCH_DIR.parent / "testbed" / "sshd"
ACCEPT_ONE = Path(__file__).resolve().parent / "accept_one.py"
HOST = "127.0.0.1"


@dataclass
class Case:
    """One run's places."""

    kind: str  # of the workload
    source: Path
    destination: Path  # exists and is empty
    scratch: Path  # for logs and configuration
    port: int
    ssh: str = ""  # the private sshd's client command, while one runs


class Tool:
    """A mover of data. Subclasses say how it is started."""

    security = "none"
    programs = ()
    # Names of processes that may end after the client, and whose end ends the run.
    receiver_names = ()
    follows_links = False
    keeps_metadata = False
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
        """The command that is timed."""
        raise NotImplementedError

    def settings(self, kind):
        """What of the command line was chosen, in words."""
        raise NotImplementedError


@contextmanager
def running(command, case, name, takes_one=False):
    """A server process for the time of a `with`."""
    server = servers.Server(command, case.port, case.scratch / f"{name}.log", takes_one)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def private_sshd(case):
    """The test bed's sshd; sets `case.ssh`."""
    directory = case.scratch / "sshd"
    up = subprocess.run([str(SSHD), "up", str(directory)], check=True, stdout=subprocess.PIPE, text=True)
    case.ssh = up.stdout.strip()
    try:
        yield None
    finally:
        subprocess.run([str(SSHD), "down", str(directory)], check=True)


class Carrack(Tool):
    """carrack itself, over a direct shell or over real ssh, pushing or pulling."""

    security = "clear, XXH3 checked"
    keeps_metadata = True

    def __init__(self, name, program, over_ssh=False, pull=False, extra=()):
        super().__init__(name)
        self.program = str(program)
        self.over_ssh = over_ssh
        self.pull = pull
        self.extra = list(extra)
        self.watched_name = Path(self.program).name[:15]
        self.receiver_names = (self.watched_name,)

    def missing(self):
        if not os.access(self.program, os.X_OK):
            return f"no program {self.program} (make build)"
        return "not installed: sshd" if self.over_ssh and not shutil.which("sshd") else None

    @contextmanager
    def serving(self, case):
        if self.over_ssh:
            with private_sshd(case) as none:
                yield none
        else:
            yield None

    def client(self, case):
        shell, host = (case.ssh, "carrack-test") if self.over_ssh else (shlex.quote(str(DIRECT_SHELL)), HOST)
        ends = [f"{case.source}/", f"{case.destination}/"]
        remote = 0 if self.pull else 1
        ends[remote] = f"{host}:{ends[remote]}"
        options = ["-r", "-q", "--ssh", shell, "--remote-carrack", self.program, *self.extra]
        return [self.program, "cp", *options, *ends]

    def settings(self, _kind):
        words = ["pull" if self.pull else "push", "over ssh" if self.over_ssh else "over direct-shell", *self.extra]
        return " ".join(words)


class Globus(Tool):
    """globus-url-copy against globus-gridftp-server."""

    security = "none (anonymous)"
    programs = ("globus-url-copy", "globus-gridftp-server")
    follows_links = True
    best = {
        "big": ("-cd -r -nodcau -fast -cc 2 -p 1 -bs 4M", False),
        "mib": ("-cd -r -nodcau -fast -pp -cc 4 -bs 1M", True),
        "linux": ("-cd -r -nodcau -fast -pp -cc 4 -bs 64K", True),
    }

    @contextmanager
    def serving(self, case):
        command = ["globus-gridftp-server", "-aa", "-allow-root", "-anonymous-user", _user(), "-p", str(case.port)]
        with running([*command, "-control-interface", HOST, "-data-interface", HOST], case, "gridftp") as server:
            yield server

    def client(self, case):
        options, pull = self.best[case.kind]
        ends = [f"file://{case.source}/", f"file://{case.destination}/"]
        remote = 0 if pull else 1
        ends[remote] = ends[remote].replace("file://", f"ftp://{HOST}:{case.port}", 1)
        return ["globus-url-copy", *options.split(), *ends]

    def settings(self, kind):
        options, pull = self.best[kind]
        return f"{options} {'pull' if pull else 'push'}"


class RsyncDaemon(Tool):
    """rsync against its own daemon; it checks every file unless told not to."""

    programs = ("rsync",)
    receiver_names = ("rsync",)
    keeps_metadata = True
    best = {"big": "-a -W", "mib": "-a -W --inplace --cc=none", "linux": "-a -W"}

    @contextmanager
    def serving(self, case):
        configuration = case.scratch / "rsyncd.conf"
        configuration.write_text(
            f"use chroot = no\nmunge symlinks = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n"
            "[all]\npath = /\nread only = no\n"
        )
        command = ["rsync", "--daemon", "--no-detach", f"--address={HOST}", f"--port={case.port}"]
        with running([*command, f"--config={configuration}"], case, "rsyncd") as server:
            yield server

    def client(self, case):
        url = f"rsync://{HOST}:{case.port}/all{case.destination}/"
        return ["rsync", *self.best[case.kind].split(), f"{case.source}/", url]

    def settings(self, kind):
        return f"daemon {self.best[kind]}"


class RsyncSsh(Tool):
    """rsync over ssh."""

    security = "ssh"
    programs = ("rsync", "ssh", "sshd")
    receiver_names = ("rsync",)
    keeps_metadata = True

    @contextmanager
    def serving(self, case):
        with private_sshd(case) as none:
            yield none

    def client(self, case):
        return ["rsync", "-a", "-W", "-e", case.ssh, f"{case.source}/", f"carrack-test:{case.destination}/"]

    def settings(self, _kind):
        return "-a -W over ssh"


class TarSocket(Tool):
    """Two tars whose stdout and stdin are the two ends of one socket.

    In tar's default format, which keeps times in whole seconds only (so metadata isn't compared): the one
    with nanoseconds writes an extra header for every file.
    """

    programs = ("tar", "bash")
    blocks = {"big": 2048, "mib": 2048, "linux": 64}

    @contextmanager
    def serving(self, case):
        extract = ["tar", "-xpf", "-", "-B", "-b", str(self.blocks[case.kind]), "-C", str(case.destination)]
        command = [sys.executable, str(ACCEPT_ONE), str(case.port), *extract]
        with running(command, case, "tar", takes_one=True) as server:
            yield server

    def client(self, case):
        create = ["tar", "-cf", "-", "-b", str(self.blocks[case.kind]), "-C", str(case.source), "."]
        return ["bash", "-c", f'exec "$@" >/dev/tcp/{HOST}/{case.port}', "bash", *create]

    def settings(self, kind):
        return f"tar -b {self.blocks[kind]}, the socket as stdout and stdin"


class TarSocat(TarSocket):
    """tar through two socats."""

    programs = ("tar", "socat", "bash")

    @contextmanager
    def serving(self, case):
        socat = f"socat -b 262144 -u TCP-LISTEN:{case.port},bind={HOST} -"
        extract = shlex.join(["tar", "-xpf", "-", "-b", str(self.blocks[case.kind]), "-C", str(case.destination)])
        with running(["bash", "-o", "pipefail", "-c", f"{socat} | {extract}"], case, "socat", takes_one=True) as server:
            yield server

    def client(self, case):
        tar = ["tar", "-cf", "-", "-b", str(self.blocks[case.kind]), "-C", str(case.source), "."]
        socat = f"socat -b 262144 -u - TCP:{HOST}:{case.port}"
        return ["bash", "-o", "pipefail", "-c", f"{shlex.join(tar)} | {socat}"]

    def settings(self, kind):
        return f"tar -b {self.blocks[kind]} | socat -b 262144"


class Cp(Tool):
    """The local copy: no network, no second process."""

    security = "local"
    programs = ("cp",)

    def client(self, case):
        return ["cp", "-r", f"{case.source}/.", f"{case.destination}/"]

    def settings(self, _kind):
        return "-r"


class Template(Tool):
    """A tool of the command line's: a client command, and a server command if it needs one.

    `{src}`, `{dst}`, `{host}`, `{port}` and `{ssh}` are filled in; the server has to listen on `{port}`.
    """

    def __init__(self, name, client, server=None, security="?"):
        super().__init__(name)
        self._client = client
        self._server = server
        self.security = security

    def missing(self):
        program = shlex.split(self._client)[0]
        return None if shutil.which(program) else f"not installed: {program}"

    @staticmethod
    def _filled(template, case):
        places = {"src": case.source, "dst": case.destination, "host": HOST, "port": case.port, "ssh": case.ssh}
        return [word.format(**places) for word in shlex.split(template)]

    @contextmanager
    def serving(self, case):
        if "{ssh}" in self._client:
            with private_sshd(case) as none:
                yield none
        elif self._server:
            with running(self._filled(self._server, case), case, self.name) as server:
                yield server
        else:
            yield None

    def client(self, case):
        return self._filled(self._client, case)

    def settings(self, _kind):
        return self._client


def _user():
    return pwd.getpwuid(os.getuid()).pw_name


def built_in(carrack):
    """All tools that come with the harness, by name, in the order of a round."""
    tools = [
        Carrack("carrack", carrack),
        Carrack("carrack-pull", carrack, pull=True),
        Carrack("carrack-ssh", carrack, over_ssh=True),
        Carrack("carrack-ssh-pull", carrack, over_ssh=True, pull=True),
        Globus("globus"),
        RsyncDaemon("rsyncd"),
        RsyncSsh("rsync-ssh"),
        TarSocket("tar-socket"),
        TarSocat("tar-socat"),
        Cp("cp"),
    ]
    return {tool.name: tool for tool in tools}


DEFAULT_NAMES = ["carrack", "carrack-pull", "carrack-ssh", "globus", "rsyncd", "tar-socket", "tar-socat", "cp"]
