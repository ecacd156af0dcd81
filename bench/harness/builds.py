"""carrack of a git revision, built in a target directory of its own."""

import os
import subprocess
from contextlib import contextmanager

from . import context, network, rounds

HOME = network.ROOT / "target" / "ab"
WORKTREE = "WORKTREE"


def program_of(revision):
    """The path of carrack as of a revision; `WORKTREE` is what lies here now, committed or not."""
    if revision == WORKTREE:
        return _build(network.ROOT, HOME / WORKTREE.lower())
    commit = context.git("rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    if commit is None:
        raise LookupError(f"no such revision: {revision}")
    built = HOME / commit / "release" / "carrack"
    if built.exists():
        return built
    with _checked_out(commit) as source:
        return _build(source, HOME / commit)


@contextmanager
def _checked_out(commit):
    """A work tree of the commit, for the time of a `with`."""
    source = str(HOME / f"{commit}.source")
    worktree = ["git", "-C", str(network.ROOT), "worktree"]
    _run([*worktree, "add", "--quiet", "--force", "--detach", source, commit])
    try:
        yield source
    finally:
        _run([*worktree, "remove", "--force", source])


def _build(source, target):
    """Builds the program of a source directory; its path."""
    rounds.say(f"building {source} in {target}")
    cargo = [os.environ.get("CARGO", "cargo"), "build", "--quiet", "--release", "--package", "carrack"]
    _run([*cargo, "--target-dir", str(target)], cwd=source)
    return target / "release" / "carrack"


def _run(command, cwd=None):
    """A command whose talk is talk; stdout is for data."""
    subprocess.run(command, check=True, cwd=cwd, stdout=2)
