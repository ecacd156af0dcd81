# shellcheck shell=bash
# Shared by the shell scripts of this repository; source it, don't run it.
#
#   . "$(dirname "$0")/lib.sh"
#
# Talk goes to stderr, so that a script's stdout stays data.

say() { printf '%s\n' "$*" >&2; }

# A step of a longer script; bold on a terminal.
step() {
    if [ -t 2 ]; then printf '\033[1m==> %s\033[0m\n' "$*" >&2; else printf '==> %s\n' "$*" >&2; fi
}

# die MESSAGE [HINT]
die() {
    say "${0##*/}: error: $1"
    [ $# -lt 2 ] || say "hint: $2"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Prints the comment block at the top of the script itself.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# rustup puts cargo where a non-login shell doesn't look; sshd is not on an ordinary user's PATH.
PATH="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:/usr/local/sbin:/usr/sbin:/sbin"
export PATH

# The version of the workspace (Cargo.toml).
workspace_version() { sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml; }

# Packages of PyPI, each as NAME==VERSION, in a virtual environment.
install_python() { # DIRECTORY PACKAGE...
    local directory=$1
    shift
    [ "$(cat "$directory/wants" 2>/dev/null)" != "$*" ] || return 0
    step "$*, from PyPI"
    python3 -m venv --clear "$directory"
    "$directory/bin/pip" --quiet --disable-pip-version-check install "$@" >&2
    echo "$*" >"$directory/wants"
}

# A linker and C compiler for other C libraries and machines.
install_zig() { install_python "$1" cargo-zigbuild==0.24.0 ziglang==0.17.1; } # DIRECTORY
