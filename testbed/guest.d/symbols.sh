#!/bin/busybox sh
# shellcheck shell=sh
# In the guest of testbed/guest: the kernel's own functions near those that copy, clear and sum, in order of address.
grep -i ' [tw] ' /proc/kallsyms | grep -v '\[' | sort |
    grep -A 3 -E ' (clear_page|clear_user|copy_page|copy_user|__copy_user_nocache|csum_partial|_*mem(cpy|move|set))' |
    grep -v '^--' >/dev/records
