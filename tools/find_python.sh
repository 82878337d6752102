#!/bin/bash
# Prints the command of a Python that can build Shadowgraph: $PYTHON if it is set, else python3, else the newest of
# python3.11 and later. Exit status 1, and one sentence for each thing that is missing on this machine, if it cannot be built.
set -u

missing=0
complain() {
    echo "make: $1" >&2
    missing=1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

# The first that is new enough and has the venv module; failing that, the first new enough, for the complaint to name.
python=
if [ -n "${PYTHON:-}" ]; then
    is_new_enough "$PYTHON" && python=$PYTHON
else
    for candidate in python3 python3.{15..11}; do
        is_new_enough "$candidate" || continue
        python=${python:-$candidate}
        has_venv "$candidate" && python=$candidate && break
    done
fi

if [ -z "$python" ]; then
    complain "${PYTHON:-python3}: Python 3.11 or later is needed (on Debian: apt install python3 python3-venv), or name one with PYTHON=..."
elif ! has_venv "$python"; then
    complain "$python has no venv module; install it (on Debian: apt install python3-venv)"
fi

read -ra compiler <<<"${CC:-gcc}"
if ! command -v "${compiler[0]}" >/dev/null; then
    complain "${compiler[0]}: there is no such compiler; install one (on Debian: apt install gcc libc6-dev), or name yours with CC=..."
elif ! echo '#include <stdlib.h>' | "${compiler[@]}" -E - >/dev/null 2>&1; then
    complain "the C library's headers are missing; install them (on Debian: apt install libc6-dev)"
fi

[ "$missing" = 0 ] && echo "$python"
