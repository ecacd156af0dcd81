"""The peers: how each is started, with the settings that were best on each kind of input.

Settings are those of BASELINE's table (best of those tried on a 2-core machine with loopback); a
kind of input without settings of its own takes those of the nearest one. Where a long way asks for other
settings, a tool has them apart (`far`).
"""

import os
import pwd
import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from . import servers
from .tool import SSH_HOST, Tool, private_sshd, running

ACCEPT_ONE = Path(__file__).resolve().parent / "accept_one.py"
# A key that both ends of WDT are given; it protects nothing.
WDT_TEST_KEY = "0123456789abcdef"


class Globus(Tool):
    """globus-url-copy against globus-gridftp-server."""

    security = "none (anonymous)"
    programs = ("globus-url-copy", "globus-gridftp-server")
    follows_links = True
    # kind: (options, whether it pulls)
    near_best = {
        "big": ("-cd -r -nodcau -fast -cc 2 -p 1 -bs 4M", False),
        "mib": ("-cd -r -nodcau -fast -pp -cc 4 -bs 1M", True),
        "linux": ("-cd -r -nodcau -fast -pp -cc 4 -bs 64K", True),
    }
    # Of those tried over 1 Gbit/s × 100 ms. On big -tcp-bs 64M changes nothing, -p 16 and -cc 4 are slower; on small
    # files more connections always help, up to these 64.
    far_best = {
        "big": ("-cd -r -nodcau -fast -p 8 -cc 2", False),
        "mib": ("-cd -r -nodcau -fast -pp -cc 16 -bs 1M", True),
        "linux": ("-cd -r -nodcau -fast -pp -cc 64 -bs 64K", True),
    }

    def __init__(self, name, far=False):
        super().__init__(name)
        self._best = self.far_best if far else self.near_best

    @contextmanager
    def serving(self, case):
        host, user = case.network.host, pwd.getpwuid(os.getuid()).pw_name
        command = ["globus-gridftp-server", "-aa", "-allow-root", "-anonymous-user", user, "-p", str(case.port)]
        with running([*command, "-control-interface", host, "-data-interface", host], case, "gridftp") as server:
            yield server

    def client(self, case):
        options, pull = self._best[case.kind]
        ends = [f"file://{case.source}/", f"file://{case.destination}/"]
        remote = 0 if pull else 1
        ends[remote] = ends[remote].replace("file://", f"ftp://{case.network.host}:{case.port}", 1)
        return ["globus-url-copy", *options.split(), *ends]

    def settings(self, kind):
        options, pull = self._best[kind]
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
        command = ["rsync", "--daemon", "--no-detach", f"--address={case.network.host}", f"--port={case.port}"]
        with running([*command, f"--config={configuration}"], case, "rsyncd") as server:
            yield server

    def client(self, case):
        url = f"rsync://{case.network.host}:{case.port}/all{case.destination}/"
        return ["rsync", *self.best[case.kind].split(), f"{case.source}/", url]

    def settings(self, kind):
        return f"daemon {self.best[kind]}"


class RsyncSsh(Tool):
    """rsync over ssh."""

    security = "ssh"
    programs = ("rsync", "ssh", "sshd")
    over_ssh = True
    receiver_names = ("rsync",)
    keeps_metadata = True

    @contextmanager
    def serving(self, case):
        with private_sshd(case) as none:
            yield none

    def client(self, case):
        return ["rsync", "-a", "-W", "-e", case.ssh, f"{case.source}/", f"{SSH_HOST}:{case.destination}/"]

    def settings(self, _kind):
        return "-a -W over ssh"


class Scp(Tool):
    """scp with its old protocol: the new one stops at a symbolic link to a directory."""

    security = "ssh aes128-gcm"
    programs = ("scp", "sshd")
    over_ssh = True
    receiver_names = ("scp",)
    follows_links = True
    keeps_name = True
    options = "-O -rp -c aes128-gcm@openssh.com"

    @contextmanager
    def serving(self, case):
        with private_sshd(case) as none:
            yield none

    def client(self, case):
        _ssh, *configuration = shlex.split(case.ssh)
        return ["scp", *self.options.split(), *configuration, str(case.source), f"{SSH_HOST}:{case.destination}/"]

    def settings(self, _kind):
        return self.options


class Rclone(Tool):
    """rclone pulling from its own web server, the quickest of its ways: 3 times webdav's rate, 5 times sftp's."""

    programs = ("rclone",)
    best = {
        "big": "--transfers 4 --checkers 8 --multi-thread-streams 4",
        "mib": "--transfers 4 --checkers 8 --buffer-size 1M --use-mmap",
        "linux": "--transfers 32 --checkers 16 --buffer-size 0 --size-only --no-check-dest",
    }

    @contextmanager
    def serving(self, case):
        command = ["rclone", "serve", "http", str(case.source), "--addr", f"{case.network.host}:{case.port}"]
        with running(command, case, "rclone") as server:
            yield server

    def client(self, case):
        url = f"http://{case.network.host}:{case.port}"
        return ["rclone", "copy", *self.best[case.kind].split(), "--http-url", url, ":http:", str(case.destination)]

    def settings(self, kind):
        return f"serve http, {self.best[kind]} pull"


class Xrdcp(Tool):
    """xrdcp pulling from xrootd."""

    programs = ("xrdcp", "xrootd")
    follows_links = True
    keeps_name = True
    best = {"big": "-r -f -N -s", "mib": "-r -f -N -s --parallel 16", "linux": "-r -f -N -s --parallel 8"}
    # xrootd won't run as root. Somebody else may not reach the source, unless with these two of root's rights.
    as_nobody = (
        "setpriv --reuid=nobody --regid=nogroup --clear-groups"
        " --inh-caps=+dac_read_search,+dac_override --ambient-caps=+dac_read_search,+dac_override"
    )

    @contextmanager
    def serving(self, case):
        configuration, admin = case.scratch / "xrootd.cfg", case.scratch / "xrootd"
        configuration.write_text(
            f"all.export {case.source} r/o\nall.adminpath {admin}\nall.pidpath {admin}\nxrd.port {case.port}\n"
        )
        prefix = self.as_nobody.split() if os.geteuid() == 0 else []
        with running([*prefix, "xrootd", "-c", str(configuration)], case, "xrootd") as server:
            yield server

    def client(self, case):
        url = f"root://{case.network.host}:{case.port}/{case.source}/"
        return ["xrdcp", *self.best[case.kind].split(), url, f"{case.destination}/"]

    def settings(self, kind):
        return f"{self.best[kind]} pull"


class Wdt(Tool):
    """Facebook's WDT, which no distribution has: built from source, on PATH or named by the variable WDT."""

    # kind: connections
    plain_ports = {"big": 2, "mib": 2, "linux": 3}
    gcm_ports = {"big": 3, "mib": 2, "linux": 2}
    far_ports = dict.fromkeys(plain_ports, servers.PORTS_EACH)
    options = "-buffer_size 262144 -block_size_mbytes 16 -enable_checksum=false -transfer_id bench"
    receiver_options = "-fsync=false -disk_sync_interval_mb=-1 -skip_fadvise=true"

    def __init__(self, name, gcm=False, far=False):
        super().__init__(name)
        self.security = "aes128-gcm" if gcm else "none"
        self._encryption = f"-encryption_type {'aes128gcm' if gcm else 'none'}"
        self._key = ["-test_only_encryption_secret", WDT_TEST_KEY] if gcm else []
        near_ports = self.gcm_ports if gcm else self.plain_ports
        self._ports = self.far_ports if far else near_ports

    @staticmethod
    def program():
        """Its path, or None."""
        return shutil.which(os.environ.get("WDT", "wdt"))

    def missing(self):
        return None if self.program() else "not installed: wdt (or let the variable WDT name it)"

    def _command(self, directory, case):
        words = self.settings(case.kind).split()
        return [self.program(), "-directory", str(directory), "-start_port", str(case.port), *words, *self._key]

    @contextmanager
    def serving(self, case):
        command = [*self._command(case.destination, case), *self.receiver_options.split()]
        with running(command, case, "wdt", takes_one=True) as server:
            yield server

    def client(self, case):
        return [*self._command(case.source, case), "-destination", case.network.host]

    def settings(self, kind):
        return f"-num_ports {self._ports[kind]} {self.options} {self._encryption}"


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
        command = [sys.executable, str(ACCEPT_ONE), case.network.host, str(case.port), *extract]
        with running(command, case, "tar", takes_one=True) as server:
            yield server

    def client(self, case):
        create = ["tar", "-cf", "-", "-b", str(self.blocks[case.kind]), "-C", str(case.source), "."]
        return ["bash", "-c", f'exec "$@" >/dev/tcp/{case.network.host}/{case.port}', "bash", *create]

    def settings(self, kind):
        return f"tar -b {self.blocks[kind]}, the socket as stdout and stdin"


class TarSocat(TarSocket):
    """tar through two socats."""

    programs = ("tar", "socat", "bash")

    @contextmanager
    def serving(self, case):
        socat = f"socat -b 262144 -u TCP-LISTEN:{case.port},bind={case.network.host} -"
        extract = shlex.join(["tar", "-xpf", "-", "-b", str(self.blocks[case.kind]), "-C", str(case.destination)])
        with running(["bash", "-o", "pipefail", "-c", f"{socat} | {extract}"], case, "socat", takes_one=True) as server:
            yield server

    def client(self, case):
        tar = ["tar", "-cf", "-", "-b", str(self.blocks[case.kind]), "-C", str(case.source), "."]
        socat = f"socat -b 262144 -u - TCP:{case.network.host}:{case.port}"
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
