# Stores the program that follows on the standard input, and starts it; run by start.sh, in the same shell.
new=.$$.$(date +%s) why='' mask=$(umask)
umask 077
fail() {
    rm -f "$p/$new"
    echo "carrack: $1" >&2
    exit @NO_PLACE@
}
# Makes the directory of a place, which is the user's habit or the system's.
prepare() { mkdir -p "$1" 2>/dev/null || why="$why $1: it can't be made;"; }
# Returns true for a place with room in which programs may run. What exists may be another user's: so each directory is
# looked at before anything is made in it.
usable() {
    if ! { mkdir "$b" 2>/dev/null || [ -d "$b" ]; } || ! own "$b" "$u"; then
        why="$why $b: not writable, or not this user's own;"
    elif ! { mkdir "$p" 2>/dev/null || [ -d "$p" ]; } || ! own "$p" "$u"; then
        why="$why $p: not writable, or not this user's own;"
    elif ! dd if=/dev/zero of="$p/$new" bs=1024 count=@KIB@ 2>/dev/null; then
        why="$why $b: no room for @KIB@ KiB;"
    elif ! { printf '#!/bin/sh\n' >"$p/$new" && chmod 700 "$p/$new" && "$p/$new"; } 2>/dev/null; then
        why="$why $b: programs there may not run;"
    else
        return 0
    fi
    # Only what is empty: a directory of another user is left alone.
    own "$b" "$u" && rm -f "$p/$new"
    rmdir "$p" "$b" 2>/dev/null
    return 1
}
places prepare usable || fail "no place on this host for the program that was sent:${why%;}"
trap 'fail "interrupted"' HUP INT TERM
if [ @PACKING@ = gzip ]; then head -c @SENT@ | gzip -dc; else head -c @SENT@; fi >"$p/$new" ||
    fail "$p: the program that was sent can't be written"
s=$(sum "$p/$new")
[ "$(wc -c <"$p/$new")" -eq @BYTES@ ] && { [ -z "$s" ] || [ "$s" = "$d" ]; } ||
    fail "$p: the program that was sent did not arrive whole"
[ ! -d "$p/carrack" ] || rm -rf "$p/carrack"
mv -f "$p/$new" "$p/carrack" || fail "$p: the program that was sent can't be written"
# Programs that were sent more than a month ago, and what killed shells have left.
find "$b" -mindepth 2 -maxdepth 2 \( -name carrack -mtime +30 -o -name '.*.*' -mtime +1 \) -exec rm -f {} + 2>/dev/null
find "$b" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*-*' -exec rmdir {} + 2>/dev/null
umask "$mask"
# shellcheck disable=SC2086 # words without blanks
exec "$p/carrack" $args
