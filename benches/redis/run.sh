#!/usr/bin/env bash
# What a decision costs a server: our scripts beside plain commands and other people's shapes.
#
#   benches/redis/run.sh [requests a cell, 200000] [rounds, 5]
#   ONLY=regex   only these cases      PIPE="1 16"   pipeline depths      CONNS=50
#
# Needs redis-server (TOLLGATE_REDIS_SERVER), redis-benchmark, redis-cli. One line a case: the median
# (least..most) over the rounds of the server's CPU microseconds a request, I/O included, and the
# ratio to gcra_str_min, the smallest exact GCRA script, in the same run.
set -euo pipefail
# shellcheck source=benches/redis/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
N=${1:-200000} R=${2:-5} ONLY=${ONLY:-.} PIPE=${PIPE:-16} CONNS=${CONNS:-50} KEYS=${KEYS:-10000}
start_server

cpu_time() { cli info cpu | tr -d '\r' | awk -F: '/^used_cpu_(sys|user):/ { s += $2 } END { printf "%.6f", s }'; }
K=key:tenant:0123456789abcdef:__rand_int__ # 40 bytes once filled in

# One request a second and a million at once, so that keys stay and all is admitted; with -deny one
# an hour. The numbers of a quota are tick, n, p, full or tick, ticks, limit, slack.
words_of() {
    local name=${1%-deny} deny=0 full=1000000000000 p=1000000 limit=1000000000
    if [ "$1" != "$name" ]; then deny=1 full=3600000000 p=3600000000 limit=1; fi
    case $name in
        INCR) echo INCR $K ;;
        SETPX) echo SET $K 1700000000000000 PX 60000 ;;
        gcra_str_min) echo EVALSHA "$(sha $name)" 1 $K $p $full ;;
        tb_hash_float)
            if [ $deny = 1 ]; then echo EVALSHA "$(sha $name)" 1 $K 0.0003 1 1; else echo EVALSHA "$(sha $name)" 1 $K 1 1000000 1; fi ;;
        swc_hash | fixed_window) echo EVALSHA "$(sha $name)" 1 $K $limit 3600000 1 ;;
        swl_zset) echo EVALSHA "$(sha $name)" 1 $K $limit 1000000 1 ;;
        TOKEN_BUCKET_US) echo EVALSHA "$(sha $name)" 1 $K $p $full ;;
        TOKEN_BUCKET) echo EVALSHA "$(sha $name)" 1 $K 1 3 $((3 * p)) $((3 * full)) 1 1 ;;
        SLIDING_WINDOW) echo EVALSHA "$(sha $name)" 1 $K 1000 3600000 $limit 3600000 1 1 ;;
        FIXED_WINDOW) echo EVALSHA "$(sha $name)" 1 $K 1 3600000000 $limit 3600000000 1 1 ;;
        POLICY) echo EVALSHA "$(sha $name)" 1 $K "''" a 2 b 1 1 $p $full s 1000 3600000 $limit 3600000 1 1 ;;
        SLIDING_LOG) echo EVALSHA "$(sha $name)" 1 $K 1 1000000 $limit 60000000 1 1 ;;
        POLICY_WITH_LOG) echo EVALSHA "$(sha $name)" 1 $K "''" a 1 l 1 1000000 $limit 60000000 1 1 ;;
    esac
}
cases="INCR SETPX gcra_str_min gcra_str_min-deny TOKEN_BUCKET_US TOKEN_BUCKET_US-deny tb_hash_float tb_hash_float-deny TOKEN_BUCKET TOKEN_BUCKET-deny fixed_window FIXED_WINDOW FIXED_WINDOW-deny swc_hash SLIDING_WINDOW SLIDING_WINDOW-deny POLICY POLICY-deny swl_zset SLIDING_LOG SLIDING_LOG-deny POLICY_WITH_LOG POLICY_WITH_LOG-deny"

for pipe in $PIPE; do
    declare -A cpu=() rps=()
    for _ in $(seq "$R"); do
        for case in $cases; do
            if ! [[ $case =~ $ONLY || $case = gcra_str_min ]]; then continue; fi
            cli flushall >/dev/null
            eval "words=($(words_of "$case"))"
            before=$(cpu_time)
            line=$(redis-benchmark -p "$PORT" -c "$CONNS" -P "$pipe" -n "$N" -r "$KEYS" --csv "${words[@]}" 2>&1 | tail -1)
            after=$(cpu_time)
            case $line in *rror*) echo "$case: $line" >&2; exit 1 ;; esac
            cpu[$case]+=" $(awk -v a="$before" -v b="$after" -v n="$N" 'BEGIN { printf "%.3f", (b - a) * 1e6 / n }')"
            rps[$case]+=" $(echo "$line" | awk -F'","' '{ print $2 }')"
        done
    done
    middle() { tr ' ' '\n' <<<"$1" | grep . | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)], a[1], a[NR] }'; }
    base=$(middle "${cpu[gcra_str_min]}" | cut -d' ' -f1)
    for case in $cases; do
        [ -n "${cpu[$case]:-}" ] || continue
        read -r mid low high < <(middle "${cpu[$case]}")
        read -r speed _ _ < <(middle "${rps[$case]}")
        printf '%-22s P%-3s cpu %6.2f us (%s..%s)  x%.2f of gcra_str_min  %s/s\n' "$case" "$pipe" "$mid" "$low" "$high" \
            "$(awk -v a="$mid" -v b="$base" 'BEGIN { print a / b }')" "$speed"
    done
done
