"""An environment that is set up: the directories, mounts and processes of one, and how commands are run in it.

A fixture lives in a mount and process namespace of its own (`testbed/environments` sees to that): whatever is mounted or started
here is gone with it, also when a cell fails or is killed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import tree

HERE = Path(__file__).resolve().parent
COMMAND_SECONDS = 60  # far more than any command takes; one that hangs is a fault
MOUNT_SECONDS = 15
CLUSTER_SECONDS = 120
USER = 4242  # who has no account


class Skipped(Exception):
    """The environment can't be had here, for this reason."""


class Outcome:
    """What a command did."""

    def __init__(self, status, out, err):
        self.status = status
        self.out = out
        self.err = err

    def events(self):
        """The events of `--json`."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def summary(self):
        """The last of them."""
        return next((event for event in reversed(self.events()) if event.get("event") == "summary"), {})

    def told(self):
        """Everything that was said to people: warnings, losses, errors and standard error."""
        texts = [event["text"] for event in self.events() if event.get("event") in ("warning", "loss")]
        texts += [f"{event.get('path')}: {event.get('kind')}: {event.get('detail')}" for event in self.events() if event.get("event") == "failed"]
        return "\n".join(texts + [self.err.strip()] + [json.dumps(error) for error in self.summary().get("errors", [])])

    def brief(self):
        """A line of it for a report."""
        lines = [line for line in self.told().splitlines() if line.strip()]
        return " / ".join(lines[:3])[:400] or "(nothing was said)"


class Fixture:
    """An environment that is set up."""

    def __init__(self, base, carrack, built, tools):
        self.base = Path(base)
        self.carrack = str(carrack)
        self.built = built  # where what this repository builds is
        self.tools = Path(tools)
        self.home = self.base / "home"
        self.place = self.base / "place"  # where destinations are made: mounts go there
        self.plain = self.base / "plain"  # what is copied from the environment goes there
        self.prefix = []  # put before each command
        self.carrack_prefix = []  # and this before carrack only
        self.variables = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        self.user = 0
        self.umask = 0o022
        self.has_stable_inodes = True  # else a file may have another number whenever it is looked up
        self.small_bytes = 0  # of a disk that can be filled
        self.owner_of_fields = None  # user, group and mode of the directories that operations work in, else the user's own
        self.judged_outside = [self.home]  # nothing changes there
        self.parent = self.place / "field"  # of each operation's directory
        self.processes = []
        for directory in (self.home, self.place, self.plain):
            directory.mkdir(mode=0o755, exist_ok=True)
        (self.base / "shell").write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
        (self.base / "shell").chmod(0o755)

    # What environments need

    def need(self, *programs):
        """Programs that have to be installed."""
        for program in programs:
            if not shutil.which(program):
                raise Skipped(f"{program} is not installed")

    def tell(self, *command, **options):
        """Runs a command that sets something up; where it fails, the environment can't be had."""
        command = [str(word) for word in command]
        self.need(command[0])
        options.setdefault("timeout", COMMAND_SECONDS)
        # A file, as what stays behind would keep a pipe open.
        with open(self.base / "setup.log", "w+", encoding="utf-8", errors="replace") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, **options)
            log.seek(0)
            said = log.read().strip()
        if done.returncode != 0:
            first = said.splitlines()[0] if said else f"exit code {done.returncode}"
            raise Skipped(f"{os.path.basename(command[0])}: {first}".replace(str(self.base), "…")[:160])
        return said

    def device(self, megabytes, *mkfs):
        """A block device with a file system; it goes with whoever has it open."""
        return self.tell("losetup", "--find", "--show", self.image(megabytes, *mkfs))

    def image(self, megabytes, *mkfs):
        """A file with a file system, made by a command that gets its path as the last word."""
        path = self.base / "image"
        with open(path, "wb") as file:
            file.truncate(megabytes << 20)
        self.tell(*mkfs, path)
        return path

    def loop(self, megabytes, *mkfs, options="", kind=None):
        """A file system in an image, mounted by the kernel."""
        image = self.image(megabytes, *mkfs)
        words = ["-t", kind] if kind else []
        self.tell("mount", *words, "-o", "loop" + ("," + options if options else ""), image, self.place)

    def serve(self, *command, at=None, **options):
        """Starts what serves a FUSE file system, in the foreground, and waits for the mount."""
        at = at or self.place
        command = [str(word) for word in command]
        self.need(command[0])
        if not os.path.exists("/dev/fuse"):
            raise Skipped("there is no /dev/fuse")
        log = open(self.base / "server.log", "wb")
        server = subprocess.Popen(command, stdin=options.pop("stdin", subprocess.DEVNULL), stdout=log, stderr=log, **options)
        log.close()
        self.processes.append(server)
        self.has_stable_inodes = False
        deadline = time.monotonic() + MOUNT_SECONDS
        while not os.path.ismount(at):
            if time.monotonic() > deadline or server.poll() not in (None, 0):
                said = (self.base / "server.log").read_text(errors="replace").strip().splitlines()
                raise Skipped(f"{command[0]} does not mount: {said[-1] if said else 'without a word'}"[:160])
            time.sleep(0.02)

    def backing(self, mode=0o755):
        """A directory that a FUSE file system shows in another way."""
        path = self.base / "backing"
        path.mkdir()
        path.chmod(mode)
        return path

    def become(self, user=USER):
        """Commands run as this user, without his groups; the place and the home are his."""
        self.need("setpriv")
        self.user = user
        self.prefix += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        for path in (self.home, self.plain):
            os.chown(path, user, user)

    def refuse(self, error, calls):
        """System calls fail with this errno."""
        refuse = self.tools / "refuse"
        if not refuse.exists():
            raise Skipped("no C compiler")
        if subprocess.run([refuse, error, calls, "true"], check=False).returncode in (98, 99):
            raise Skipped("no seccomp, or no such system call")
        self.prefix += [str(refuse), error, calls]

    def make(self, path, mode=0o755):
        """A directory of the user's, where there are owners."""
        os.mkdir(path)
        try:
            os.chmod(path, mode)
            os.chown(path, self.user, self.user)
        except OSError:
            pass  # the file system has modes or owners of its own
        return path

    def field(self, name):
        """A directory for an operation, with a canary in it."""
        path = self.make(self.parent / name)
        tree.plant_canary(path)
        if self.owner_of_fields:
            user, group, mode = self.owner_of_fields
            os.chown(path, user, group)
            os.chmod(path, mode)
        return path

    def has(self, program):
        """Whether it is installed."""
        return shutil.which(program) is not None

    def program(self, name):
        """One that this repository builds, from where carrack is."""
        path = Path(self.built) / name
        if not path.exists():
            raise Skipped(f"there is no {name} beside carrack (cargo build --workspace)")
        return path

    def cluster(self, script, *options):
        """A file system of servers of its own, by the script of testbed."""
        up = self.tell(HERE.parent / script, "up", self.base / "cluster", *options, timeout=CLUSTER_SECONDS)
        self.tell("mount", "--bind", self.base / "cluster/mnt", self.place)
        return up

    def cgroup(self, controller, file, value):
        """A cgroup for all commands, of version 1 where that has the controller, else of version 2; with one limit of each
        version's name. `testbed/environments` removes it."""
        legacy = os.path.isdir(f"/sys/fs/cgroup/{controller}")
        group = Path(f"/sys/fs/cgroup/{controller}" if legacy else "/sys/fs/cgroup") / self.base.name
        try:
            group.mkdir()
            (group / file[0 if legacy else 1]).write_text(str(value))
        except OSError as error:
            raise Skipped(f"no cgroups with {controller} here: {error.strerror}") from error
        self.prefix += ["sh", "-c", 'echo 0 >"$1" || exit 97; shift; exec "$@"', "sh", str(group / "cgroup.procs")]

    def keys(self):
        """A copy of the certificates for a daemon and a client, of the user's own: others' keys are refused."""
        path = self.base / "keys"
        if not path.exists():
            shutil.copytree(self.tools / "keys", path)
            for directory, _, files in os.walk(path):
                for name in [".", *files]:
                    os.chown(os.path.join(directory, name), self.user, self.user)
            self.variables["CARRACK_CA"] = str(path / "authority/ca.pem")
        return path

    # Commands

    def run(self, *words, prefix=None, umask=None, timeout=COMMAND_SECONDS):
        """carrack with these words, in the environment."""
        return self.command([*self.carrack_prefix, self.carrack, *words], prefix=prefix, umask=umask, timeout=timeout)

    def command(self, words, prefix=None, stdin="", umask=None, timeout=COMMAND_SECONDS):
        """Any command in the environment."""
        process = self.start(words, prefix=prefix, umask=umask, stdin=subprocess.PIPE)
        try:
            out, err = process.communicate(stdin.encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_group(process)
            out, err = process.communicate()
            return Outcome(-1, out.decode(errors="replace"), f"did not end within {timeout} s\n" + err.decode(errors="replace"))
        return Outcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def start(self, words, prefix=None, umask=None, stdin=subprocess.DEVNULL):
        """The same, without waiting; it leads a group of its own."""
        prefix = self.prefix if prefix is None else prefix
        return subprocess.Popen(
            [*prefix, *(os.fsencode(word) for word in words)], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=self.variables, umask=self.umask if umask is None else umask, cwd=self.base, start_new_session=True,
        )

    def far(self):
        """The options with which another host is this one: a program in the place of ssh."""
        return ["--ssh", str(self.base / "shell"), "--remote-carrack", self.carrack]

    def probe(self, directory):
        """What the directory can keep (probe.py), asked as carrack is run."""
        wanted = {
            "names": [name.hex() for name in tree.WANTED_NAMES],
            "times": [tree.ORDINARY_NS, tree.OLD_NS, tree.LATE_NS, *(tree.ORDINARY_NS + k * 60_001_000_003 for k in range(3))],
            "acl": tree.acl_with_user(tree.OTHER_USER).hex(),
            "user": tree.OTHER_USER,
        }
        # One that other users may start too.
        python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
        done = self.command([python, "-I", str(HERE / "probe.py"), str(directory)], stdin=json.dumps(wanted), umask=0)
        if done.status != 0:
            said = done.err.strip().splitlines() or [f"exit code {done.status}"]
            raise Skipped(f"a directory there can't be asked what it keeps: {said[-1]}".replace(str(self.base), "…")[:200])
        return json.loads(done.out)


def kill_group(process):
    """Ends a command and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
