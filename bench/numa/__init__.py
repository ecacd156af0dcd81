"""Tests and counts on the emulated machine with four NUMA nodes (`testbed/guest`), for the commands of `bench/numa/`.

What a module is for:

guest     runs a script in the guest, reads what it recorded
plan      what `carrack topo --json` says of lanes: who belongs where
judge     whether threads ran and slots lay where the plan says
counting  the plugin's counts: bytes by distance and by whose memory it was, and what they would cost
report    numa.json and NUMA.md
"""
