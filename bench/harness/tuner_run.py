"""One transfer that is watched for some time and then ended: its rate, every half second, and what its tuner decided."""

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

# What is ended with SIGTERM is gone by then, or is killed.
END_S = 20
# What a tuner says when it turns something (docs/design/tuner.md).
TURNED = ("; trying ", "; back to ", " suffice?")


@dataclass
class Watched:
    """What a transfer has said: (seconds since its start, bytes or files done), and its tuner's words."""

    progress: list = field(default_factory=list)
    decisions: list = field(default_factory=list)
    ended_s: float = None
    error: str = ""
    # Its last word of a spill directory.
    spill: str = ""

    def rate(self, begin_s, end_s):
        """Per second between two times; of a transfer that ended before, until then."""
        if self.ended_s is not None:
            end_s = min(end_s, self.ended_s)
        inside = [(at_s, value) for at_s, value in self.progress if begin_s <= at_s <= end_s]
        if len(inside) < 2:
            return 0.0
        (first_s, before), (last_s, after) = inside[0], inside[-1]
        return (after - before) / (last_s - first_s)

    def changes(self, begin_s, end_s):
        """How often the tuner turned something."""
        inside = [words for at_s, words in self.decisions if begin_s <= at_s <= end_s]
        return sum(any(word in words for word in TURNED) for words in inside)


class Transfer:
    """A transfer, while it runs."""

    def __init__(self, command, counted, state_dir):
        self.watched = Watched()
        self._counted = counted
        environment = {**os.environ, "XDG_STATE_HOME": str(state_dir)}
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._hear_errors)]
        for thread in self._threads:
            thread.start()

    def _listen(self):
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "progress":
                self.watched.progress.append((event["seconds"], event[self._counted]))
            elif event["event"] == "decision":
                self.watched.decisions.append((event["seconds"], event["text"].removeprefix("tuner: ")))
            elif "spill in " in event.get("text", ""):
                self.watched.spill = event["text"]
            elif event["event"] == "summary":
                self.watched.ended_s = event.get("seconds")

    def _hear_errors(self):
        said = self._process.stderr.read()
        self.watched.error = said[-2000:]
        for line in said.splitlines():
            if "spill in " in line:
                self.watched.spill = line

    def runs(self):
        """Whether it has not ended."""
        return self._process.poll() is None

    def end(self):
        """Ends it, if it has not ended; whatever it leaves is thrown away."""
        if self.runs():
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()


def command(carrack, condition, target, fixed=None, more=()):
    """`carrack cp` under a condition, with its own choice or with (threads, streams) that stay, and `more` options."""
    words = [*condition.prefix, carrack, "cp", "-r", "-v", "--json", "--no-journal", "--ssh", condition.shell]
    words += ["--remote-carrack", carrack, *condition.options, *(more or ("--sharing", "off"))]
    if fixed:
        threads, streams = fixed
        words += ["--tune", "off", "--io-threads", threads, "--streams", streams]
        if condition.is_one_target:
            # A target takes as many requests as the kind of storage likes, or as are allowed.
            words += ["--max-inflight-per-target", threads]
    return [*words, *condition.sources, f"{condition.host}:{target}/"]


@contextmanager
def running(carrack, condition, target, fixed=None, more=()):
    """A transfer for the time of a `with`; yields the `Transfer`. Its history is its own: it begins from the default."""
    target.mkdir()
    state_dir = target.with_name(f"{target.name}-state")
    state_dir.mkdir()
    transfer = Transfer(command(carrack, condition, target, fixed, more), condition.counted, state_dir)
    try:
        yield transfer
    finally:
        transfer.end()


def watch(carrack, condition, target, span_s, fixed=None, events=(), more=()):
    """Runs one for `span_s` seconds after its first progress; `events` are (second, what is done then)."""
    with condition.fresh(target) as place, running(carrack, condition, place, fixed, more) as transfer:
        begun_s = time.monotonic()
        todo = list(events)
        while transfer.runs() and time.monotonic() - begun_s < span_s:
            if todo and time.monotonic() - begun_s >= todo[0][0]:
                todo.pop(0)[1]()
            time.sleep(0.05)
    watched = transfer.watched
    if len(watched.progress) < 4:
        raise OSError(f"{condition.name}: a transfer said nothing: {watched.error}")
    return watched
