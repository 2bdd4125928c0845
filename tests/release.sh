#!/bin/bash
# Makes the archives of a release without optimisation, and uses them: the x86-64 program in a
# folder of its own (chroot), the arm64 program in an emulator.
#
# Usage: tests/release.sh [FOLDER]
#   FOLDER   where the archives are left; default: target/release-test
#
# Needs root, and what packaging/release needs. All traffic is in a network of its own.
set -euo pipefail
# What is tested does not depend on how busy the machine is.
export STREAMGAUGE_TESTER__HEALTH__WINDOWS=100%
cd "$(dirname "$0")/.."

build=${CARGO_TARGET_DIR:-target}
if [[ ${1:-} != --x86-64 && ${1:-} != --arm64 ]]; then
    dist=${1:-$build/release-test}
    packaging/release --profile dev --out "$dist" >/dev/null
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    dist=$(realpath "$dist")
    unshare --net --mount --propagation private "$0" --x86-64 "$dist" "$scratch"
    # A user namespace may say how programs of other machines are run (binfmt_misc).
    unshare --user --map-root-user --pid --fork --net --mount "$0" --arm64 "$dist" "$scratch"
    exit
fi
mode=$1 dist=$2 scratch=$3
ip link set lo up
pids=()
trap '(( ${#pids[@]} == 0 )) || kill "${pids[@]}" 2>/dev/null' EXIT

fail() { echo "$0: $*" >&2; exit 1; }

# Runs a command, and prints its output if it fails.
quietly() {
    "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "failed: $*"; }
}

commit=$(git rev-parse --short=12 HEAD)
(cd "$dist" && sha256sum --check --strict --quiet SHA256SUMS)

# Prints the folder of an unpacked archive, after a look at its files.
unpack() {
    local target=$1 archive name folder
    archive=$(echo "$dist"/streamgauge-*-"$target".tar.gz)
    name=$(basename "$archive" .tar.gz)
    folder=$scratch/$name
    tar -xzf "$archive" -C "$scratch"
    tar -xzf "$dist/$name-debug.tar.gz" -C "$scratch"
    for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE licences/THIRD-PARTY.txt \
        licences/musl.txt licences/rust-standard-library.html man/man1/streamgauge-run.1 \
        completions/{streamgauge.bash,_streamgauge,streamgauge.fish} examples/rtsp-vod.yaml \
        systemd/streamgauge-runner.service ci/run streamgauge.cdx.json; do
        [[ -s $folder/$file ]] || fail "$name has no $file"
    done
    cmp "$folder/streamgauge.cdx.json" "$dist/$name.cdx.json"
    # Linked statically: no loader, and no library that it needs.
    if readelf --program-headers --dynamic --wide "$folder/streamgauge" | grep -E 'INTERP|NEEDED'; then
        fail "$name is not static"
    fi
    readelf --sections --wide "$folder/streamgauge" >"$scratch/sections"
    ! grep -E '\.debug_(info|line)|\.symtab' "$scratch/sections" || fail "$name is not stripped"
    grep -q '\.gnu_debuglink' "$scratch/sections" || fail "$name does not name its debug information"
    readelf --sections --wide "$folder-debug/streamgauge.debug" >"$scratch/sections"
    grep -q '\.debug_line' "$scratch/sections" || fail "$name-debug has no lines of the source"
    ! grep -q "$PWD" "$folder/streamgauge" || fail "$name has paths of this machine"
    printf '%s\n' "$folder"
}

# The libraries of the SBOM are those that cargo links, and their licences are there.
check_sbom() {
    cargo tree --locked --package streamgauge --edges normal --target "$1" --prefix none \
        --format '{p}' | python3 -c '
import json, sys
bill = json.load(open(sys.argv[1]))
licences = open(sys.argv[2]).read()
linked = {tuple(line.split()[:2]) for line in sys.stdin if line.strip()}
linked = {(name, version[1:]) for name, version in linked}
parts = [bill["metadata"]["component"], *bill["components"]]
named = {(part["name"], part["version"]) for part in parts if part["name"] != "rust-std"}
assert named == linked, named ^ linked
for part in parts:
    ours = part["name"].startswith("streamgauge")
    assert part["licenses"][0]["expression"], part
    assert ours or part["name"] == "rust-std" or len(part["hashes"][0]["content"]) == 64, part
    assert ours or part["name"] == "rust-std" or part["name"] + " " + part["version"] in licences, part
inner = {inner["name"] for part in parts for inner in part.get("components", [])}
assert inner == {"aws-lc", "libdeflate", "mimalloc", "sqlite"}, inner
' "$2/streamgauge.cdx.json" "$2/licences/THIRD-PARTY.txt"
}

# Makes a folder in which a program of an archive is alone. It has what every container has: no library,
# no configuration, no certificates.
alone() {
    root=$scratch/$1
    mkdir -p "$root/proc" "$root/dev" "$root/tmp"
    mount -t proc none "$root/proc"
    touch "$root/dev/null"
    mount --bind /dev/null "$root/dev/null"
    cp "$2/streamgauge" "$root/"
}

inside() { chroot "$root" /streamgauge "$@"; }

# Checks what the program says of itself.
check_version() {
    inside --version >"$scratch/version" || fail "it does not start"
    grep -q "^commit: $commit" "$scratch/version" || { cat "$scratch/version" >&2; fail "wrong commit"; }
    grep -qx "target: $target" "$scratch/version" || { cat "$scratch/version" >&2; fail "wrong target"; }
}

if [[ $mode == --arm64 ]]; then
    echo "-- arm64, in an emulator"
    target=aarch64-unknown-linux-musl
    folder=$(unpack "$target")
    check_sbom "$target" "$folder"
    alone "$target" "$folder"
    if ! "$root/streamgauge" --version >/dev/null 2>&1; then
        # ELF of 64 bits, little-endian, for aarch64.
        head='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
        mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
        # F: the emulator is opened now, so it need not be in the folder.
        printf '%s' ":emulated:M::$head:$mask:$(command -v qemu-aarch64-static):F" \
            >/proc/sys/fs/binfmt_misc/register
    fi
    check_version
    # An emulated program is late, which is not what this checks. Over UDP it does not run: the emulator
    # has no arrival times of datagrams.
    STREAMGAUGE_TESTER__HEALTH__LAG_P99=10s STREAMGAUGE_TESTER__HEALTH__CPU_WAIT=100% \
        quietly inside demo --clients 2 --duration 4s --transport tcp --json report.json
    echo "used: $target"
    exit
fi

echo "-- x86-64, in a folder without libraries"
target=x86_64-unknown-linux-musl
folder=$(unpack "$target")
check_sbom "$target" "$folder"
alone "$target" "$folder"
check_version
grep -qx 'receives by: packet ring' "$scratch/version" || fail "no packet ring"
quietly inside demo --clients 5 --duration 4s --json report.json --markdown report.md
tr -d '\\' <"$root/report.md" | grep -q "commit $commit.*$target.*read by ring" ||
    { cat "$root/report.md" >&2; fail "the report does not name its build"; }
# Figures that other processes make uncertain (110) are no fault of the archive, wrong ones are.
inside calibrate --quick --skip-capacity --protocol rtsp --json calibration.json \
    >"$scratch/log" 2>&1 || (( $? == 110 )) || { cat "$scratch/log" >&2; fail "calibrate"; }
python3 -c '
import json, sys
paths = json.load(open(sys.argv[1]))["paths"]
figures = [figure for path in paths for figure in path["figures"]]
wrong = [figure for figure in figures if figure["result"] == "off"]
assert len(paths) == 3 and figures and not wrong, wrong
' "$root/calibration.json" || { cat "$scratch/log" >&2; fail "calibration"; }

# Starts a program inside, waits for its first line, and leaves its last word in `last`.
start() {
    local pipe=$scratch/pipe-${#pids[@]} line
    mkfifo "$pipe"
    chroot "$root" /streamgauge "$@" >"$pipe" 2>&1 &
    pids+=("$!")
    # It stays open: the rest of the output is a few lines.
    exec {opened}<"$pipe"
    rm "$pipe"
    IFS= read -r -t 60 line <&"$opened" || fail "it does not begin: $*"
    kill -0 "${pids[-1]}" 2>/dev/null || { echo "$line" >&2; cat <&"$opened" >&2; fail "it ended: $*"; }
    last=${line##* }
}

# Stops all that was started, in good order.
stop_all() {
    local pid
    for pid in "${pids[@]}"; do
        kill -TERM "$pid"
        wait "$pid" || { cat <&"$opened" >&2; fail "a program did not end in good order"; }
    done
    pids=()
}

# Every reference server, each with clients.
ip link set lo multicast on
ip route add 239.81.0.0/16 dev lo
protocols=$(inside serve --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\)  .*/\1/p' | grep -vx help)
for protocol in $protocols; do
    options=()
    case $protocol in
        http-ts) options=(--interface lo) ;;
        messages) options=(--mode echo) ;;
    esac
    start serve "$protocol" --port 0 "${options[@]}" -q
    url=$last
    authority=${url#*://} authority=${authority%%/*}
    case $protocol in
        http-ts)
            start send udp://239.81.0.1:4056 --bitrate 1Mbps --interface lo
            url=http://$authority/udp/239.81.0.1:4056 ;;
        webrtc) url=whep+http://$authority/whep/live ;;
    esac
    quietly inside load "$url" --clients 2 --duration 3s --force --out "$protocol.run"
    stop_all
    echo "serve $protocol: used"
done
echo "used: $target"
