#!/usr/bin/env bash
# Open the course in JupyterLab: `make lab`. Arguments are passed on to JupyterLab.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH # for ninja, which builds torch's C++ extensions

if [ "$(id -u)" = 0 ]; then
    echo "lab: you are root, which JupyterLab refuses by default: passing --allow-root"
    set -- --allow-root "$@"
fi
echo "lab: opening notebooks/00_start_here.ipynb (Ctrl-C twice ends it)"
# The folder scripts/lab silences JupyterLab's questions about news and updates.
exec .venv/bin/python -m jupyterlab --LabApp.app_settings_dir="$PWD/scripts/lab" \
    --ServerApp.root_dir="$PWD" notebooks/00_start_here.ipynb "$@"
