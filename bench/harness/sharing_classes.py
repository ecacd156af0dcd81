"""A transfer with a guaranteed rate among best-effort ones, for bench/sharing."""

import statistics
import tempfile
import time

from . import sharing_run
from .shared_disks import PIECES, Reaper

CLASS = "sure"
OTHERS = 8
# Parts of what the disks bring when nothing is guaranteed.
SHARES = (0.25, 0.40, 0.50)
SAMPLE_S = 0.1
# Until everybody has been heard and has had a turn.
SETTLE_S = 4.0
WINDOW_S = 5.0
# Longer than any of them needs.
MOST_S = 180


def transfers(stage, socket):
    """Half of the files are the guaranteed one's, which comes first: it is not to end before others."""
    half = PIECES // 2
    cuts = [(range(half, PIECES), ["--class", CLASS]), *((range(number, half, OTHERS), []) for number in range(OTHERS))]
    return [
        [sharing_run.copy_command(
            stage.carrack, stage.disks.files(pieces), stage.disks.copies / f"t{number}", socket, "--quiet", *more
        )]
        for number, (pieces, more) in enumerate(cuts)
    ]


def run(stage, guaranteed):
    """What each has had while all ran: mean rates, and the guaranteed one's worst time, in bytes per second."""
    more = "" if guaranteed is None else f'[sharing.classes.{CLASS}]\nmin_rate = "{guaranteed:.0f} B/s"\n'
    with tempfile.TemporaryDirectory(prefix="carrack-sharing-") as directory, stage.disks.empty_copies() as copies:
        with sharing_run.Daemon(stage.carrack, directory, more).up() as daemon, Reaper(copies):
            begun_s = time.monotonic()
            with sharing_run.crowd(transfers(stage, daemon.socket)) as started, sharing_run.Meter(started, SAMPLE_S) as meter:
                if not sharing_run.wait_until(lambda: not all(one.runs() for one in started), MOST_S):
                    raise OSError(f"none of {OTHERS + 1} transfers has ended within {MOST_S} s")
                end_s = time.monotonic()
            failed = [one.codes for one in started if one.end_s <= end_s and any(one.codes)]
        if failed:
            raise OSError(f"transfers failed: exit codes {failed}")
    samples = sharing_run.between(meter.samples, begun_s + SETTLE_S, end_s)
    if not samples or samples[-1][0] - samples[0][0] < WINDOW_S:
        raise OSError("the transfers ended before anything could be measured: larger files")
    got = sharing_run.rates(samples)
    return {
        "guaranteed": guaranteed,
        "seconds": samples[-1][0] - samples[0][0],
        "got": got[0],
        "worst": sharing_run.worst_window(samples, 0, WINDOW_S),
        "others": got[1:],
        "together": sum(got),
    }


def measure(stage, say):
    """Runs without any guarantee, and with each."""
    found = [{"share": 0.0, **run(stage, None)}]
    say(f"classes, nothing guaranteed: {words(found[0])}")
    for share in SHARES:
        found.append({"share": share, **run(stage, share * found[0]["together"])})
        say(f"classes, {share:.0%} guaranteed: {words(found[-1])}")
    return {"runs": found}


def words(one):
    """A run in a line."""
    ratio = f" ({one['got'] / one['guaranteed']:.1%} of it)" if one["guaranteed"] else ""
    return (
        f"{one['got'] / 1e6:.1f} MB/s{ratio}, worst {WINDOW_S:.0f} s {one['worst'] / 1e6:.1f}, "
        f"others {statistics.mean(one['others']) / 1e6:.1f}, together {one['together'] / 1e6:.0f}, {one['seconds']:.0f} s"
    )
