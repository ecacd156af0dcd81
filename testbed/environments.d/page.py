"""The page of the manual: a table for each group of environments."""

from itertools import groupby

INTRODUCTION = """# In every environment

What carrack does where a file system keeps less than Linux's own, where system calls are refused, where memory is short, or a
home belongs to somebody else. `testbed/environments --all --page` runs the cells of this table and writes it; continuous
integration runs all of them that start within seconds. Each cell copies one tree of some 50 entries: small files, a large one, an empty one, one with holes, hard links,
symbolic links, a pipe, odd names, set-ID files, a read-only directory, attributes, an ACL, times from 1975 to 2042.

A cell is right (**✓**) where

- the contents are the source's, and nothing else is there, temporary files and journals included;
- the exit code is 0 where all contents are there, whatever else could not be kept, and 1 where an entry is missing;
- what the file system can keep is kept (a probe asks it with plain system calls), and what it can't is told;
- no entry has a mode wider than its source's and, without `-a`, than the umask allows, nor a set-ID bit without its owner;
- nothing beside the destination, in the source or in the home has changed;
- a second run of a sync has nothing to send.

**✗** is a cell that is not right, with the reasons below its table; · is an operation that says nothing there.
"""


def counts(results):
    """Cells that are right and wrong, and environments that are skipped."""
    cells = [cell for found in results for cell in found.get("cells", {}).values()]
    broken = sum("broken" in found for found in results)
    return (
        sum(cell["state"] == "right" for cell in cells),
        sum(cell["state"] == "wrong" for cell in cells) + broken,
        sum("skipped" in found for found in results),
    )


def page(results, operations):
    """All of it, in Markdown."""
    right, wrong, skipped = counts(results)
    run = len(results) - skipped
    lines = [INTRODUCTION]
    lines.append("| operation | what is run |")
    lines.append("| --- | --- |")
    lines += [f"| {title} | {code(function.__doc__)} |" for title, function in operations]
    lines.append(f"\nAs of the last run: {run} environments, {right} cells right, {wrong} wrong; {skipped} environments could not be had there.\n")
    for group, found in groupby(results, key=lambda each: each["group"]):
        lines += table(group, list(found), [title for title, _ in operations])
    return "\n".join(lines).rstrip() + "\n"


def code(words):
    """The command that words begin with is not marked up: they are sentences."""
    return words.strip().replace("|", "\\|")


def table(group, results, titles):
    """One group's."""
    lines = [f"## {group}\n"]
    lines.append("| environment | " + " | ".join(titles) + " |")
    lines.append("| --- |" + " :-: |" * len(titles))
    notes = []
    for found in results:
        name = found["title"].replace("|", "\\|")
        if "cells" not in found:
            why = f"skipped: {found['skipped']}" if "skipped" in found else f"broken: {found['broken']}"
            lines.append(f"| {name} | {why} |" + " |" * (len(titles) - 1))
            continue
        marks = []
        for title in titles:
            cell = found["cells"].get(title, {"state": "none"})
            marks.append({"right": "✓", "wrong": "✗", "none": "·"}[cell["state"]])
            if cell["state"] == "wrong":
                notes.append(f"- {found['title']}, {title}: {cell['complaints'][0]}")
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    return lines + [""] + (notes + [""] if notes else [])
