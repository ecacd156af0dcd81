#!/bin/busybox sh
# shellcheck shell=sh
# In the guest of testbed/guest: objects by verbs over software RoCE (rdma_rxe on eth0), from one process to another, and what
# happens when something fails. Prints `ok: …` or `problem: …` for each thing that has to be so; fails if one is not.
#
# shellcheck disable=SC2181  # `say` takes the status of what was done
# shellcheck disable=SC2317  # reached by name

set -u
# rdma's place.
export PATH="$PATH:/usr/bin:/usr/sbin"
ADDRESS=10.98.1.1
PROVIDER='verbs;ofi_rxm'
COUNTERS=/sys/class/infiniband/rxe0/ports/1/hw_counters
TALK=/tmp/talk
# A busy host emulates slowly; what stands still is noticed after that.
STALL_S=15
# Slow enough for something to happen on the way, and what arrives is noted in the journal at once.
LASTING="--bwlimit 3MiB --group-time 100"
problems=0

# One peer: completion queues for libfabric's usual 256 are more than rdma_rxe has (32,767 entries).
export FI_UNIVERSE_SIZE=2

say() { # IS_SO WORDS
    if [ "$1" = 0 ]; then
        echo "ok: roce: $2"
    else
        echo "problem: roce: $2"
        problems=$((problems + 1))
        tail -n 8 "$TALK"
    fi
}

set_up() {
    hostname guest
    # The far end's name is its address on the RDMA device; librdmacm asks for the host's own.
    printf '%s guest far\n127.0.0.1 localhost\n' "$ADDRESS" >/etc/hosts
    ip link set eth0 up
    /bin/ip address add "$ADDRESS/24" dev eth0
    rdma link add rxe0 type rxe netdev eth0
    printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >/tmp/far-shell
    chmod 755 /tmp/far-shell
    mkdir -p /tmp/in
    dd if=/dev/urandom of=/tmp/in/large bs=1M count=24 2>/dev/null
    for i in $(seq 50); do dd if=/tmp/in/large of="/tmp/in/small$i" bs=3k count=1 skip="$i" 2>/dev/null; done
}

copy() { # OPTION...
    carrack cp -r -v --ssh /tmp/far-shell --buffer 16MiB --lanes 1 --streams 2 --io-threads 4 --placement off \
        --stall-timeout "$STALL_S" "$@" /tmp/in far:/tmp/out >"$TALK" 2>&1
}

forced() { copy --fabric "$PROVIDER" "$@"; }

is_right() {
    for file in /tmp/in/*; do cmp -s "$file" "/tmp/out/${file##*/}" || return 1; done
}

packets() { cat "$COUNTERS/rcvd_pkts"; }

# Until there is data at the destination, and has been noted.
wait_for_data() {
    for _ in $(seq 120); do
        [ "$(du -s /tmp/out 2>/dev/null | cut -f 1)" -gt 3000 ] 2>/dev/null && break
        sleep 0.5
    done
    sleep 1
}

trees_arrive() {
    for protection in clear safe private; do
        rm -rf /tmp/out
        before=$(packets)
        forced --protection "$protection"
        say $? "a copy by RMA at $protection ends well"
        is_right
        say $? "what it copied is right"
        # RDMA reads carry 1 KiB each, at an MTU of 1500.
        [ $(($(packets) - before)) -gt 20000 ]
        say $? "its bytes went over the RDMA device"
    done
}

# COMMAND is done in the middle of a copy, which has to notice; then UNDO, and the copy is ended over TCP with what it had.
interrupted() { # WORDS COMMAND UNDO
    rm -rf /tmp/out
    # shellcheck disable=SC2086  # words
    forced --retry 0 $LASTING &
    copying=$!
    wait_for_data
    began=$(date +%s)
    kill -0 "$copying" 2>/dev/null
    say $? "$1: the copy is under way"
    $2
    wait "$copying"
    [ $? != 0 ]
    say $? "$1: the copy says that it failed"
    took=$(($(date +%s) - began))
    [ "$took" -le $((STALL_S + 20)) ]
    say $? "$1: it is noticed in time ($took s)"
    $3
    [ -z "$(find /tmp/out -type f -name large)" ]
    say $? "$1: no file has its name that is not whole"
    copy --fabric off
    say $? "$1: going on over TCP ends well"
    is_right
    say $? "$1: what was copied is right"
    grep -q 'there before' "$TALK"
    say $? "$1: it went on with what was there"
}

kill_far() {
    for process in $(pidof carrack); do
        if grep -q session "/proc/$process/cmdline"; then kill -9 "$process"; fi
    done
}
device_gone() { rdma link delete rxe0; }
device_back() { rdma link add rxe0 type rxe netdev eth0; }
link_down() { ip link set eth0 down; }
# Linux 6.1's rdma_rxe moves nothing any more after that: a new device.
link_up() { ip link set eth0 up && device_gone && device_back; }
nothing() { :; }

# With `try:` the copy goes on by itself: over TCP, with what it had.
gives_way() {
    rm -rf /tmp/out
    # shellcheck disable=SC2086  # words
    copy --fabric "try:$PROVIDER" $LASTING &
    copying=$!
    wait_for_data
    kill -0 "$copying" 2>/dev/null
    say $? "gives way: the copy is under way"
    device_gone
    wait "$copying"
    say $? "gives way: a copy whose device goes away ends well"
    grep -q "over $PROVIDER: .*trying TCP in" "$TALK"
    say $? "gives way: it says that it goes on over TCP"
    is_right
    say $? "gives way: what was copied is right"
    device_back
}

# Memory that may not be locked can't be registered: said before anything is copied, and TCP works.
without_locked_memory() {
    rm -rf /tmp/out
    chmod 777 /tmp
    unlocked carrack cp -r --ssh /tmp/far-shell --fabric "$PROVIDER" --buffer 16MiB /tmp/in far:/tmp/out >"$TALK" 2>&1
    [ $? = 3 ]
    say $? "memlock: a copy by RMA does not begin"
    grep -q 'ulimit -l' "$TALK"
    say $? "memlock: it says that the limit of locked memory is the reason"
    [ -z "$(find /tmp/out -type f)" ]
    say $? "memlock: nothing was copied"
    unlocked carrack cp -r -v --ssh /tmp/far-shell --fabric "try:$PROVIDER" --buffer 16MiB /tmp/in far:/tmp/out >"$TALK" 2>&1
    say $? "memlock: a copy that may go over TCP ends well"
    grep -q 'not used: .*ulimit -l' "$TALK"
    say $? "memlock: it says why there is no RMA"
    is_right
    say $? "memlock: what was copied is right"
}

set_up
trees_arrive
interrupted 'far end killed' kill_far nothing
interrupted 'link down' link_down link_up
interrupted 'device gone' device_gone device_back
gives_way
without_locked_memory
exit "$problems"
