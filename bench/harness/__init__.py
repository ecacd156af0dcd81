"""Measures movers of data side by side on one machine, for the commands of `bench/`.

What a module is for:

machine    the state of the machine: idle or not, how fast its memory is now, what it is
reserve    touched memory that is given back right before a run
cgroup     the processes of a run and the CPU time they took
network    what lies between the two ends: loopback, or an emulated long fat pipe
servers    server processes: started before the clock, ended by pid
tool       what all movers have in common
peers      the peers: how each is started, with which settings
tools      carrack, tools of the command line's, the lists to choose from
workloads  the input sets
verify     whether a copy is complete and right
meter      one measured run: start, wait for both ends, count
rounds     the schedule: interleaved rounds, repeats of disturbed runs
figures    medians, ratios, how sure they are
context    when, of which commit, on which machine
comparison what bench/compare and bench/wan do
results    results.json: the sections of several commands' runs
report     RESULTS.md
disks      slow disks with files on them
disk_load  a program that reads or writes disks beside a run
congestion one run between memory and slow disks, for bench/congestion
congestion_report  congestion.json and CONGESTION.md
shared_disks  disks that seek, with files that transfers share
sharing_run   a daemon that shares them out, transfers that ask it, what each has read by when
sharing_transfers, sharing_classes, sharing_faults, sharing_foreground  parts of bench/sharing
steady_job    a program that computes on disks beside a run
load_feed     a Prometheus that measures disks, and a past for it
sharing_report  sharing.json and SHARING.md
builds     carrack of a git revision
options    the command lines
"""
