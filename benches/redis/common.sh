# shellcheck shell=bash
# What run.sh and memory.sh share: one server of their own on loopback, without persistence, and our
# scripts put together as tollgate-lua puts them together.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lua=$here/../../lua/src

start_server() {
    PORT=${PORT:-16399}
    dir=$(mktemp -d)
    "${TOLLGATE_REDIS_SERVER:-redis-server}" --port "$PORT" --bind 127.0.0.1 --save '' --appendonly no \
        --dir "$dir" --logfile "$dir/log" &
    pid=$!
    trap 'kill "$pid"; wait "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
    for _ in $(seq 100); do
        if cli ping >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "the server does not start" >&2
    exit 1
}

cli() { redis-cli -p "$PORT" "$@"; }

# source_of NAME: a peer's script, or one of ours by the name of its constant.
source_of() {
    if [ -r "$here/peers/$1.lua" ]; then
        cat "$here/peers/$1.lua"
    else
        awk -v name="$1" '$0 ~ "const " name ":" { on = 1 } on { print } on && /;$/ { exit }' "$lua/lib.rs" |
            grep -o '[a-z_]*\.lua' | while read -r part; do cat "$lua/$part"; done
    fi
}

sha() { source_of "$1" | cli -x SCRIPT LOAD; }
