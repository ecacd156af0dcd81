"""What the commands of `bench/` have in common on their command lines."""

import argparse
import math
import shlex
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from . import network, rounds, tools, workloads

BENCH_DIR = network.ROOT / "bench"


def names(text):
    """A comma list."""
    return [name for name in text.split(",") if name]


def workload_names(text):
    """A comma list of workloads."""
    for name in names(text):
        if name not in workloads.KNOWN:
            raise argparse.ArgumentTypeError(f"no such workload: {name}; there are {', '.join(workloads.KNOWN)}")
    return names(text)


def named(text):
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"not NAME=VALUE: {text}")
    return name, value


def share(text):
    """A number above 0, 1 at most."""
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"not above 0 and at most 1: {text}")
    return value


def parser(words, default_rounds, default_workloads):
    """A parser with what every command takes."""
    result = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = result.add_argument
    add("--rounds", type=int, default=default_rounds, help=f"default {default_rounds}")
    add("--workloads", type=workload_names, default=default_workloads, help=f"of: {', '.join(workloads.KNOWN)}")
    add("--scale", type=share, default=1.0, help="make the workloads smaller, to try the harness")
    add("--work-dir", type=Path, default=Path("/dev/shm"), metavar="DIR", help="on tmpfs (default /dev/shm)")
    add("--idle-timeout", type=float, default=120, metavar="S", help="wait for an idle machine so long; 0: don't")
    add("--run-timeout", type=float, default=300, metavar="S", help="a run that takes longer is ended (default 300)")
    return result


def add_comparing(add, tool_names):
    """What the commands take that compare carrack with its peers and write RESULTS.md."""
    add("--tools", type=names, help=f"or all; default: {','.join(tool_names)}, and all --tool, --variant")
    add("--carrack", type=Path, default=network.ROOT / "target/release/carrack", metavar="PATH")
    add("--variant", type=named, action="append", default=[], metavar="NAME=OPTIONS", help="carrack with options")
    add("--tool", type=named, action="append", default=[], metavar="NAME=COMMAND")
    add("--tool-server", type=named, action="append", default=[], metavar="NAME=COMMAND")
    add("--tool-security", type=named, action="append", default=[], metavar="NAME=WORDS")
    add("--once-above", type=float, default=60, metavar="S", help="a tool slower than this runs once (default 60)")
    add("--out", type=Path, metavar="DIR", help=f"for RESULTS.md and results.json (default {BENCH_DIR})")


def out_dir(args):
    """Where the results go. Those of a smaller workload would stand for the real one's."""
    if args.out is None and args.scale != 1:
        sys.exit("error: --scale is to try the harness\nhint: give a directory for its results: --out DIR")
    return args.out or BENCH_DIR


def all_tools(args, far):
    """Every tool that the command line can mean, by name."""
    carrack = args.carrack
    known = tools.built_in(carrack, far)
    for name, words in args.variant:
        known[name] = tools.Carrack(name, carrack, extra=shlex.split(words))
    tool_servers = dict(args.tool_server)
    for name, command in args.tool:
        known[name] = tools.Template(name, command, tool_servers.get(name))
    for name, words in args.tool_security:
        known[name].security = words
    return known


def choose_tools(args, defaults, far=False):
    """(tools that run, {name: reason} of those that can't)."""
    known = all_tools(args, far)
    chosen = args.tools or defaults + [name for name, _ in args.variant + args.tool]
    if chosen == ["all"]:
        chosen = list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        sys.exit(f"error: no such tool: {', '.join(unknown)}\nhint: there are {', '.join(known)}")
    missing = {name: known[name].missing() for name in chosen if known[name].missing()}
    for name, reason in missing.items():
        rounds.say(f"{name} is left out: {reason}")
    if len(missing) == len(chosen):
        sys.exit("error: no tool left to run")
    return [known[name] for name in chosen if name not in missing], missing


def measuring(args, directory):
    """How to measure, of the command line."""
    once_above_s = getattr(args, "once_above", math.inf)  # bench/ab has no such option
    return rounds.Options(args.rounds, once_above_s, args.idle_timeout, args.run_timeout, directory)


def own_copy(program, directory):
    """A copy of a program that no build replaces between two runs, or between the two ends of one."""
    directory.mkdir(parents=True)
    return Path(shutil.copy2(program, directory))


@contextmanager
def work_dir(args):
    """A directory of the command's own, for the time of a `with`."""
    path = Path(tempfile.mkdtemp(prefix="carrack-bench.", dir=args.work_dir))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that it is cleaned up then, too
    try:
        yield path
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(path, ignore_errors=True)
