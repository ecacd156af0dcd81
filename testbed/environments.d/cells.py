"""All cells of one environment, in the process that has the environment's namespaces."""

import json
import os
import re
import shutil
import subprocess
import time
import traceback
from pathlib import Path

import judgement
import operations
import tree
from environment import ENVIRONMENTS
from fixture import Fixture, Skipped


def mark_of(results):
    """A file beside the results that is there once the first cell has begun."""
    return results.with_suffix(".begun")


def run(args):
    """Sets the environment up, runs its cells, and writes what they said."""
    name, base = args.inside
    environment = ENVIRONMENTS[name]
    base = Path(base)
    if not environment.on_disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", base], check=True)
    tools = base.parent
    fixture = Fixture(base, tools / "carrack", args.carrack.parent, tools)
    try:
        environment.setup(fixture)
        found = {"cells": run_cells(environment, fixture, args)}
    except Skipped as reason:
        found = {"skipped": str(reason)}
    args.results.write_text(json.dumps(found))
    return 0


def run_cells(environment, fixture, args):
    """Each operation, one after the other."""
    titles = re.split(r",(?! )", args.operations) if args.operations else environment.operations or operations.OPERATIONS
    os.makedirs(fixture.parent, exist_ok=True)
    asked = fixture.make(fixture.parent / "asked")
    probe = fixture.probe(asked)
    shutil.rmtree(asked, ignore_errors=True)
    asked = fixture.make(fixture.plain / "asked")
    fixture.plain_probe = fixture.probe(asked)
    shutil.rmtree(asked)
    source = fixture.base / "source"
    tree.build(source, fixture.user, foreign=fixture.user == 0, held=probe)
    mark_of(args.results).touch()
    return {title: with_reason(environment, title, run_cell(fixture, source, probe, title)) for title in titles}


def with_reason(environment, title, cell):
    """A cell that is not right for a reason that the environment states is known."""
    reason = environment.known.get(title, environment.known.get("*"))
    stated = all(re.search(environment.known_complaints, complaint) for complaint in cell["complaints"])
    if cell["state"] == "wrong" and reason and stated:
        cell |= {"state": "known", "reason": reason}
    return cell


def run_cell(fixture, source, probe, title):
    """One operation, and whether anything around it has changed."""
    began = time.monotonic()
    cell = operations.Cell(fixture, source, probe, title.replace(" ", "-").replace(",", ""))
    try:
        fixture.field(cell.at.name)
        around = [source, fixture.home]
        before = [without_state(tree.snapshot(path)) for path in around], beside(cell)
        complaints = list(operations.OPERATIONS[title](cell))
        for path, one in zip(around, before[0]):
            complaints += judgement.untouched(one, without_state(tree.snapshot(path)), path.name)
        complaints += judgement.untouched(before[1], beside(cell), "beside the destination", times=fixture.has_stable_inodes)
        state = "wrong" if complaints else "right"
    except operations.NotApplicable as reason:
        state, complaints = "none", [str(reason)]
    except Exception:  # pylint: disable=broad-except  # a fault of a cell's is not the end of the others
        state, complaints = "wrong", ["the cell itself failed: " + traceback.format_exc()[-600:]]
    remove(cell, fixture)
    commands = [command.replace(str(fixture.base), "…") for command in cell.commands]
    complaints = [words.replace(str(fixture.base), "…") for words in complaints]
    more = len(complaints) - judgement.COMPLAINTS_MAX
    if more > 0:
        complaints = complaints[: judgement.COMPLAINTS_MAX] + [f"and {more} more"]
    return {"state": state, "complaints": complaints, "commands": commands, "seconds": time.monotonic() - began}


def beside(cell):
    """What lies beside the destination, without it."""
    found = {path: entry for path, entry in tree.snapshot(cell.at).items() if path and path.split(b"/")[0] != b"copy"}
    if cell.has_failed:
        # The journal of a copy of which something failed is for the next one.
        found = {path: entry for path, entry in found.items() if not path.startswith(b".carrack-")}
    return found


def without_state(snapshot):
    """A home without the state that carrack may keep in one that it can write to."""
    return {path: entry for path, entry in snapshot.items() if not path.startswith(b".local")}


def remove(cell, fixture):
    """What the operation made. Not all file systems let everything be removed at once; the namespaces end anyway."""
    shutil.rmtree(cell.at, ignore_errors=True)
    for path in fixture.plain.iterdir():
        shutil.rmtree(path, ignore_errors=True)
