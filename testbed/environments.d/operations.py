"""The operations, one function for each column of the table: each makes what it needs, runs carrack, and returns its complaints.

An operation has a directory of its own for its destination, `cell.at`, with a canary beside it that nothing may touch.
"""

import os
import re
import shutil
import signal
import time
from pathlib import Path

import judgement
import tree
from fixture import kill_group
from judgement import Expected

OPERATIONS = {}


class NotApplicable(Exception):
    """The operation says nothing in this environment."""


def operation(title):
    """Puts a function into the table."""

    def put(function):
        OPERATIONS[title] = function
        return function

    return put


class Cell:
    """An operation in an environment."""

    def __init__(self, fixture, source, probe, name):
        self.fixture = fixture
        self.source = Path(source)
        self.probe = probe
        self.at = fixture.parent / name
        self.to = self.at / "copy"
        self.commands = []
        self.has_failed = False

    def run(self, *words, **options):
        """carrack in the environment; the command is kept for the report."""
        words = [str(word) for word in words]
        self.commands.append("carrack " + " ".join(words))
        outcome = self.fixture.run(*words, **options)
        self.has_failed = self.has_failed or outcome.status != 0
        return outcome

    def from_source(self):
        """The source, for its contents."""
        return f"{self.source}/"

    def expected(self, archive, **others):
        """What a copy here has to keep."""
        return Expected(self.probe, archive, self.fixture.umask, self.fixture.user, **others)

    def judge(self, outcome, archive, resumed=False, **others):
        """The copy, and what the command said. A run that goes on with another's does not tell what that one did not keep."""
        expected = self.expected(archive, **others)
        complaints = judgement.status(outcome, [0])
        if not os.path.isdir(self.to):
            return complaints or [f"nothing is there: {outcome.brief()}"]
        source, copy = tree.snapshot(self.source), tree.snapshot(self.to)
        complaints += judgement.compare(source, copy, expected)
        return complaints + ([] if resumed else judgement.losses(source, copy, outcome, expected))


def tell_older(cell):
    """What an earlier version of the source left at the destination: one file of another content, one that is the same."""
    fixture = cell.fixture
    made = fixture.command(
        ["sh", "-c", 'mkdir -p "$1/sub" && echo older >"$1/sub/small-0" && { cp -p "$2/sub/small-4" "$1/sub/" 2>"$1/.x" || :; rm "$1/.x"; }', "sh", cell.to, cell.source]
    )
    return judgement.status(made, [0])


@operation("cp")
def copy(cell):
    """carrack cp -r"""
    return cell.judge(cell.run("cp", "-r", "--json", cell.from_source(), cell.to), archive=False)


@operation("cp -a")
def copy_archive(cell):
    """carrack cp -a"""
    return cell.judge(cell.run("cp", "-a", "--json", cell.from_source(), cell.to), archive=True)


@operation("push")
def push(cell):
    """carrack cp -a to another host, by a program in the place of ssh"""
    outcome = cell.run("cp", "-a", "--json", *cell.fixture.far(), cell.from_source(), f"h:{cell.to}")
    return cell.judge(outcome, archive=True)


@operation("pull")
def pull(cell):
    """carrack cp -a from the environment, as from another host, to a plain directory"""
    fixture = cell.fixture
    made = fixture.command(["cp", "-a", "--no-preserve=context", cell.source, cell.to])
    if not os.path.isdir(cell.to):
        raise NotApplicable(f"cp can't make a source there: {made.err.strip()[:100]}")
    source = tree.snapshot(cell.to)
    to = fixture.plain / "pulled"
    outcome = cell.run("cp", "-a", "--json", *fixture.far(), f"h:{cell.to}/", to)
    complaints = judgement.status(outcome, [0])
    if os.path.isdir(to):
        expected = Expected(fixture.plain_probe, True, fixture.umask, fixture.user, names_known=fixture.has_stable_inodes)
        copied = tree.snapshot(to)
        complaints += judgement.compare(source, copied, expected) + judgement.losses(source, copied, outcome, expected)
    elif not complaints:
        complaints.append("nothing is there")
    return complaints + judgement.untouched(source, tree.snapshot(cell.to), "source", times=fixture.has_stable_inodes)


@operation("sync")
def sync(cell):
    """carrack sync over an older copy"""
    complaints = tell_older(cell)
    outcome = cell.run("sync", "--json", cell.from_source(), cell.to)
    complaints += judgement.status(outcome, [0])
    if not os.path.isdir(cell.to):
        return complaints
    source, found = tree.snapshot(cell.source), tree.snapshot(cell.to)
    expected = cell.expected(archive=False)
    # What was there keeps its mode: it is judged by the other operations.
    for path in (b"", b"sub", b"sub/small-0", b"sub/small-4"):
        if path in found and path in source:
            found[path].mode = source[path].mode & ~cell.fixture.umask & 0o777
    return complaints + judgement.compare(source, found, expected)


@operation("sync again")
def sync_again(cell):
    """carrack sync -a twice: the second run has nothing to send"""
    complaints = judgement.status(cell.run("sync", "-a", "--json", cell.from_source(), cell.to), [0])
    if not os.path.isdir(cell.to):
        return complaints
    before = tree.snapshot(cell.to)
    again = cell.run("sync", "-a", "--json", cell.from_source(), cell.to)
    complaints += judgement.status(again, [0])
    summary = again.summary()
    for key in ("files_done", "symlinks_done", "bytes_done"):
        if summary.get(key, 0) != 0:
            complaints.append(f"the second run is not idle: {key} is {summary[key]}")
    return complaints + judgement.untouched(before, tree.snapshot(cell.to), "second run")


@operation("sync --delete")
def sync_delete(cell):
    """carrack sync --delete, with entries that the source has not"""
    complaints = judgement.status(cell.run("sync", "--json", cell.from_source(), cell.to), [0])
    script = 'cd "$1" && echo extra >extra && mkdir -p more/below && echo extra >more/below/file && echo extra >sub/extra'
    complaints += judgement.status(cell.fixture.command(["sh", "-c", script, "sh", cell.to]), [0])
    outcome = cell.run("sync", "--delete", "--json", cell.from_source(), cell.to)
    if not os.path.isdir(cell.to):
        return complaints
    complaints += judgement.status(outcome, [0])
    return complaints + judgement.compare(tree.snapshot(cell.source), tree.snapshot(cell.to), cell.expected(archive=False))


@operation("kill, resume")
def kill_and_resume(cell):
    """kill -9 of a copy to another host, and at once the same command again"""
    fixture = cell.fixture
    words = ["cp", "-a", "--json", *fixture.far(), cell.from_source(), f"h:{cell.to}"]
    cell.commands.append("carrack " + " ".join(map(str, words)) + " --bwlimit 2MB/s (killed)")
    process = fixture.start([*fixture.carrack_prefix, fixture.carrack, *words, "--bwlimit", "2MB/s"])
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline and not has_large_part(cell.to):
        time.sleep(0.01)
    # Only the command itself, as a user's kill does: what it has started has to notice.
    process.send_signal(signal.SIGKILL)
    process.wait()
    outcome = cell.run(*words)
    complaints = cell.judge(outcome, archive=True, resumed=True)
    kill_group(process)
    process.stdout.close()
    process.stderr.close()
    return complaints


def has_large_part(directory):
    """Whether some of the large file is there, under whatever name."""
    try:
        return any(entry.is_file(follow_symlinks=False) and entry.stat().st_size >= 1 << 20 for entry in os.scandir(directory))
    except OSError:
        return False


@operation("verify")
def verify(cell):
    """carrack verify of a good copy, and of one in which a byte is another"""
    complaints = judgement.status(cell.run("cp", "-r", "--json", cell.from_source(), cell.to), [0])
    complaints += judgement.status(cell.run("verify", "--no-times", cell.from_source(), cell.to), [0])
    damage = 'f=$1/sub/small-2; cp -p "$f" "$2/kept" && chmod u+w "$f" && printf x | dd of="$f" bs=1 seek=50 conv=notrunc status=none && touch -r "$2/kept" "$f"'
    damaged = cell.fixture.command(["sh", "-c", damage, "sh", cell.to, cell.fixture.home])
    (cell.fixture.home / "kept").unlink(missing_ok=True)
    if damaged.status != 0:
        return complaints
    return complaints + judgement.status(cell.run("verify", "--no-times", cell.from_source(), cell.to), [1])


@operation("daemon")
def daemon(cell):
    """carrack cp -a to a daemon whose export is in the environment, and back to a plain directory"""
    fixture = cell.fixture
    keys = fixture.keys()
    config = keys / "carrack.toml"
    config.write_text(
        f'listen = ["127.0.0.1:0"]\naudit = "{keys}/audit"\n[tls]\ncertificate = "{keys}/server.pem"\nkey = "{keys}/server-key.pem"\n'
        f'client_ca = ["{keys}/authority/ca.pem"]\nrevoked = ["{keys}/authority/revoked.pem"]\n'
        f'[[export]]\nname = "data"\npath = "{cell.at}"\nallow = [{{ identity = "alice", read = true, write = true }}]\n'
    )
    if fixture.user:
        os.chown(config, fixture.user, fixture.user)
    serving = fixture.start([*fixture.carrack_prefix, fixture.carrack, "serve", "--verbose", "--config", config])
    try:
        port = port_of(serving)
        if port is None:
            return [f"the daemon does not start: {serving.stderr.read().decode(errors='replace')[-300:]}"]
        url = f"carrack://localhost:{port}/data/copy"
        sure = ["--identity", keys / "alice.pem", "--ca", keys / "authority/ca.pem"]
        put = cell.run("cp", "-a", "--json", *sure, cell.from_source(), url)
        complaints = [f"put: {words}" for words in cell.judge(put, archive=True, daemon=True)]
        there = tree.snapshot(cell.to) if os.path.isdir(cell.to) else {}
        back = fixture.plain / "back"
        got = cell.run("cp", "-a", "--json", *sure, f"{url}/", back)
        complaints += [f"get: {words}" for words in judgement.status(got, [0])]
        if os.path.isdir(back):
            expected = Expected(fixture.plain_probe, True, fixture.umask, fixture.user, names_known=fixture.has_stable_inodes)
            complaints += [f"get: {words}" for words in judgement.compare(there, tree.snapshot(back), expected)]
        return complaints
    finally:
        kill_group(serving)
        serving.communicate()


def port_of(serving):
    """The port that a daemon says that it listens at, or None where it ends."""
    os.set_blocking(serving.stderr.fileno(), False)
    said = b""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        said += serving.stderr.read() or b""
        found = re.search(rb"listening on \S*:(\d+)", said)
        if found:
            return int(found[1])
        if serving.poll() is not None:
            os.set_blocking(serving.stderr.fileno(), True)
            return None
        time.sleep(0.01)
    return None


@operation("names")
def names(cell):
    """carrack cp -r of names that the file system can't hold or tell apart, and of symbolic links: each is there, or is an entry that failed"""
    fixture = cell.fixture
    source = fixture.base / "unholdable"
    tree.build_unholdable(source, fixture.user)
    try:
        outcome = cell.run("cp", "-r", "--json", f"{source}/", cell.to)
        wanted = tree.snapshot(source)
        failing = failing_paths(cell.probe)
        folding = set(tree.FOLDING_NAMES) if cell.probe["folds"] else set()
        complaints = judgement.status(outcome, [1] if failing or folding else [0])
        if not os.path.isdir(cell.to):
            return complaints
        found = tree.snapshot(cell.to)
        if folding:
            complaints += judge_folded(wanted, found)
            wanted = {path: entry for path, entry in wanted.items() if path not in folding}
            found = {path: entry for path, entry in found.items() if path not in folding}
        complaints += judgement.compare(wanted, found, cell.expected(archive=False), missing=failing)
        told = outcome.summary().get("entries_failed", 0)
        if told != len(failing) + len(folding) // 2:
            complaints.append(f"{told} entries failed, and {len(failing) + len(folding) // 2} can't be held: {outcome.brief()}")
        return complaints
    finally:
        shutil.rmtree(source)


def failing_paths(probe):
    """What of that tree the file system can't hold."""
    held = {bytes.fromhex(name) for name in probe["names"]}
    failing = {b"odd/" + name for name in tree.WANTED_NAMES if name not in held}
    return failing | (set() if probe["symlinks"] else {b"links/link"})


def judge_folded(wanted, found):
    """One of two names that are one place, with its own content."""
    there = [path for path in tree.FOLDING_NAMES if path in found]
    if len(there) != 1:
        return [f"of two names for one place there are: {[judgement.shown(path) for path in there]}"]
    if not found[there[0]].same_content(wanted[there[0]]):
        return [f"{judgement.shown(there[0])} has the content of the other name"]
    return []


@operation("disk full")
def disk_full(cell):
    """carrack cp -r of more than there is room for, then again when there is: only where the environment says that it is small"""
    room = cell.fixture.small_bytes
    if not room:
        raise NotApplicable("the disk is large")
    filler = cell.at / "filler"
    free = os.statvfs(cell.at).f_bavail * os.statvfs(cell.at).f_frsize
    filler.write_bytes(b"\1" * max(free - (tree.LARGE_BYTES // 2), 0))
    outcome = cell.run("cp", "-r", "--json", cell.from_source(), cell.to)
    source = tree.snapshot(cell.source)
    found = tree.snapshot(cell.to) if os.path.isdir(cell.to) else {}
    complaints = [
        f"{judgement.shown(path)} is there with another content"
        for path, entry in found.items() if path in source and not source[path].same_content(entry)
    ]
    # Which file comes first is open: the one that there is no room for may.
    is_any_there = any(entry.kind == "file" and path in source for path, entry in found.items())
    complaints += judgement.status(outcome, [1] if is_any_there else [3])
    filler.unlink()
    return complaints + cell.judge(cell.run("cp", "-r", "--json", cell.from_source(), cell.to), archive=False)


