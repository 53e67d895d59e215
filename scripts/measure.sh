#!/usr/bin/env bash
# Take every stored measurement of assets/results again, on this machine's GPU, in one go:
#
#     scripts/measure.sh NAME FOLDER      # NAME begins each file, h200 say; FOLDER must be new
#
# Needs Python with torch and Triton, nothing else. About four minutes.
set -euo pipefail
name=${1:?name of the GPU, h200 say} folder=${2:?folder for the results}
cd "$(dirname "$0")/.."
run() { PYTHONPATH=. python3 -m trimul "$@" > /dev/null; }

run machine --device cuda --out "$folder/${name}_machine.json"
run bench einsum --device cuda --out "$folder/${name}_bench.json"
run bench einsum --device cuda --flush-l2 --out "$folder/${name}_bench_l2_flushed.json"
for n in 256 1024; do
    run profile einsum --device cuda --n "$n" --out "$folder/${name}_profile_n$n.json"
done
run check einsum --device cuda --out "$folder/${name}_check.json"
PYTHONPATH=. python3 -c "import sys; from trimul import clock, measure
measure.save(clock.examine('cuda'), sys.argv[1])" "$folder/${name}_clock.json"
