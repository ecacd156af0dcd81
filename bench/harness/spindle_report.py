"""SPINDLE.md: the model, what it was compared with, what readers get, and where it is no disk."""

import datetime

from . import spindle

REPORT_NAME = "SPINDLE.md"
MIB = 1 << 20

INTRODUCTION = """\
# The disk that seeks

Written by `bench/spindle`; not edited by hand. {when} UTC, commit {commit}.

`testbed/disks --by spindle` gives disks whose streams take each other's time, for experiments about sharing
(`testbed/spindle.h`). A request costs

- its bytes ÷ the rate of the medium, 107.5 MB/s: a track of 677,557 bytes in a turn of 6 ms (10,000 rpm) and the 0.30 ms
  to the next track;
- before that, unless it goes on where the head is or lies in the drive's buffer, a seek: 0.30 ms for the next track,
  3.8 ms on average between random places, 7.81 ms over all tracks, and a root and a line between them; 0.6 ms more for a
  write, which is the difference of the average seeks, 4.4 and 3.8 ms;
- and what the platter then takes to turn to the first byte, 3.0 ms on average.

These are the figures of a Seagate Savvio 10K.4 SAS of 600 GB (ST9600204SS; product manual 100539221 rev. A, sections 4.1 and
4.2): a 2.5-inch disk of 10,000 rpm, the kind that was one storage target each in the LADS paper (section 4.1). What is
not in the manual is chosen and can be changed: the drive takes the nearest of 32 requests (`--queue`) and lets none be
overtaken more than 16 times (`fifo_batch` of the kernel's deadline elevator); for a stream that it knows it reads on by
512 KiB before it turns to another (`--ahead`; 32 streams share a buffer of 16 MiB). Everything is slower by the same factor
when `--rate` is lower than the disk's, so that ratios stay.

"""

DEPARTURES = """\
## Where it is no disk

- One rate for all tracks: a real disk's outer ones are faster than its inner ones.
- No write cache: a write is answered when it is on the medium. With one, several writers suffer less than readers. A write
  that goes on where the last one ended costs no turn, as if the drive had waited for it.
- What the drive has in its buffer costs nothing to send, and the host's own time is what this machine takes, which is not
  slowed down with the disk.
- The image is all of the disk: a file of an eighth of the image is as long as an eighth of all tracks. Where a file begins
  decides how far a head goes, its length hardly.
- Queues of several small requests for each stream: testers found that two or more outstanding requests make the sum
  nearly independent of the number of streams ({round_up}); here four streams of 64 KiB at depth two
  keep {deep:.0%} of one's. Requests of 1 MiB at depth two keep {deep_large:.0%}.
- 100 streams of small requests lose more than was published for real systems, as all of them go past the buffer's 32 parts.
- A RAID group (`--data-disks`, `--chunk`) is one server whose heads move together: small requests at different places do not
  overlap, only those that go on from each other; a part of a stripe is written as if it needed no old parity, and there is no controller's cache.
- No bad sectors, no recalibration, no error recovery: the same trial always gives the same figures.
"""


def row(*cells):
    """A line of a table."""
    return "| " + " | ".join(map(str, cells)) + " |\n"


def head(*cells):
    """The first two lines of a table."""
    return row(*cells) + row(*("---" for _ in cells))


def compared(checks):
    """The model beside what was published."""
    text = "## The model and published measurements\n\n"
    text += (
        "Ratios, as other drives were measured. X-bit labs' figures are those of their text, streams of 64 KiB blocks with one\n"
        "outstanding request each. Bounds are what `bench/tests/test_spindle.py` asks for. The two rows with `--ahead` are no\n"
        "predictions: they show which look-ahead the published range would be; a drive of another rate has another one. The\n"
        "seek curve is fitted to the manual's three times, so the first row checks the sum, not the drive.\n\n"
    )
    text += head("figure", "published", "model", "bounds", "source")
    for check, value in checks:
        bounds = f"{check.low:g} to {check.high:g}{'' if check.holds(value) else ', MISSED'}"
        text += row(check.what, check.published, f"{value:.2f}", bounds, check.source)
    return text + "\n"


def modelled(trial):
    """What streams get of the modelled drive."""
    text = "## What streams get together, MB/s\n\n"
    text += "Counted in model time, reads, each stream in a region of its own and asking again 0.1 ms after an answer.\n\n"
    ways = {
        "1 MiB": {"request": MIB},
        "1 MiB, `--queue 1`": {"request": MIB, "queue": 1},
        "1 MiB, two outstanding": {"request": MIB, "depth": 2},
        "4 MiB": {"request": 4 * MIB},
        "64 KiB": {"request": 64 << 10},
        "64 KiB, `--ahead 0`": {"request": 64 << 10, "ahead": 0},
        "1 MiB, `--data-disks 8`": {"request": MIB, "data": 8},
    }
    text += head("streams", *ways)
    for streams in (*spindle.READERS, 32):
        text += row(streams, *(f"{trial(streams=streams, **words).all:.1f}" for words in ways.values()))
    return text + "\n"


def real(trial, timed, missing, rate_bytes_per_s):
    """What dd got."""
    text = "## What readers get, MB/s\n\n"
    if missing:
        return text + f"Not measured: {missing}.\n\n"
    text += (
        f"Timed: `dd iflag=direct bs=1M` on XFS on one disk of {rate_bytes_per_s / MIB:g} MiB/s, files of their own. The model's "
        "column is the same\nload, counted; there a request is 1 MiB, here the kernel cuts it in two or more.\n\n"
    )
    text += head("readers", "`--by queue`", "`--by spindle`", "the model", "spindle ÷ one reader's")
    slower = trial(streams=1).without_seeks * 1e6 / rate_bytes_per_s
    for readers, rate in timed["spindle"].items():
        counted = trial(streams=readers).all / slower
        share = rate / timed["spindle"][1]
        text += row(readers, f"{timed['queue'][readers]:.1f}", f"{rate:.1f}", f"{counted:.1f}", f"{share:.2f}")
    return text + "\n"


def document(trial, checks, timed, missing, rate_bytes_per_s, commit):
    """All of it."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    departures = DEPARTURES.format(
        round_up="X-bit labs, the same pages",
        deep=spindle.small(trial, 4, depth=2) / spindle.small(trial, 1, depth=2),
        deep_large=trial(streams=4, depth=2).all / trial(streams=1, depth=2).all,
    )
    return (
        INTRODUCTION.format(when=now, commit=commit)
        + compared(checks)
        + modelled(trial)
        + real(trial, timed, missing, rate_bytes_per_s)
        + departures
    )
