#!/bin/bash
# Record bash as it is installed (nothing is compiled for this) and look at what it did, in three views.
#
#     examples/demo.sh [SHADOWGRAPH [FOLDER]]
set -eu

shadowgraph=$(realpath -s "$(command -v "${1:-shadowgraph}")")
folder=${2:-.}
script=$(realpath "$(dirname "$0")/fibonacci.sh")

show() {
    printf '\n$ %s\n' "$1"
}

mkdir -p "$folder"
cd "$folder"

show "shadowgraph record --force bash fibonacci.sh"
"$shadowgraph" record --force bash "$script"

show "shadowgraph report --limit 12"
"$shadowgraph" report --limit 12 bash.sgt

show "shadowgraph replay | head -40"
"$shadowgraph" replay bash.sgt | head -40

show "shadowgraph graph --depth 9 --min 1 | head -40"
"$shadowgraph" graph --depth 9 --min 1 bash.sgt | head -40

printf '\nThe trace is in %s/bash.sgt: its tables are Parquet files (docs/trace-format.md).\n' "$folder"
