#!/usr/bin/env bash
# Set up .venv from requirements.lock: `make env`, and what every other rule runs first.
#
# The last thing a run does is to stamp .venv: what it was made from, and where. The next run that
# finds the same stamp ends at once. Where the lock or pyproject.toml changed, it brings .venv up to
# date; where the stamp says otherwise (a run that was killed, a checkout that was moved, another
# Python) it builds .venv anew. A .venv without a stamp is not ours: it is moved aside, not deleted.
#
# The reader may set PYTHON (the Python to build with) and any of pip's own variables.
# Written for bash 3.2, which macOS ships.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/.venv
stamp=$venv/made-from
log=$venv.log
oldest=11 newest=14 # Python 3.x for which every pinned package has wheels
# Free space asked for, in MB. The finished .venv takes 2.3 GB with the CPU build of torch, 5.4 GB
# with the CUDA build (measured on Linux, torch 2.13.0), and pip keeps its downloads beside it.
cpu_space=3000 cuda_space=9000

# An active .venv must not be built from itself, nor packages found that lie outside it.
PATH=:$PATH: && PATH=${PATH//:$venv\/bin:/:} && PATH=${PATH#:} && PATH=${PATH%:}
unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES=${PIP_RETRIES:-2}

say() { printf 'env: %s\n' "$*"; }
stop() { say "$*" >&2 && exit 1; }
trap 'stop "stopped half way; run it again to start over"' INT TERM

pinned() { grep "^$1==" requirements.lock | sed 's/ *;.*//'; }
interpreter() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.base_prefix)'; }

made_from() { # place and Python (a change means a new .venv), then the files (an update will do)
    printf 'at %s, Python %s\n' "$venv" "$(interpreter "$venv/bin/python" 2>/dev/null)"
    printf 'lock %s, pyproject %s\n' "$(cksum <requirements.lock)" "$(cksum <pyproject.toml)"
}

right_python() { # the .venv is of the Python that the reader asked for, if they did
    [ -z "${PYTHON:-}" ] ||
        [ "$(interpreter "$PYTHON" 2>/dev/null)" = "$(interpreter "$venv/bin/python" 2>/dev/null)" ]
}

is_ready() { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(made_from)" ] && right_python; }
is_outdated() { # right but for the lock or pyproject.toml
    [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$(made_from | head -n 1)" ] && right_python
}

find_python() { # sets python, or says why there is none
    local candidate version unfit='' without_venv=''
    local range="Python 3.$oldest to 3.$newest"
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3.14 python3 python
    fi
    for candidate; do
        version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' \
            2>/dev/null) || continue
        if ! "$candidate" -c "import sys; v = sys.version_info; \
            sys.exit(not (3, $oldest) <= v[:2] <= (3, $newest))"; then
            unfit="$unfit $candidate ($version)"
        elif ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            without_venv="$candidate ($version)"
        else
            python=$candidate && say "Python $version ($candidate)" && return
        fi
    done
    [ -z "$without_venv" ] || stop "$without_venv cannot make virtual environments:" \
        "install its venv module (Debian, Ubuntu: apt-get install python3-venv) and run this again"
    [ -z "$unfit" ] || stop "the course needs $range, and this machine has$unfit:" \
        "install one, or name it: make env PYTHON=/path/to/python3.12"
    [ -z "${PYTHON:-}" ] || stop "PYTHON=$PYTHON does not run: name a $range"
    stop "no Python found: install $range, or name it: make env PYTHON=/path/to/python3.12"
}

hold_lock() { # until this process ends: the kernel lets go of it, however that comes about
    exec 9>"$venv.lock"
    local flock='import fcntl, sys; fcntl.flock(9, fcntl.LOCK_EX | int(sys.argv[1]))'
    "$python" -c "$flock" 4 2>/dev/null && return # 4: do not wait
    say "another run is setting up $venv; waiting for it"
    "$python" -c "$flock" 0
}

need_space() { # need_space MB WHAT
    local free=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024))
    [ "$free" -ge "$1" ] || stop "$2 needs $1 MB of free disk to install, and there are $free:" \
        "free some, or move the checkout to a larger disk, and run this again"
}

explain() { # the likely cause, from pip's own words
    case $(cat "$log") in
    *"No space left"*) echo "the disk is full: free some space" ;;
    *CERTIFICATE_VERIFY_FAILED*) echo "a certificate was refused: is there a proxy? pip takes its \
certificate from PIP_CERT" ;;
    *NewConnectionError* | *"Failed to establish"* | *"timed out"* | *ProxyError* | *"name resolution"* | \
        *"Max retries"* | *"Connection reset"* | *"Connection broken"* | *"Connection refused"*)
        echo "no network: the package index could not be reached" ;;
    *"No matching distribution"*) echo "a pinned version has no wheel for this Python and system \
($(uname -sm)); another Python may have: make env PYTHON=..." ;;
    *) echo "all of pip's words are in $log" ;;
    esac
}

logged() { # logged COMMAND...: run it quietly, showing the large downloads only
    local line
    if ! "$@" 2>&1 | tee -a "$log" | while IFS= read -r line; do
        case $line in
        *Downloading*" MB)") line=${line##*/} && say "  ${line#*Downloading }" ;;
        esac
    done; then
        tail -n 8 "$log" | sed 's/^/    /' >&2
        stop "setting up failed ($(explain)); then run this again"
    fi
}

pip() { logged "$venv/bin/python" -m pip install "$@"; }

clear_away() { # by renaming first, so that a run killed here leaves nothing half deleted
    rm -rf "$venv.old"
    if [ -f "$stamp" ]; then
        say "$venv is incomplete, from another place or of another Python: replacing it"
        mv "$venv" "$venv.old"
        rm -rf "$venv.old"
    elif [ -n "$(ls -A "$venv" 2>/dev/null)" ]; then
        [ ! -e "$venv.kept" ] ||
            stop "$venv was not made by this script: move or delete it, then run this again"
        say "$venv was not made by this script: keeping it as $venv.kept"
        mv "$venv" "$venv.kept"
    else
        rm -rf "$venv"
    fi
}

build() {
    local torch
    [ "$(uname -sm)" != "Darwin x86_64" ] ||
        stop "torch is no longer made for Macs with an Intel processor: use another machine"
    need_space $cpu_space "the environment"
    clear_away
    say "building $venv"
    mkdir "$venv"
    echo incomplete >"$stamp"
    logged "$python" -m venv "$venv"
    pip "$(pinned pip)"

    # Which build of torch pip takes decides on the space: ask it.
    torch=$("$venv/bin/python" -m pip install --dry-run --quiet --no-deps --report - \
        "$(pinned torch)" 2>/dev/null) || torch=
    case $(uname -s)$torch in
    Linux*+cpu*) say "torch: the CPU build, 2.3 GB with everything else" ;;
    Linux?*)
        say "torch: the CUDA build, 2.7 GB to download and 5.4 GB with everything else" \
            "(README.md says how to take the CPU build instead)"
        need_space $cuda_space "the CUDA build of torch"
        ;;
    esac
}

install() {
    say "installing $(grep -c '==' requirements.lock) pinned packages (pip's words: $log)"
    pip -r requirements.lock
    pip --no-deps --no-build-isolation -e .
}

warn_compiler() {
    command -v "${CXX:-g++}" >/dev/null || command -v clang++ >/dev/null ||
        say "no C++ compiler: CUDA on the CPU (lessons 12 and 13) and Triton on a GPU of this" \
            "machine need one and show recordings without it; all else works." \
            "Debian, Ubuntu: apt-get install g++; macOS: xcode-select --install"
}

if is_ready; then say "$venv is ready" && exit; fi
find_python
hold_lock
if is_ready; then say "$venv is ready" && exit; fi
: >"$log"
if is_outdated; then
    say "bringing $venv up to date"
    echo incomplete >"$stamp"
else
    build
fi
install
made_from >"$stamp"
warn_compiler
say "ready after $SECONDS s"
