#!/bin/busybox sh
# shellcheck shell=sh
# In the guest of testbed/guest, under the plugin of testbed/numacount.c: counts transfers between two namespaces, one after
# the other (bench/numa/count).
#
#   numa-count.sh FILES FILE_KIB      the input; what to run is in /test/cases, a line each:
#                                     NAME disk|memory CPUS OPTION... or NAME idle SECONDS
#
# Input `disk`: an ext4 of its own on the NVMe disk, nothing of it in the page cache. `memory`: a tmpfs whose pages are
# on all nodes in turn. The copy is on a tmpfs that lies where it is first written. To /dev/records: {"case":NAME,...}, then
# the records of witness.c and mark.c.

set -u
files=$1 file_kib=$2
RECORDS=/tmp/records
# Looking costs memory accesses of its own; a pool stays where it is.
WITNESS_MS=1000

# One pattern for all: what the bytes are changes nothing, and random ones take long under emulation.
make_input() { # DIRECTORY
    dd if=/dev/urandom of=/tmp/pattern bs=1k count="$file_kib" 2>/dev/null
    for i in $(seq "$files"); do cp /tmp/pattern "$1/$i"; done
    rm /tmp/pattern
}

prepare() {
    two-ends up
    # The kernel's own moving of pages takes minutes to settle: not in runs of seconds.
    echo 0 >/proc/sys/kernel/numa_balancing
    mkdir -p /in/memory /in/disk /out
    mount -t tmpfs -o size=100%,mpol=interleave:0-3 tmpfs /in/memory
    mke2fs -b 4096 /dev/nvme0n1 >/dev/null
    mount -t ext4 /dev/nvme0n1 /in/disk
    mkdir /in/memory/files
    make_input /in/memory/files
    cp -r /in/memory/files /in/disk
}

is_right() { # INPUT
    for file in "$1"/*; do cmp "$file" "/out/copy/${file##*/}" || return 1; done
}

uptime_s() { cut -d' ' -f1 /proc/uptime; }

# What the machine does by itself, and those who look.
count_idle() { # NAME SECONDS
    /test/witness "$RECORDS" "$WITNESS_MS" frames &
    witness=$!
    mark start
    sleep "$2"
    mark stop
    kill "$witness"
    wait "$witness"
    printf '{"case":"%s","input":"idle","status":0,"from_s":0,"to_s":%d}\n' "$1" "$2" >/dev/records
}

count() { # NAME INPUT CPUS OPTION...
    name=$1 input=$2 cpus=$3
    shift 3
    [ "$input" != idle ] || { count_idle "$name" "$cpus" && return; }
    mount -t tmpfs -o size=100% tmpfs /out
    sync
    echo 3 >/proc/sys/vm/drop_caches
    /test/witness "$RECORDS" "$WITNESS_MS" frames &
    witness=$!
    from_s=$(uptime_s)
    mark start
    two-ends near taskset -c "$cpus" carrack cp -r -v --ssh 'two-ends shell' "$@" "/in/$input/files" h:/out/copy >/tmp/talk 2>&1
    status=$?
    mark stop
    to_s=$(uptime_s)
    kill "$witness"
    wait "$witness"
    cat /tmp/talk
    [ "$status" = 0 ] && is_right "/in/$input/files" || status=1
    {
        printf '{"case":"%s","input":"%s","status":%d,' "$name" "$input" "$status"
        printf '"from_s":%s,"to_s":%s}\n' "$from_s" "$to_s"
        cat "$RECORDS"
        mark files "/in/$input/files"/*
        mark files /out/copy/*
    } >/dev/records
    umount /out
    return "$status"
}

prepare
while read -r line; do
    echo "--- $line"
    # shellcheck disable=SC2086  # words
    count $line || echo "numa-count.sh: that went wrong"
done </test/cases
