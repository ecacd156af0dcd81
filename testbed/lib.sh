# shellcheck shell=bash
# Shared by the scripts of testbed/ that start file systems; source it after scripts/lib.sh, don't run it.

# What mounting with FUSE takes.
require_fuse() {
    [ "$(id -u)" = 0 ] || die "only root can start and mount it"
    [ -c /dev/fuse ] || die "there is no /dev/fuse" "modprobe fuse"
}

# Tries until it works, or half a minute is over.
wait_for() { # COMMAND...
    for _ in {1..300}; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    return 1
}

# Whether something is mounted there, also if what served it is gone (which mountpoint does not see).
is_mounted() { findmnt -n -M "$1" >/dev/null 2>&1; }

# A mount stays busy for a moment where a process has just been forked that has a file there open until its exec.
# Where its lifetime is over nobody is asked: who waits for its servers only ends with them.
unmount() { # DIR
    [ -z "${CARRACK_TESTBED_OVER-}" ] || return 0
    ! is_mounted "$1" || wait_for umount "$1" || die "$1 is busy"
}

# After its server's end, whatever happened before: nobody can use the mount any more.
unmount_dead() { # DIR
    ! is_mounted "$1" || umount -l "$1"
}

# Where CARRACK_TESTBED_LIFETIME_S is set, takes it down after so many seconds, should nobody else: tests may be killed.
# None of the caller's open files: a test harness waits for its pipes to close.
limit_lifetime() { # SCRIPT DIR
    [ -n "${CARRACK_TESTBED_LIFETIME_S-}" ] || return 0
    # shellcheck disable=SC2016  # for the shell that waits
    setsid bash -c 'sleep "$1"; CARRACK_TESTBED_OVER=1 exec "$2" down "$3"' limit "$CARRACK_TESTBED_LIFETIME_S" "$1" "$2" \
        </dev/null >/dev/null 2>&1 &
    echo $! >"$2/limit"
}

# Ends what limit_lifetime left waiting, unless it is that which asks.
unlimit_lifetime() { # DIR
    local pid
    if [ -s "$1/limit" ] && read -r pid <"$1/limit" && [ "$pid" != $$ ]; then
        # It leads a group of its own; its command line says that it's still the one.
        if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- " limit "; then kill -- "-$pid" 2>/dev/null || true; fi
    fi
    rm -f "$1/limit"
}
