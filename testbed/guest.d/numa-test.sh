#!/bin/busybox sh
# shellcheck shell=sh
# In the guest of testbed/guest: transfers between two namespaces whose placement bench/numa/guest-test judges.
#
# To /dev/records, for each case: {"case":NAME,"status":N}, what witness.c saw, and {"said":LINE} for each line that carrack
# or the script had to say of it.

set -u
RECORDS=/tmp/records
TALK=/tmp/talk
WITNESS_MS=5
CPUS_PER_SOCKET=4
# Slow enough to be looked at, and for the watch to look several times.
BRIEF="--bwlimit 15MiB"
LASTING="--bwlimit 5MiB"
SETTLING_S=4
THREADS=8
SLOTS="--buffer 32MiB --io-threads $THREADS"

make_input() {
    mkdir -p /tmp/in
    dd if=/dev/urandom of=/tmp/pattern bs=1M count=16 2>/dev/null
    for i in 1 2 3 4 5 6 7 8; do cp /tmp/pattern "/tmp/in/big$i"; done
    for i in $(seq 200); do dd if=/tmp/pattern of="/tmp/in/small$i" bs=64k count=1 skip="$i" 2>/dev/null; done
}

say_lines() { sed 's/[\\"[:cntrl:]]/ /g; s/.*/{"said":"&"}/'; }

# shellcheck disable=SC2086  # words
copy() { # OPTION...
    two-ends near carrack cp -r -v --ssh 'two-ends shell' $SLOTS "$@" /tmp/in h:/tmp/out
}

is_right() {
    for file in /tmp/in/*; do cmp "$file" "/tmp/out/${file##*/}" || return 1; done
}

tell() { # NAME STATUS
    {
        printf '{"case":"%s","status":%d}\n' "$1" "$2"
        cat "$RECORDS"
        say_lines <"$TALK"
    } >/dev/records
    rm -rf /tmp/out "$RECORDS"
    : >"$RECORDS"
    cat "$TALK"
}

watched() { # COMMAND...
    /test/witness "$RECORDS" "$WITNESS_MS" &
    witness=$!
    status=0
    "$@" >"$TALK" 2>&1 || status=$?
    kill "$witness"
    wait "$witness"
    return "$status"
}

# --- programs of tests that want several nodes --------------------------------------------------------

machine_tests() {
    status=0
    for program in /test/tests-*; do
        "$program" --test-threads 2 || status=$?
    done >"$TALK" 2>&1
    passed=$(grep -c '\.\.\. ok$' "$TALK")
    echo "$passed tests passed" >>"$TALK"
    tell tests "$status"
}

# --- every thread and every slot where it belongs -----------------------------------------------------

placed() {
    status=0
    watched copy --placement mts --lanes 2 || status=$?
    is_right || status=1
    tell placed "$status"
    printf '{"planned":%s}\n' "$(carrack topo --json --placement mts --lanes 2 --threads "$THREADS")" >/dev/records
}

# --- whoever holds back uses both sockets all the same, flash or not ----------------------------------

copy_held() {
    printf '[sharing]\nsocket = "/run/carrack/sharing.sock"\n' >/tmp/sharing.toml
    mkdir -p /run/carrack /flash
    mount -t ext4 /dev/nvme0n1 /flash
    carrack serve --config /tmp/sharing.toml &
    sharer=$!
    for _ in $(seq 100); do
        [ -S /run/carrack/sharing.sock ] && break
        sleep 0.1
    done
    copied=0
    # shellcheck disable=SC2086  # words
    copy --nice $BRIEF --sink-spill /flash:16MiB || copied=$?
    kill "$sharer"
    wait "$sharer"
    umount /flash
    return "$copied"
}

held() {
    status=0
    watched copy_held || status=$?
    is_right || status=1
    tell held "$status"
}

# --- load on a lane's socket makes it move ------------------------------------------------------------

# The first CPU that a thread of this name may run on.
first_cpu_of() { # NAME
    for task in /proc/[0-9]*/task/[0-9]*; do
        if [ "$(cat "$task/comm" 2>/dev/null)" = "$1" ]; then
            sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' "$task/status"
            return
        fi
    done
}

# Two endless loops on each CPU of a CPU's socket: whoever shares one of them waits.
load_socket_of() { # CPU
    first=$(($1 / CPUS_PER_SOCKET * CPUS_PER_SOCKET))
    echo "load on CPU $first to $((first + CPUS_PER_SOCKET - 1))"
    for cpu in $(seq "$first" "$((first + CPUS_PER_SOCKET - 1))"); do
        for _ in 1 2; do
            taskset -c "$cpu" sh -c 'while :; do :; done' &
            loops="$loops $!"
        done
    done
}

copy_under_load() {
    loops='' copied=0
    # shellcheck disable=SC2086  # words
    copy --placement mts --lanes 1 $LASTING &
    copying=$!
    sleep "$SETTLING_S"
    load_socket_of "$(first_cpu_of carrack-read)"
    wait "$copying" || copied=$?
    # shellcheck disable=SC2086  # words
    kill $loops
    return "$copied"
}

moved() {
    status=0
    watched copy_under_load || status=$?
    is_right || status=1
    tell moved "$status"
}

# --- the zone appears and disappears ------------------------------------------------------------------

zones() { find /sys/fs/cgroup -maxdepth 1 -name 'carrack-zone-*'; }

allowed() { sed -n 's/^Cpus_allowed_list:[^0-9]*//p' "/proc/$1/status"; }

look_at_zones() { # WHEN
    echo "$1: others may run on $(allowed 1), zones: $(zones | wc -l)"
    for zone in $(zones); do
        echo "$1: $(cat "$zone/cpuset.cpus.partition") $(cat "$zone/cpuset.cpus"), $(wc -l <"$zone/cgroup.procs") process"
    done
}

# One process: two of them would want the same cores.
copy_here() { # OPTION...
    # shellcheck disable=SC2086  # words
    carrack cp -r -v $SLOTS --placement mts --lanes 1 "$@" /tmp/in /tmp/out
}

copy_in_zone() {
    look_at_zones before
    # shellcheck disable=SC2086  # words
    copy_here --zone=hard $BRIEF &
    sleep "$SETTLING_S"
    look_at_zones during
    copied=0
    wait $! || copied=$?
    sleep 1 # the kernel takes a group apart in its own time
    look_at_zones after
    return "$copied"
}

kill_in_zone() {
    # shellcheck disable=SC2086  # words
    copy_here --zone=hard $BRIEF &
    sleep "$SETTLING_S"
    pidof carrack | xargs kill -9
    wait $!
    sleep 1
    look_at_zones killed
    rm -rf /tmp/out
    copied=0
    copy_here --zone=hard || copied=$?
    sleep 1
    look_at_zones repaired
    return "$copied"
}

zone() { # NAME COMMAND
    status=0
    watched "$2" || status=$?
    is_right || status=1
    tell "$1" "$status"
}

two-ends up
make_input
: >"$RECORDS"
machine_tests
placed
held
moved
zone zone copy_in_zone
zone zone-killed kill_in_zone
