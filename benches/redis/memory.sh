#!/usr/bin/env bash
# Bytes a key in Redis: the growth of used_memory by 100,000 keys, tables and expiry included, at
# names of 40 bytes and of 30, for a bare SET with an expiry and for each of our records.
set -euo pipefail
# shellcheck source=benches/redis/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
N=${N:-100000}
start_server

used() { cli info memory | tr -d '\r' | awk -F: '$1 == "used_memory" { print $2 }'; }
one() { # name, words with %K for the key
    local name=$1 length before after
    shift
    for length in 40 30; do
        cli flushall >/dev/null
        before=$(used)
        seq -f "%0${length}.0f" 1 "$N" | awk -v words="$*" 'BEGIN { split(words, part, "%K") } { printf "%s%s%s\r\n", part[1], $1, part[2] }' |
            cli --pipe >/dev/null
        after=$(used)
        printf '%-18s %2d-byte name: %4d bytes a key\n' "$name" "$length" $(((after - before) / N))
    done
}

one 'bare SET PX' SET %K 1700000000000000 PX 3600000
one gcra_str_min EVALSHA "$(sha gcra_str_min)" 1 %K 360000000 3600000000
# Slow, so that no key is gone before it is counted.
one TOKEN_BUCKET_US EVALSHA "$(sha TOKEN_BUCKET_US)" 1 %K 360000000 3600000000
one TOKEN_BUCKET EVALSHA "$(sha TOKEN_BUCKET)" 1 %K 1 7 3600000000 252000000000 1 1
one SLIDING_WINDOW EVALSHA "$(sha SLIDING_WINDOW)" 1 %K 1 3600000000 100 3600000000 1 1
one FIXED_WINDOW EVALSHA "$(sha FIXED_WINDOW)" 1 %K 1 3600000000 100 3600000000 1 1
one SLIDING_LOG EVALSHA "$(sha SLIDING_LOG)" 1 %K 1 3600000000 100 3600000000 1 1
one swl_zset EVALSHA "$(sha swl_zset)" 1 %K 10 3600000000 1
