"""What a figure has to be told with: when, of which commit, on which machine, beside which programs."""

import datetime
import shlex
import subprocess
import sys
from pathlib import Path

from . import machine, network, peers

VERSION_COMMANDS = {
    "globus-url-copy": ["globus-url-copy", "-version"],
    "globus-gridftp-server": ["globus-gridftp-server", "--version"],
    "rsync": ["rsync", "--version"],
    "tar": ["tar", "--version"],
    "socat": ["socat", "-V"],
    "OpenSSH": ["ssh", "-V"],
    "rclone": ["rclone", "version"],
    "xrootd": ["xrdcp", "--version"],
}


# What a measurement itself writes into the work tree.
WRITTEN_FILES = ("RESULTS.md", "results.json", "COMBINATIONS.md", "CONGESTION.md", "congestion.json", "FAULTS.md", "FLEET.md", "fleet.json", "SPINDLE.md", "SHARING.md", "sharing.json", "SPILL.md", "TUNER.md", "tuner.json")


def first_line(command):
    """What a program says about its version."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=10)
    except OSError:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if any(c.isdigit() for c in line)]
    return lines[0] if lines else None


def versions(carrack):
    """All programs' versions, in one line."""
    commands = {"carrack": [str(carrack), "--version"], **VERSION_COMMANDS}
    if peers.Wdt.program():
        commands["wdt"] = [peers.Wdt.program(), "--version"]
    found = {name: first_line(command) for name, command in commands.items()}
    return "; ".join(f"{name}: {line}" for name, line in found.items() if line)


def git(*words):
    """What git says about this repository, or None."""
    try:
        done = subprocess.run(["git", "-C", str(network.ROOT), *words], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit():
    """The repository's commit, marked when the work tree differs from it in more than results."""
    name = git("rev-parse", "--short=12", "HEAD")
    changes = git("status", "--porcelain", "--", ".", *(f":!bench/{file}" for file in WRITTEN_FILES))
    return f"{name or 'unknown'}{'-dirty' if changes else ''}"


def describe(work_dir, carrack):
    """All of it, for a section of results.json."""
    return {
        "command": shlex.join([f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": machine.describe(work_dir),
        "versions": versions(carrack),
    }
