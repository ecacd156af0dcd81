"""N transfers at a time, without and with a meta-server, and other tools' for scale; for bench/sharing."""

import shutil
import statistics
import tempfile
import time

from . import sharing_run
from .shared_disks import PIECES, Reaper

# Half of the files, for what does not change with time: one transfer alone, and other tools'.
HALF = PIECES // 2
MOST_S = 400


def carrack_commands(stage, count, sharing):
    """A process for each transfer."""
    parts = [stage.disks.part(number, count, pieces(count)) for number in range(count)]
    return [
        [sharing_run.copy_command(stage.carrack, part, stage.disks.copies, sharing, "--quiet")] for part in parts
    ]


def pieces(count):
    """Of each disk, that transfers read together."""
    return HALF if count == 1 else PIECES


def pieces_of_others(count):
    """The same for other tools."""
    return max(HALF, count)


def parts_by_disk(stage, count):
    """What the processes of each transfer read: one alone would use a disk at a time."""
    for number in range(count):
        files = stage.disks.part(number, count, pieces_of_others(count))
        yield [[file for file in files if file.parent == path] for path in stage.disks.array.paths]


def rsync_commands(stage, count):
    """A process for each transfer and disk."""
    target = f"{stage.disks.copies}/"
    return [[["rsync", "--whole-file", *part, target] for part in parts] for parts in parts_by_disk(stage, count)]


def globus_commands(stage, count):
    """A process for each transfer and disk, which moves its files one after the other, as rsync does."""
    lists = stage.work_dir / "globus"
    lists.mkdir(exist_ok=True)
    commands = []
    for number, parts in enumerate(parts_by_disk(stage, count)):
        own = []
        for disk, part in enumerate(parts):
            listed = lists / f"{number}-{disk}"
            listed.write_text("".join(f"file://{file} file://{stage.disks.copies}/{file.name}\n" for file in part))
            own.append(["globus-url-copy", "-concurrency", "1", "-f", listed])
        commands.append(own)
    return commands


OTHERS = {"rsync": rsync_commands, "globus-url-copy": globus_commands}


def run(stage, commands, count_of_pieces):
    """Together in bytes per second, Jain's index of the transfers' rates, last end to first; all bytes have to arrive."""
    with stage.disks.empty_copies() as copies:
        with Reaper(copies) as reaper, sharing_run.crowd(commands) as started:
            begun_s = time.monotonic()
            if not sharing_run.wait_until(lambda: not any(one.runs() for one in started), MOST_S, 0.1):
                raise OSError(f"a transfer has not ended within {MOST_S} s")
    failed = [one.codes for one in started if any(one.codes)]
    if failed:
        raise OSError(f"transfers failed: exit codes {failed}")
    expected = count_of_pieces * len(stage.disks.array.paths) * stage.disks.piece_bytes
    if reaper.bytes != expected:
        raise OSError(f"{reaper.bytes} bytes of {expected} have arrived")
    ends = sorted(one.end_s - begun_s for one in started)
    return {"together": expected / ends[-1], "fairness": fairness([1 / seconds for seconds in ends]), "spread": ends[-1] / ends[0]}


def fairness(rates):
    """Jain's index: 1 if all are equal, 1 ÷ their number if one has everything."""
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def ways(stage, socket, turn, count):
    """(name, commands, pieces of each disk) of the runs of one number in one round, whose order alternates."""
    own = [("without", "off"), ("with", socket)]
    for name, sharing in own[turn % 2:] + own[: turn % 2]:
        yield name, carrack_commands(stage, count, sharing), pieces(count)
    if turn == 0 and count in stage.others:
        for name, commands in OTHERS.items():
            if shutil.which(name):
                yield name, commands(stage, count), pieces_of_others(count)


def measure(stage, say):
    """All numbers of transfers in each round; the medians are what counts."""
    runs = {}
    with tempfile.TemporaryDirectory(prefix="carrack-sharing-") as directory:
        with sharing_run.Daemon(stage.carrack, directory).up() as daemon:
            for turn in range(stage.rounds):
                for count in stage.transfers:
                    for name, commands, of_disk in ways(stage, daemon.socket, turn, count):
                        one = run(stage, commands, of_disk)
                        runs.setdefault((count, name), []).append(one)
                        figures = f"{one['together'] / 1e6:.0f} MB/s, fairness {one['fairness']:.4f}, last ÷ first {one['spread']:.2f}"
                        say(f"transfers, round {turn + 1}, {count} {name}: {figures}")
    rows = [{"transfers": count, "way": name, "runs": of_way, **medians(of_way)} for (count, name), of_way in runs.items()]
    absent = [name for name in OTHERS if stage.others and not shutil.which(name)]
    return {"rows": sorted(rows, key=lambda row: row["transfers"]), "absent": absent}


def medians(runs):
    """Of each figure."""
    return {name: statistics.median(one[name] for one in runs) for name in runs[0]}
