#!/usr/bin/env bash
# The gateway beside nginx (reverse proxy with limit_req) and HAProxy (stick table), all before
# the same upstream on loopback, each with one worker: admitted and refused requests, and refused
# ones that come eight at a time. Beside the refused ones the floor: the same answer from a socket
# that looks at nothing.
#
#   benches/gateway/run.sh PROGRAM [SECONDS [ROUNDS]]
#
# Needs nginx, haproxy and wrk, and for the floor CANNED=, the program of that name of
# tollgate-benches. CONNECTIONS="1 64 512" are those of the load, CASES="nginx-refuse tollgate-refuse"
# some of all; every round runs all cases in turn, and medians are printed: requests a second, the
# ratio to nginx, processor time of the server a request, p50, p99. Then, unless only some are run,
# the memory at rest, after 64 connections, and with 10,000 that are idle. Read the ratios, and on a
# busy machine the processor time.

set -euo pipefail

program=$1
seconds=${2:-3}
rounds=${3:-3}
read -ra connections <<<"${CONNECTIONS:-1 64 512}"
base=${PORT:-18480}
folder=$(mktemp -d)
pids=()
cleanup() {
    if [ ${#pids[@]} -gt 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT
for tool in nginx haproxy wrk; do
    command -v "$tool" >/dev/null || { echo "gateway: $tool is not installed" >&2; exit 1; }
done

# Its workers must reach the folder.
user=
if [ "$(id -u)" = 0 ]; then user='user root;'; fi

nginx_with() { # name, server blocks
    cat >"$folder/$1.conf" <<CONF
$user
worker_processes 1;
daemon off;
pid $folder/$1.pid;
error_log $folder/$1.err;
events { worker_connections 12000; }
http {
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path $folder/$1-b;
    proxy_temp_path $folder/$1-p;
    fastcgi_temp_path $folder/$1-f;
    uwsgi_temp_path $folder/$1-u;
    scgi_temp_path $folder/$1-s;
    limit_req_zone \$http_x_api_key zone=admit:32m rate=1000000r/s;
    limit_req_zone \$http_x_api_key zone=refuse:32m rate=1r/m;
    limit_req_status 429;
    upstream up { server 127.0.0.1:$base; keepalive 512; keepalive_requests 100000000; }
    $2
}
CONF
    nginx -c "$folder/$1.conf" -p "$folder" &
    pids+=($!)
    echo $! >"$folder/$1.main"
}

haproxy_with() { # name, port, requests in ten seconds
    cat >"$folder/$1.cfg" <<CONF
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout client 30s
  timeout server 30s
  timeout connect 5s
  option http-keep-alive
  http-reuse always
frontend front
  bind 127.0.0.1:$2
  stick-table type string len 64 size 1m expire 60s store http_req_rate(10s)
  http-request track-sc0 req.hdr(x-api-key)
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt $3 }
  default_backend back
backend back
  server up 127.0.0.1:$base
CONF
    haproxy -db -f "$folder/$1.cfg" >/dev/null 2>&1 &
    pids+=($!)
    echo $! >"$folder/$1.main"
}

tollgate_with() { # name, port, quota
    env -i "$program" serve --listen "127.0.0.1:$2" --upstream "http://127.0.0.1:$base" \
        --quota "$3" --workers 1 --max-connections 12000 --access-log false --log warn \
        --identity-order api_key --admin-open true >"$folder/$1.log" 2>&1 &
    pids+=($!)
    echo $! >"$folder/$1.main"
}

proxy='proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";'
nginx_with upstream "server { listen 127.0.0.1:$base; location / { return 200 ok; } }"
nginx_with nginx-admit "server { listen 127.0.0.1:$((base + 1)); location / { limit_req zone=admit burst=1000 nodelay; $proxy } }"
nginx_with nginx-refuse "server { listen 127.0.0.1:$((base + 2)); location / { limit_req zone=refuse; $proxy } }"
haproxy_with haproxy-admit $((base + 3)) 1000000000
haproxy_with haproxy-refuse $((base + 4)) 1
tollgate_with tollgate-admit $((base + 5)) 1000000000/s
tollgate_with tollgate-refuse $((base + 6)) 1/h

# 1,000 API keys in turn, one by one and in batches.
cat >"$folder/get.lua" <<'LUA'
local requests, i = {}, 0
function init()
  for key = 1, 1000 do
    local name = string.format("tenant:%016x:user:%011d", key * 2654435761, key)
    requests[key] = wrk.format("GET", "/", { ["x-api-key"] = name, Host = "localhost" })
  end
end
function request()
  i = i % 1000 + 1
  return requests[i]
end
LUA
{
    cat "$folder/get.lua"
    cat <<'LUA'
local one = request
function request()
  local batch = {}
  for at = 1, 8 do
    batch[at] = one()
  end
  return table.concat(batch)
end
LUA
} >"$folder/batch.lua"

# A server's processes: nginx has workers.
processes() {
    local main
    main=$(cat "$folder/$1.main")
    echo "$main" "$(cat "/proc/$main/task/$main/children" 2>/dev/null || true)"
}
ticks() {
    local sum=0 process
    for process in $(processes "$1"); do
        sum=$((sum + $(awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$process/stat")))
    done
    echo $sum
}
resident() {
    local sum=0 process
    for process in $(processes "$1"); do
        sum=$((sum + $(awk '/^VmRSS/ { print $2 }' "/proc/$process/status")))
    done
    echo $sum
}
median() { tr ' ' '\n' | grep . | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

all=(
    nginx-admit haproxy-admit tollgate-admit
    nginx-refuse haproxy-refuse tollgate-refuse
    nginx-batch haproxy-batch tollgate-batch
)
if [ -n "${CANNED:-}" ]; then all+=(floor-refuse floor-batch); fi
read -ra cases <<<"${CASES:-${all[*]}}"
# Batches are refused by the servers that refuse.
server_of() { echo "${1/%-batch/-refuse}"; }
port_of() {
    case $(server_of "$1") in
        nginx-admit) echo $((base + 1)) ;;
        nginx-refuse) echo $((base + 2)) ;;
        haproxy-admit) echo $((base + 3)) ;;
        haproxy-refuse) echo $((base + 4)) ;;
        tollgate-admit) echo $((base + 5)) ;;
        tollgate-refuse) echo $((base + 6)) ;;
        floor-refuse) echo $((base + 8)) ;;
    esac
}
if [ -n "${CANNED:-}" ]; then
    # What a client of ours is told the second time.
    python3 - "$(port_of tollgate-refuse)" >"$folder/answer" <<'PYTHON'
import socket, sys, time
for _ in range(100):
    try:
        it = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
for _ in range(2):
    it.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-API-Key: floor\r\n\r\n")
    answer = it.recv(65536)
sys.stdout.buffer.write(answer)
PYTHON
    "$CANNED" "127.0.0.1:$(port_of floor-refuse)" "$folder/answer" &
    pids+=($!)
    echo $! >"$folder/floor-refuse.main"
fi
for name in "${cases[@]}"; do
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$(port_of "$name")") 2>/dev/null && break
        sleep 0.1
    done
done
rest=$(resident tollgate-admit)

declare -A rates=() times=() p50=() p99=()
for _ in $(seq "$rounds"); do
    for count in "${connections[@]}"; do
        for name in "${cases[@]}"; do
            script=get
            case $name in *-batch) script=batch ;; esac
            before=$(ticks "$(server_of "$name")")
            wrk -t1 "-c$count" "-d${seconds}s" --latency -s "$folder/$script.lua" \
                "http://127.0.0.1:$(port_of "$name")/" >"$folder/out"
            after=$(ticks "$(server_of "$name")")
            requests=$(awk '/requests in/ { print $1 }' "$folder/out")
            key="$name $count"
            rates[$key]+=" $(awk '/Requests\/sec/ { print $2 }' "$folder/out")"
            # Of batches wrk does not tell how long they took.
            case $script in
                get) show=2 ;;
                *) show=0 ;;
            esac
            p50[$key]+=" $(awk -v show=$show '$1 == "50%" { print show ? $show : "-" }' "$folder/out")"
            p99[$key]+=" $(awk -v show=$show '$1 == "99%" { print show ? $show : "-" }' "$folder/out")"
            times[$key]+=" $(awk -v t=$((after - before)) -v n="$requests" 'BEGIN { printf "%.2f", t * 10000 / n }')"
            refused=$(awk '/Non-2xx/ { print $NF }' "$folder/out")
            case $name in
                *-admit) [ -z "$refused" ] || { echo "gateway: $name refused $refused" >&2; exit 1; } ;;
                *) [ -n "$refused" ] || { echo "gateway: $name refused nothing" >&2; exit 1; } ;;
            esac
        done
    done
done
printf '%-16s %5s %12s %9s %10s %10s %10s\n' case conns 'requests/s' 'x nginx' 'us/request' p50 p99
for count in "${connections[@]}"; do
    for name in "${cases[@]}"; do
        key="$name $count"
        rate=$(median <<<"${rates[$key]}")
        of=$(median <<<"${rates["nginx-${name#*-} $count"]:-$rate}")
        printf '%-16s %5s %12.0f %9s %10s %10s %10s\n' "$name" "$count" "$rate" \
            "$(awk -v a="$rate" -v b="$of" 'BEGIN { printf "%.2f", a / b }')" \
            "$(median <<<"${times[$key]}")" "$(median <<<"${p50[$key]}")" "$(median <<<"${p99[$key]}")"
    done
done

if [ -n "${CASES:-}" ]; then exit; fi

# Memory, of a process that has done nothing else.
port=$((base + 7))
tollgate_with fresh $port 1000000000/s
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done
printf 'memory at rest: %s KiB\n' "$(resident fresh)"
wrk -t1 -c64 -d2s -s "$folder/get.lua" "http://127.0.0.1:$port/" >/dev/null
printf 'after 64 connections: %s KiB (the one above: %s at rest)\n' "$(resident fresh)" "$rest"
ulimit -n 20000 2>/dev/null || echo "gateway: too few open files for 10,000 connections" >&2
# Each makes one request, and stays.
python3 - "$port" <<'PYTHON' &
import socket, sys, time
idle = []
for i in range(10_000):
    it = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    it.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\n\r\n")
    it.recv(4096)
    idle.append(it)
print("connected", flush=True)
time.sleep(20)
PYTHON
holder=$!
pids+=($holder)
for _ in $(seq 150); do
    open=$(find "/proc/$(cat "$folder/fresh.main")/fd" -lname 'socket:*' 2>/dev/null | wc -l)
    [ "$open" -ge 10000 ] && break
    sleep 0.1
done
printf 'with %s sockets, nearly all idle: %s KiB\n' "$open" "$(resident fresh)"
