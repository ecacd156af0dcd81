"""carrack itself, tools of the command line's, and the lists that tools are chosen from."""

import os
import re
import shlex
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from . import peers
from .tool import SSH_HOST, Tool, private_sshd, running


# What --checksum means, in the words of the security column.
CHECKS = {"xxh3": "XXH3 checked", "blake3": "BLAKE3 checked", "none": "unchecked"}


def security(options):
    """What options of carrack's mean for the data, in words. Where it is sealed, the seal is the check."""

    def value(name, default):
        found = re.search(rf"--{name}[= ](\S+)", " ".join(options))
        return found[1] if found else default

    level = value("protection", "private")
    if level == "clear":
        return f"clear, {CHECKS[value('checksum', 'xxh3')]}"
    check = value("checksum", "none")
    return f"{level}, {value('cipher', 'aes-256-gcm')}" + ("" if check == "none" else f", {CHECKS[check]}")


def state_home():
    """Where programs keep what they know, on the storage that they have for it."""
    path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path.mkdir(parents=True, exist_ok=True)
    return path


class Carrack(Tool):
    """carrack, over a direct shell or over real ssh, pushing or pulling."""

    keeps_metadata = True

    def __init__(self, name, program, over_ssh=False, pull=False, extra=()):
        super().__init__(name)
        self.program = str(program)
        self.over_ssh = over_ssh
        self.pull = pull
        self.extra = list(extra)
        self._state_words = []
        self.security = security(self.extra)
        self.watched_name = Path(self.program).name[:15]
        self.receiver_names = (self.watched_name,)

    def missing(self):
        if not os.access(self.program, os.X_OK):
            return f"no program {self.program} (make build)"
        return "not installed: sshd" if self.over_ssh and not shutil.which("sshd") else None

    @contextmanager
    def serving(self, case):
        # A run's tuner would begin with what the last run's has found out, whichever way and program that was.
        with tempfile.TemporaryDirectory(prefix="carrack-bench-", dir=state_home()) as state:
            self._state_words = ["env", f"XDG_STATE_HOME={state}"]
            if self.over_ssh:
                with private_sshd(case) as none:
                    yield none
            else:
                yield None

    def client(self, case):
        shell, host = (case.ssh, SSH_HOST) if self.over_ssh else (case.network.shell, case.network.host)
        ends = [f"{case.source}/", f"{case.destination}/"]
        remote = 0 if self.pull else 1
        ends[remote] = f"{host}:{ends[remote]}"
        options = ["-r", "-q", "--ssh", shell, "--remote-carrack", self.program, *self.extra]
        return [*self._state_words, self.program, "cp", *options, *ends]

    def settings(self, _kind):
        words = ["pull" if self.pull else "push", "over ssh" if self.over_ssh else "over a shell without ssh"]
        return " ".join([*words, *self.extra])


class Template(Tool):
    """A tool of the command line's: a client command, and a server command if it needs one.

    `{src}`, `{dst}`, `{host}`, `{port}` and `{ssh}` are filled in; the server has to listen on `{port}`.
    """

    def __init__(self, name, client, server=None, security="?"):
        super().__init__(name)
        self._client = client
        self._server = server
        self.security = security
        self.over_ssh = "{ssh}" in client

    def missing(self):
        program = shlex.split(self._client)[0]
        return None if shutil.which(program) else f"not installed: {program}"

    @staticmethod
    def _filled(template, case):
        places = {"src": case.source, "dst": case.destination, "host": case.network.host}
        return [word.format(**places, port=case.port, ssh=case.ssh) for word in shlex.split(template)]

    @contextmanager
    def serving(self, case):
        if self.over_ssh:
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


def built_in(carrack, far=False):
    """All tools that come with the harness, by name, in the order of a round."""
    tools = [
        Carrack("carrack", carrack, extra=["--protection=clear"]),
        Carrack("carrack-pull", carrack, pull=True, extra=["--protection=clear"]),
        Carrack("carrack-none", carrack, extra=["--protection=clear", "--checksum=none"]),
        Carrack("carrack-private", carrack),
        Carrack("carrack-safe", carrack, extra=["--protection=safe"]),
        Carrack("carrack-ssh", carrack, over_ssh=True),
        Carrack("carrack-ssh-pull", carrack, over_ssh=True, pull=True),
        peers.Globus("globus", far),
        peers.RsyncDaemon("rsyncd"),
        peers.RsyncSsh("rsync-ssh"),
        peers.TarSocket("tar-socket"),
        peers.TarSocat("tar-socat"),
        peers.Wdt("wdt", far=far),
        peers.Wdt("wdt-gcm", gcm=True, far=far),
        peers.Scp("scp"),
        peers.Rclone("rclone"),
        peers.Xrdcp("xrdcp"),
        peers.Cp("cp"),
    ]
    return {tool.name: tool for tool in tools}


# Without those that are slow (scp, rclone, xrdcp) or add little; `--tools all` has them.
DEFAULT_NAMES = ["carrack", "carrack-pull", "carrack-none", "carrack-private", "carrack-ssh", "globus", "rsyncd", "tar-socket"]
DEFAULT_NAMES += ["tar-socat", "wdt", "wdt-gcm", "cp"]

WAN_NAMES = ["carrack", "globus", "rsyncd", "scp", "tar-socat"]
