#!/bin/busybox sh
# shellcheck shell=sh
# In the guest of testbed/guest, under the plugin of testbed/numacount.c: touches known memory from known CPUs.
#
#   touch.sh [CPU NODE MIB]...
while [ $# -ge 3 ]; do
    mark touch "$1" "$2" "$3" >/dev/records || exit 1
    shift 3
done
