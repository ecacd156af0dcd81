"""Tests and counts on the emulated machine with four NUMA nodes (`testbed/guest`), for the commands of `bench/numa/`.

What a module is for:

guest     runs a script in the guest, reads what it recorded
seen      what it recorded of threads, slots and what was said, as values
judge     whether threads ran and slots lay where they belong
counting  the plugin's counts: bytes by distance and by whose memory it was, and what they would cost
report    numa.json and NUMA.md
"""
