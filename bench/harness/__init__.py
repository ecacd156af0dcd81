"""Measures movers of data side by side on one machine; `bench/compare` and `bench/memory` use it.

What a module is for:

machine    the state of the machine: idle or not, how fast its memory is now, what it is
reserve    touched memory that is given back right before a run
cgroup     the processes of a run and the CPU time they took
meter      one measured run: start, wait for both ends, count
tools      the peers: how each is started, with which settings
workloads  the input sets
verify     whether a copy is complete and right
rounds     the schedule: interleaved rounds, repeats of disturbed runs
report     medians, ratios, RESULTS.md, results.json
"""
