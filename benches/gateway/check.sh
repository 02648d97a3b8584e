#!/usr/bin/env bash
# `POST /v1/check` beside the HTTP check of throttlecrab-server, each with one worker, for 1,000
# identities in turn that are all admitted.
#
#   benches/gateway/check.sh PROGRAM THROTTLECRAB_SERVER [SECONDS [ROUNDS]]
#
# Needs wrk, and `cargo install throttlecrab-server`. CONNECTIONS="1 64 512" are those of the load;
# medians are printed: requests a second, the ratio to throttlecrab-server, processor time of the
# server a request, p50, p99. Tollgate is asked with an admin token, as in production, which the
# other one has no counterpart of.

set -euo pipefail

program=$1
crab=$2
seconds=${3:-3}
rounds=${4:-3}
read -ra connections <<<"${CONNECTIONS:-1 64 512}"
base=${PORT:-18580}
folder=$(mktemp -d)
pids=()
cleanup() {
    if [ ${#pids[@]} -gt 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT
command -v wrk >/dev/null || { echo "check: wrk is not installed" >&2; exit 1; }

declare -A pid_of=() port_of=([throttlecrab]=$base [tollgate]=$((base + 1)))
TOKIO_WORKER_THREADS=1 "$crab" --http --http-host 127.0.0.1 --http-port "$base" \
    --log-level error >"$folder/crab.log" 2>&1 &
pids+=($!)
pid_of[throttlecrab]=$!
env -i ADMIN_TOKEN=a-token-of-the-operators "$program" serve --listen "127.0.0.1:$((base + 1))" \
    --quota 1000000/s --workers 1 --max-connections 12000 --access-log false --log warn \
    --identity-order api_key >"$folder/tollgate.log" 2>&1 &
pids+=($!)
pid_of[tollgate]=$!

cat >"$folder/throttlecrab.lua" <<'LUA'
local requests, i = {}, 0
function init()
  for key = 1, 1000 do
    local name = string.format("tenant:%016x:user:%011d", key * 2654435761, key)
    requests[key] = wrk.format("POST", "/throttle", { ["Content-Type"] = "application/json" },
      '{"key":"' .. name .. '","max_burst":1000000,"count_per_period":1000000,"period":1}')
  end
end
function request()
  i = i % 1000 + 1
  return requests[i]
end
LUA
cat >"$folder/tollgate.lua" <<'LUA'
local requests, i = {}, 0
function init()
  for key = 1, 1000 do
    local name = string.format("tenant:%016x:user:%011d", key * 2654435761, key)
    requests[key] = wrk.format("POST", "/v1/check",
      { ["Content-Type"] = "application/json", Authorization = "Bearer a-token-of-the-operators" },
      '{"identity":{"type":"api_key","value":"' .. name .. '"}}')
  end
end
function request()
  i = i % 1000 + 1
  return requests[i]
end
LUA

ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/${pid_of[$1]}/stat"; }
median() { tr ' ' '\n' | grep . | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

cases=(throttlecrab tollgate)
for name in "${cases[@]}"; do
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/${port_of[$name]}") 2>/dev/null && break
        sleep 0.1
    done
done

declare -A rates=() times=() p50=() p99=()
for _ in $(seq "$rounds"); do
    for count in "${connections[@]}"; do
        for name in "${cases[@]}"; do
            before=$(ticks "$name")
            wrk -t1 "-c$count" "-d${seconds}s" --latency -s "$folder/$name.lua" \
                "http://127.0.0.1:${port_of[$name]}/" >"$folder/out"
            after=$(ticks "$name")
            if grep -q Non-2xx "$folder/out"; then
                echo "check: $name did not admit all" >&2
                exit 1
            fi
            requests=$(awk '/requests in/ { print $1 }' "$folder/out")
            key="$name $count"
            rates[$key]+=" $(awk '/Requests\/sec/ { print $2 }' "$folder/out")"
            p50[$key]+=" $(awk '$1 == "50%" { print $2 }' "$folder/out")"
            p99[$key]+=" $(awk '$1 == "99%" { print $2 }' "$folder/out")"
            times[$key]+=" $(awk -v t=$((after - before)) -v n="$requests" 'BEGIN { printf "%.1f", t * 10000 / n }')"
        done
    done
done
printf '%-16s %5s %12s %9s %10s %10s %10s\n' case conns 'requests/s' 'x crab' 'us/request' p50 p99
for count in "${connections[@]}"; do
    of=$(median <<<"${rates["throttlecrab $count"]}")
    for name in "${cases[@]}"; do
        key="$name $count"
        rate=$(median <<<"${rates[$key]}")
        printf '%-16s %5s %12.0f %9s %10s %10s %10s\n' "$name" "$count" "$rate" \
            "$(awk -v a="$rate" -v b="$of" 'BEGIN { printf "%.2f", a / b }')" \
            "$(median <<<"${times[$key]}")" "$(median <<<"${p50[$key]}")" "$(median <<<"${p99[$key]}")"
    done
done
