# Sourced by the scripts beside it, which set `here` to this folder.
# After `bootstrap runtime` or `bootstrap dev`, $python has that lock installed and the current folder is the root:
# there `app` is imported from, and .env and the default data directory are, wherever the script was called.
# $caller is the folder where it was called: paths that are named there are read from there.
# The usual start only compares files: a copy of the lock in .venv says that it was installed completely.
# PYTHON names the interpreter to use; otherwise it is the first Python >= 3.11 on PATH.
# shellcheck shell=sh

unset PYTHONDONTWRITEBYTECODE # compiled modules halve the time of a start
root=$(dirname -- "${here:?}")
caller=$PWD
python=$root/.venv/bin/python

abi() { "$1" -ISc 'import sys; print(sys.implementation.cache_tag)' 2>/dev/null; }

# The interpreter below .venv may have been replaced since, or PYTHON may ask for another one.
ready() {
    cmp -s "$root/requirements/$1.txt" "$root/.venv/.locked-$1" || return 1
    built_for=$(cat "$root/.venv/.abi")
    [ "$(abi "$python")" = "$built_for" ] || return 1
    [ -z "${PYTHON:-}" ] || [ "$(abi "$PYTHON")" = "$built_for" ]
}

recent() { "$1" -ISc 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if recent "$candidate"; then
            echo "$candidate"
            return
        elif [ -n "${PYTHON:-}" ]; then
            echo "PYTHON=$PYTHON is not a Python >= 3.11." >&2
            return 1
        fi
    done
    echo "No Python >= 3.11 on PATH; install one, or name it: PYTHON=/path/to/python $0" >&2
    return 1
}

bootstrap() {
    if ! ready "$1"; then
        base=$(find_python) || exit 1
        "$base" -I "$here/bootstrap.py" "$root" "$1"
    fi
    cd "$root" || exit 1
}
