"""Runs a script in the guest of `testbed/guest`, and reads what it recorded."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "testbed" / "guest"
SCRIPTS = ROOT / "testbed" / "guest.d"
PLUGIN_SOURCE = ROOT / "testbed" / "numacount.c"
# Built for every guest.
HELPERS = ["witness.c", "mark.c"]

# What testbed/guest builds: its NODES, CPUS_PER_NODE, NODES_PER_SOCKET.
NODES = 4
CPUS_PER_NODE = 2
NODES_PER_SOCKET = 2


def node_of_cpu(cpu):
    """The node that a CPU belongs to."""
    return cpu // CPUS_PER_NODE


def socket_of_node(node):
    """The socket that a node belongs to."""
    return node // NODES_PER_SOCKET


class GuestError(Exception):
    """The guest's script failed, or the guest did."""


def run(script, arguments=(), **how):
    """Runs it as `run_text` does. Its exit status and its records, JSON objects."""
    status, text = run_text(script, arguments, **how)
    return status, read_records(text)


def run_text(script, arguments=(), *, carrack, limit_s, memory_mib=512, disk_mib=256, files=(), plugin=None, console=sys.stderr):
    """Runs it; its console goes to `console`. Its exit status and what it wrote to /dev/records."""
    with tempfile.TemporaryDirectory(prefix="carrack-guest.") as work_dir:
        records = Path(work_dir, "records")
        command = [PROGRAM, "run", "--carrack", carrack, "--limit", str(limit_s), "--memory", str(memory_mib)]
        command += ["--disk", str(disk_mib), "--records", records]
        for name in HELPERS:
            command += ["--program", SCRIPTS / name]
        for path in files:
            command += ["--file", path]
        if plugin:
            command += ["--plugin", plugin]
        talk = {"stdout": subprocess.PIPE, "text": True, "errors": "replace"}
        with subprocess.Popen([*command, script, *arguments], **talk) as process:
            for line in process.stdout:
                console.write(line.replace("\r", ""))
                console.flush()
        return process.returncode, records.read_text() if records.exists() else ""


def read_records(text):
    """JSON objects, one a line."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def sections(records, key):
    """Records in groups, each begun by one that has `key`; what comes before the first is left out."""
    groups = []
    for record in records:
        if key in record:
            groups.append((record, []))
        elif groups:
            groups[-1][1].append(record)
    return groups


def build_plugin(directory):
    """Compiles the counting plugin; its path."""
    path = Path(directory, "libnumacount.so")
    subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", path, PLUGIN_SOURCE], check=True)
    return path
