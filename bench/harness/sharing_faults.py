"""Faults of the meta-server and of its clients while transfers run, for bench/sharing."""

import re
import signal
import statistics
import tempfile
import time

from . import sharing_run
from .regular import Regular

COUNT = 4
# Of each disk: some 17 s for all of them. They stay in memory until the end.
PIECES = 8
# From the beginning to the fault, of which the first part is no measure of anything.
BEFORE_S = 4.0
SETTLE_S = 1.5
KILLED_S = 3.0
STOPPED_S = 5.0
POLL_S = 0.02
MOST_S = 180
ALONE = "does not answer: going on without its grants"
MANAGED = "answers again: keeping to its grants"
# What a client is called: its user, host, process and number.
CLIENT = re.compile(r":(\d+):")
KINDS = {
    "killed": f"meta-server killed, started {KILLED_S:.0f} s later",
    "stopped": f"meta-server stopped for {STOPPED_S:.0f} s (it is there, and answers nothing)",
    "restarted": "meta-server ended and started at once",
    "client": "a transfer killed that has what others wait for",
}


class Watch(Regular):
    """Asks the daemon who has each target, every `POLL_S`, for the time of a `with`."""

    def __init__(self, socket):
        super().__init__(POLL_S)
        self.seen = []  # (monotonic time, {target: (processes that have it now, whether others wait)})
        self._socket = socket

    def look(self):
        """Who has them now, if it answers."""
        targets = sharing_run.targets_of(self._socket)
        if targets is not None:
            self.seen.append((time.monotonic(), {target["target"]: _holders(target) for target in targets}))

    def held_by_others(self, targets, since_s, pid=None):
        """{target: seconds until somebody else than this process was seen to have it, None if nobody was}."""
        found = dict.fromkeys(targets)
        for at_s, state in self.seen:
            for target in targets:
                holders, _ = state.get(target, (set(), False))
                if at_s > since_s and found[target] is None and holders - {pid}:
                    found[target] = at_s - since_s
        return found

    def contended(self, pid):
        """What this process has and others wait for, when the daemon was last asked."""
        latest = self.seen[-1][1] if self.seen else {}
        return [target for target, (holders, is_wanted) in latest.items() if pid in holders and is_wanted]


def _holders(target):
    has_it = [holder["client"] for holder in target["holders"] if holder["starts_in_us"] == 0]
    processes = {int(found.group(1)) for client in has_it if (found := CLIENT.search(client))}
    return processes, bool(target["waiting"])


class Trial:
    """Transfers beside a daemon, until the fault is over and they have ended."""

    def __init__(self, stage, daemon):
        self.stage = stage
        self.daemon = daemon
        self.fault_s = None  # when it happened
        self.over_s = None  # from when on there is a meta-server that answers

    def command(self, number):
        """Of one transfer."""
        files = self.stage.disks.part(number, COUNT, PIECES)
        place = self.stage.disks.copies / f"t{number}"
        return sharing_run.copy_command(self.stage.carrack, files, place, self.daemon.socket, "--verbose")

    def wrong(self):
        """How many of all copies are not there, or not as their source."""
        copies = [
            self.stage.disks.copies / f"t{number}" / file.name
            for number in range(COUNT) for file in self.stage.disks.part(number, COUNT, PIECES)
        ]
        return sum(not copy.is_file() or not self.stage.disks.is_right(copy) for copy in copies)

    def of_server(self, kind):
        """One of the first three kinds."""
        self.fault_s = time.monotonic()
        if kind == "stopped":
            self.daemon.signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)
            self.over_s = time.monotonic()
            self.daemon.signal(signal.SIGCONT)
            return
        self.daemon.end(signal.SIGTERM if kind == "restarted" else signal.SIGKILL)
        if kind == "killed":
            time.sleep(KILLED_S)
        self.daemon.start()
        self.over_s = time.monotonic()

    def of_client(self, started, watch):
        """Kills one of them while others wait for what it has: which, and for what."""
        found = []

        def holds():
            found[:] = max(((watch.contended(one.pid), one) for one in started), key=lambda pair: len(pair[0]))
            return bool(found[0])

        if not sharing_run.wait_until(holds, BEFORE_S, POLL_S):
            raise OSError("no transfer has a target that others wait for")
        wanted, victim = found
        victim.kill()
        self.fault_s = self.over_s = time.monotonic()
        return victim, wanted


def run(stage, kind):
    """The figures of one fault."""
    with tempfile.TemporaryDirectory(prefix="carrack-sharing-") as directory, stage.disks.empty_copies():
        with sharing_run.Daemon(stage.carrack, directory).up() as daemon:
            return _run(Trial(stage, daemon), kind)


def _run(trial, kind):
    victim, wanted = None, []
    begun_s = time.monotonic()
    commands = [[trial.command(number)] for number in range(COUNT)]
    with Watch(trial.daemon.socket) as watch, sharing_run.crowd(commands, listens=True) as started:
        with sharing_run.Meter(started, POLL_S) as meter:
            time.sleep(BEFORE_S)
            if kind == "client":
                victim, wanted = trial.of_client(started, watch)
            else:
                trial.of_server(kind)
            if not sharing_run.wait_until(lambda: not any(one.runs() for one in started), MOST_S):
                raise OSError(f"{kind}: a transfer has not ended within {MOST_S} s")
    others = [one for one in started if one is not victim]
    if min(one.end_s for one in others) <= trial.over_s:
        raise OSError(f"{kind}: a transfer ended before the fault was over: larger files")
    found = {
        "kind": kind,
        "away_s": trial.over_s - trial.fault_s,
        "seconds": max(one.end_s for one in others) - begun_s,
        "failed": sum(any(one.codes) for one in others),
        **_words(trial, others),
        **_targets(trial, watch, victim, wanted),
        **_pauses(trial, meter.samples, [started.index(one) for one in others], begun_s, min(one.end_s for one in others)),
    }
    if victim:
        found["failed"] += _again(trial, started.index(victim))
    return {**found, "wrong": trial.wrong(), "copies": len(trial.stage.disks.files(range(PIECES)))}


def _words(trial, others):
    """Seconds from the fault until transfers said that they go on alone, and from its end until they keep to grants again."""
    alone = [one.said(ALONE, trial.fault_s) for one in others]
    managed = [one.said(MANAGED, trial.over_s) for one in others]
    return {
        "alone_s": [at_s - trial.fault_s for at_s in alone if at_s],
        "managed_s": [at_s - trial.over_s for at_s in managed if at_s],
    }


def _targets(trial, watch, victim, wanted):
    """Seconds from the end of the fault until each target was had by somebody who is there; and those that the dead one had."""
    pid = victim.pid if victim else None
    known = {target for _, state in watch.seen for target in state}
    held = watch.held_by_others(known, trial.over_s, pid)
    return {"targets": len(known), "held_s": list(held.values()), "dead_s": [held[target] for target in wanted]}


def _pauses(trial, samples, indices, begun_s, end_s):
    """The longest times in which nobody, and in which one of them, has read anything: before the fault and from it on."""
    found = {}
    for name, since_s, until_s in (("before", begun_s + SETTLE_S, trial.fault_s), ("after", trial.fault_s, end_s)):
        part = sharing_run.between(samples, since_s, until_s)
        found[f"pause_{name}_s"] = sharing_run.longest_pause(part, lambda values: sum(values[index] for index in indices))
        found[f"pause_of_one_{name}_s"] = max(
            sharing_run.longest_pause(part, lambda values, index=index: values[index]) for index in indices
        )
    return found


def _again(trial, number):
    """Has the one that was killed go on; 1 if it fails."""
    with sharing_run.crowd([[trial.command(number)]]) as started:
        if not sharing_run.wait_until(lambda: not started[0].runs(), MOST_S):
            raise OSError(f"a transfer that goes on has not ended within {MOST_S} s")
    return int(any(started[0].codes))


def measure(stage, say):
    """Each kind, in every round."""
    found = []
    for turn in range(stage.rounds):
        for kind, description in KINDS.items():
            found.append(run(stage, kind))
            say(f"faults, round {turn + 1}, {description}: {words(found[-1])}")
    return {"runs": found}


def words(one):
    """A run in a line."""
    parts = [f"alone {_list(one['alone_s'])}", f"managed {_list(one['managed_s'])}", f"held {_list(one['held_s'])}"]
    parts += [f"the dead one's {_list(one['dead_s'])}"] if one["kind"] == "client" else []
    parts += [f"pause {one['pause_after_s']:.2f} s, of one {one['pause_of_one_after_s']:.2f} s"]
    parts += [f"{one['failed']} failed, {one['wrong']} of {one['copies']} copies wrong, {one['seconds']:.1f} s"]
    return "; ".join(parts)


def _list(seconds):
    """The median and the longest; what never came is said."""
    came = [value for value in seconds if value is not None]
    missing = f", {len(seconds) - len(came)} never" if len(came) < len(seconds) else ""
    return f"{statistics.median(came):.2f} ({max(came):.2f}) s{missing}" if came else f"none{missing}"
