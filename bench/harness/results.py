"""results.json: one section for each workload (and network), each of one run of a command.

A command replaces the sections that it measured; the others stay as they are.
"""

import dataclasses
import json

from . import pages, report, workloads

NAME = "results.json"


def key(workload_name, link):
    """A section's name."""
    return f"{workload_name} over {link.words}" if link else workload_name


def section(context, workload, link, chosen, runs, missing):
    """What is kept of one workload's measurement."""
    kinds = {run.cpu_by for of_tool in runs.values() for run in of_tool}
    return {
        **context,
        "workload": workload.name,
        "words": workload.words,
        "files": len(workload.listing.files),
        "bytes": workload.listing.total_bytes,
        "link": dataclasses.asdict(link) if link else None,
        "cpu_by": " and ".join(sorted(kinds)),
        "missing": missing,
        "tools": {
            tool.name: {
                "security": tool.security,
                "over_ssh": tool.over_ssh,
                "settings": tool.settings(workload.kind),
                "runs": [dataclasses.asdict(run) for run in runs[tool.name]],
            }
            for tool in chosen
        },
    }


def load(directory):
    """All sections, none when there is no file yet."""
    try:
        return json.loads((directory / NAME).read_text())["sections"]
    except FileNotFoundError:
        return {}


def merge(old, new):
    """The new sections and the old ones of other names: loopback's first, each network's together."""
    order = list(workloads.KNOWN)

    def place(name):
        link = merged[name]["link"]
        return list(link.values()) if link else [], order.index(merged[name]["workload"])

    merged = {**old, **new}
    return {name: merged[name] for name in sorted(merged, key=place)}


def write(directory, new):
    """Puts new sections into results.json and writes RESULTS.md anew from all."""
    directory.mkdir(parents=True, exist_ok=True)
    sections = merge(load(directory), new)
    pages.replace(directory / NAME, json.dumps({"sections": sections}, indent=1, ensure_ascii=False) + "\n")
    pages.replace(directory / "RESULTS.md", report.document(sections))
