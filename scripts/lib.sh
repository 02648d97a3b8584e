# shellcheck shell=bash
# Helpers shared by the scripts in this folder. Source it, do not run it.
#
# The caller has already said `set -euo pipefail`: this file changes no shell
# option, so that it can also be sourced from an interactive shell.

# Everything the scripts bring lands here and nowhere else, so that a cold start
# is `rm -rf` of one folder. Nothing relies on it being warm.
TOLLGATE_CACHE=${TOLLGATE_CACHE:-${HOME:?HOME is not set: set TOLLGATE_CACHE}/.cache/tollgate}
# The child processes that tests start do not run in this folder.
case $TOLLGATE_CACHE in /*) ;; *) TOLLGATE_CACHE=$PWD/$TOLLGATE_CACHE ;; esac
export TOLLGATE_CACHE

TOLLGATE_SERVERS_ENV=$TOLLGATE_CACHE/servers.env
TOLLGATE_IMAGES_ENV=$TOLLGATE_CACHE/images.env

# All messages go to stderr: stdout is kept for what a caller may capture.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
warn() { printf '%s: warning: %s\n' "${0##*/}" "$*" >&2; }
die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# On CI a server that quietly went missing would turn its tests into skips that
# nobody reads, so what is only a warning at a desk is an error there.
on_ci() {
    case ${CI:-} in '' | 0 | false | no) return 1 ;; *) return 0 ;; esac
}

# missing MESSAGE: an error on CI, a warning elsewhere.
missing() {
    if on_ci; then
        die "$* (required because CI is set)"
    fi
    warn "$*"
}

# as_root COMMAND...: never prompts, because a prompt on a machine without a
# terminal is a hang.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        warn "needs root, and sudo is missing or would ask for a password: $*"
        return 1
    fi
}

apt_get() {
    # The lock timeout is for machines whose unattended-upgrades has just woken.
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@" >&2
}

# apt_install PACKAGE...: tries the package index as it is first, because most
# machines have one and refreshing it costs more than the install; an index that
# is absent or out of date (404 on a superseded version) is refreshed once.
apt_install() {
    have apt-get || return 1
    local rc=0
    block_service_starts
    if ! apt_get install --no-install-recommends "$@"; then
        say "apt-get install $* failed; refreshing the package index"
        { apt_get update && apt_get install --no-install-recommends "$@"; } || rc=$?
    fi
    unblock_service_starts
    return "$rc"
}

# Debian starts a daemon when its package is installed. Tests run servers of
# their own on ports of their own, so that one would only hold memory and the
# default port. policy-rc.d is Debian's own way to say so; where the machine
# already has one (containers do), it is left as it is.
POLICY_RC_D=/usr/sbin/policy-rc.d
policy_rc_d_is_ours=0

block_service_starts() {
    [ -e "$POLICY_RC_D" ] && return 0
    # shellcheck disable=SC2016 # $1 is for the inner shell
    if as_root sh -c 'printf "#!/bin/sh\nexit 101\n" >"$1" && chmod 755 "$1"' sh "$POLICY_RC_D"; then
        policy_rc_d_is_ours=1
    fi
}

# Also called from the callers' exit traps, so that no failure leaves behind a
# machine on which no service starts.
unblock_service_starts() {
    if [ "$policy_rc_d_is_ours" = 1 ]; then
        policy_rc_d_is_ours=0
        as_root rm -f "$POLICY_RC_D"
    fi
}

sha256_of() { sha256sum -- "$1" | cut -d' ' -f1; }

# version_of BINARY: "7.0.15" out of "Redis server v=7.0.15 sha=..."; Valkey
# prints the same shape, and memcached "memcached 1.6.18". Empty when the binary
# does not run here.
version_of() {
    "$1" --version 2>/dev/null |
        sed -n -e 's/.* v=\([0-9][0-9.]*\).*/\1/p' -e 's/^memcached \([0-9][0-9.]*\).*/\1/p' || true
}

# at_least VERSION WANTED
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# write_exports FILE NAME...: writes the named variables as sourceable exports,
# in one rename, so that a test run that sources the file meanwhile never sees
# half of it.
write_exports() {
    local file=$1 name tmp
    shift
    mkdir -p "$(dirname "$file")"
    tmp=$(mktemp "$file.XXXXXX")
    {
        echo "# Written by scripts/${0##*/}; rewritten at each run."
        for name in "$@"; do
            printf 'export %s=%q\n' "$name" "${!name}"
        done
    } >"$tmp"
    chmod 644 "$tmp"
    mv -f "$tmp" "$file"
}

# load_test_env: exports what scripts/servers and scripts/images found.
load_test_env() {
    local file
    for file in "$TOLLGATE_SERVERS_ENV" "$TOLLGATE_IMAGES_ENV"; do
        if [ -r "$file" ]; then
            # shellcheck disable=SC1090 # written above
            . "$file"
        fi
    done
}
