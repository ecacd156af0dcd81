"""What `bench/compare` and `bench/wan` do: all tools on all workloads over all networks, one section each."""

import sys

from . import context, network, options, report, results, rounds, workloads


def run(args, default_tools, links, scales):
    """Measures all, writes the results after each section, prints them; exit status 1 when carrack failed.

    `links` are the networks (None: loopback), `scales` the sizes of workloads that aren't taken whole.
    """
    out_dir = options.out_dir(args)
    sections = {}
    with options.work_dir(args) as work_dir:
        for key, section in _measured(args, work_dir, default_tools, links, scales):
            sections[key] = section
            results.write(out_dir, {key: section})  # each at once: an interrupted run loses little
    if sections:
        print(report.document(sections))
    sys.exit(0 if sections and _carrack_did_all(sections) else 1)


def _measured(args, work_dir, default_tools, links, scales):
    """Each section's name and the section, as soon as it is measured."""
    if args.carrack.exists():
        args.carrack = options.own_copy(args.carrack, work_dir / "bin")
    chosen, missing = options.choose_tools(args, default_tools, far=any(links))
    told = context.describe(work_dir, args.carrack)
    bench = rounds.Bench(options.measuring(args, work_dir), chosen)
    for name in args.workloads:
        try:
            with workloads.made(name, work_dir / "input", args.scale * scales.get(name, 1)) as workload:
                for link in links:
                    with network.over(link, work_dir / "wan") as between:
                        runs = bench.run(workload, between)
                    yield results.key(name, link), results.section(told, workload, link, chosen, runs, missing)
        except workloads.NoRoom as reason:
            rounds.say(f"{name} is left out: {reason}")


def _carrack_did_all(sections):
    """A failure of carrack's is an error, one of a peer's is a result."""
    runs = [
        run
        for section in sections.values()
        for name, tool in section["tools"].items()
        if report.is_carrack(name)
        for run in tool["runs"]
    ]
    return not any(run["problems"] for run in runs)
