#!/bin/bash
# Compares reports of streamgauge with captures of tshark.
#
# Usage: tests/truth-run.sh [SERVER...]
#   SERVER: vlc faulty-udp faulty-tcp   (default: all)
#
# For each server: starts it, captures the loopback interface, plays from it with streamgauge,
# computes the figures from the capture (tests/truth.py, which shares no code with streamgauge) and
# compares. Counts must be equal; the mean jitter within 1 %, also over TCP, where the time of a
# packet is that of the segment with its last byte.
#
# Environment:
#   STREAMGAUGE  the binary             (default: target/release/streamgauge, else target/debug)
#   CLIENTS      number of clients      (default: 10)
#   MEDIA_SECONDS length of the media    (default: 10)
#   OUT          folder of captures, tables and reports (default: a new folder under /tmp)
#
# Needs root (to capture), tshark, and for `vlc` VLC and ffmpeg: see ./test.
set -euo pipefail
cd "$(dirname "$0")/.."

clients=${CLIENTS:-10}
long=${MEDIA_SECONDS:-10}
out=${OUT:-$(mktemp -d /tmp/streamgauge-truth.XXXXXX)}
mkdir -p "$out"
chmod a+rx "$out"
if [[ -z ${STREAMGAUGE:-} ]]; then
    STREAMGAUGE=target/release/streamgauge
    [[ -x $STREAMGAUGE ]] || STREAMGAUGE=target/debug/streamgauge
fi
[[ -x $STREAMGAUGE ]] || { echo "no streamgauge at $STREAMGAUGE: cargo build" >&2; exit 2; }

started=()
stop_all() {
    local pid
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    started=()
}
trap stop_all EXIT

# Waits until a process listens on a TCP port; gives up after 15 s.
await_port() {
    local port=$1 deadline=$((SECONDS + 15))
    until [[ -n $(ss -Hltn "sport = :$port") ]]; do
        (( SECONDS < deadline )) || { echo "nothing listens on port $port" >&2; return 1; }
        sleep 0.05
    done
}

# Waits until a file contains a matching line; gives up after 15 s.
await_line() {
    local file=$1 pattern=$2 deadline=$((SECONDS + 15))
    until grep -q -- "$pattern" "$file" 2>/dev/null; do
        (( SECONDS < deadline )) || { echo "$file never said '$pattern'" >&2; return 1; }
        sleep 0.05
    done
}

# A free TCP port.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

make_clips() {
    local n
    mkdir -p "$out/clips"
    for n in 1 2 3; do
        [[ -f $out/clips/clip$n.mp4 ]] || ffmpeg -v error -f lavfi -i testsrc2=s=640x360:r=25 \
            -f lavfi -i "sine=frequency=$((220 * n))" -t "$long" -c:v libx264 -preset veryfast \
            -b:v 1M -minrate 1M -maxrate 1M -bufsize 1M -x264-params nal-hrd=cbr -g 50 \
            -pix_fmt yuv420p -c:a aac -b:a 128k "$out/clips/clip$n.mp4"
    done
    chmod -R a+rX "$out/clips"
}

start_vlc() { # PORT
    local n
    make_clips || return 1
    for n in 1 2 3; do
        printf 'new clip%d vod enabled\nsetup clip%d input %s\n' "$n" "$n" "$out/clips/clip$n.mp4"
    done >"$out/vlm.conf"
    chmod a+r "$out/vlm.conf"
    local as_nobody=()
    # VLC refuses to run as root.
    (( EUID != 0 )) || as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    "${as_nobody[@]}" env HOME=/tmp vlc -I dummy --rtsp-port "$1" --vlm-conf "$out/vlm.conf" \
        >"$out/vlc.log" 2>&1 &
    started+=($!)
    await_port "$1"
}

start_faulty() { # PORT NAME
    # No segmentation offload: the capture must show packets as they are received.
    "$STREAMGAUGE" serve rtsp --no-gso --port "$1" --bitrate 1Mbps --length "${long}s" --first-seq 65000 \
        --fault loss=2% --fault duplicate=1% --fault reorder=1%x3 --seed 7 \
        --report "$out/$2-served.json" >"$out/$2-serve.log" 2>&1 &
    started+=($!)
    await_port "$1"
}

# Waits until a capture on PORT contains a packet that is sent now, and so all earlier packets: packets
# in the kernel's queue are lost when a capture is stopped.
flush_capture() { # FILE PORT
    local mark deadline=$((SECONDS + 15)) kind
    mark="the-capture-ends-here-$RANDOM$RANDOM"
    for kind in udp tcp; do
        # No listener is needed for UDP: the mark is in the datagram. The SYN of a connection cannot
        # carry the mark, so the server under test gets it as a request, which it refuses.
        printf '%s-%s' "$mark" "$kind" >"/dev/$kind/127.0.0.1/$2" || true
        until grep -aq -- "$mark-$kind" "$1"; do
            (( SECONDS < deadline )) || { echo "$1 never held the mark" >&2; return 1; }
            sleep 0.05
        done
    done
}

# Return value of `play` if the capture lost packets, so that no comparison is possible.
incomplete=3

# Captures, plays, compares.
play() { # NAME PORT URL TRANSPORT
    local name=$1 port=$2 url=$3 transport=$4 capture status=0
    # For UDP the first bytes are enough; for TCP all bytes are needed to parse the stream.
    local udp=(-i lo -f udp -s 128) tcp=(-i lo -f "tcp port $port" -s 262144)
    dumpcap -q "${udp[@]}" "${tcp[@]}" -B 64 -w "$out/$name.pcapng" 2>"$out/$name-dumpcap.log" &
    capture=$!
    started+=("$capture")
    await_line "$out/$name-dumpcap.log" '^File:' || return 1

    # Loss is intended here: the run must be valid, but need not pass.
    "$STREAMGAUGE" load "$url" --clients "$clients" --transport "$transport" --seed 7 \
        --no-run-file --json "$out/$name.json" >"$out/$name.log" 2>&1 || status=$?
    (( status == 0 || status == 99 )) || {
        echo "$name: streamgauge ended with $status:" >&2; cat "$out/$name.log" >&2; return 1; }

    flush_capture "$out/$name.pcapng" "$port" || return 1
    kill -INT "$capture"
    wait "$capture" || true
    if ! grep -q 'received/dropped' "$out/$name-dumpcap.log" \
        || grep 'received/dropped' "$out/$name-dumpcap.log" | grep -vq '/0 (pcap:0/dumpcap:0/'; then
        echo "$name: the capture is not complete:" >&2
        cat "$out/$name-dumpcap.log" >&2
        return "$incomplete"
    fi

    echo "== $name: $clients clients, $transport"
    tests/truth.py dump "$out/$name.pcapng" --port "$port" --out "$out/$name" || return 1
    tests/truth.py compare "$out/$name" --port "$port" --report "$out/$name.json" \
        --jitter 0.01
}

run() { # SERVER
    local port
    port=$(free_port)
    case $1 in
        vlc) start_vlc "$port" &&
             play "$1" "$port" "rtsp://127.0.0.1:$port/clip{1..3}" udp ;;
        faulty-*) start_faulty "$port" "$1" &&
             play "$1" "$port" "rtsp://127.0.0.1:$port/1" "${1#*-}" ;;
        *) echo "unknown server: $1" >&2; return 2 ;;
    esac
}

servers=("$@")
(( $# > 0 )) || servers=(vlc faulty-udp faulty-tcp)
failed=()
for server in "${servers[@]}"; do
    # Other programs may send more than a capture can take, but not three times in a row.
    for _ in 1 2 3; do
        # Under || the shell does not exit at an error, so the functions report their failures.
        status=0
        run "$server" || status=$?
        stop_all
        (( status == incomplete )) || break
    done
    (( status == 0 )) || failed+=("$server")
done
echo "captures and reports: $out"
if (( ${#failed[@]} > 0 )); then
    echo "differs: ${failed[*]}" >&2
    exit 1
fi
echo "all agree"
