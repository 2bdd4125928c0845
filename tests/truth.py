#!/usr/bin/env python3
"""Computes the counts that an RTP receiver must have, from a capture of tshark.

This is the independent reference for streamgauge. It shares no code with streamgauge, uses only
Python's standard library, and reads only tables that tshark printed:

  media    one line per frame: time, addresses, and for every RTP packet in it SSRC, sequence number,
           timestamp and payload type (tshark separates several packets of one frame by commas)
  control  one line per TCP segment of the RTSP connections, with its payload in hexadecimal; the
           clock rates (SDP), ports or channels (SETUP) and first sequence numbers (RTP-Info) are
           read from these

Definitions:
  expected    highest extended sequence number - base + 1; base is RTP-Info's seq if it was given
              and lies less than 3000 below the lowest number seen, else the lowest seen
  received    first copies
  lost        expected - received
  duplicated  copies of a number at most 2048 behind the highest; older ones count as late
  reordered   first copies that arrived after a higher number
  jitter      RFC 3550, 6.4.1 and A.8 in floating point: the running estimate after each packet from
              a stream's second on, duplicates included, late ones not; mean and maximum over all packets

Modes:
  truth.py dump CAPTURE --port PORT --out DIR     runs tshark: DIR/media.tsv and DIR/control.tsv
  truth.py count DIR --port PORT                  prints the figures as JSON
  truth.py compare DIR --port PORT --report FILE  compares a report of streamgauge with them;
                                                  exit status 1 if they differ
"""

import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys

REMEMBERED = 2048
BELIEVED = 3000
MEDIA_FIELDS = [
    "frame.number", "frame.time_epoch", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
    "udp.srcport", "udp.dstport", "tcp.stream", "tcp.srcport", "rtsp.channel",
    "rtp.ssrc", "rtp.seq", "rtp.timestamp", "rtp.p_type",
]
CONTROL_FIELDS = [
    "frame.number", "frame.time_epoch", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
    "tcp.stream", "tcp.srcport", "tcp.dstport", "tcp.seq", "tcp.payload",
]
STATIC_CLOCKS = {0: 8000, 3: 8000, 4: 8000, 5: 8000, 6: 16000, 7: 8000, 8: 8000, 9: 8000,
                 10: 44100, 11: 44100, 12: 8000, 13: 8000, 14: 90000, 15: 8000, 18: 8000,
                 26: 90000, 31: 90000, 32: 90000, 33: 90000, 34: 90000}


# Output of tshark

def dump(capture, port, out):
    """Runs tshark twice over a capture and writes its tables."""
    out.mkdir(parents=True, exist_ok=True)
    common = [
        "tshark", "-n", "-r", str(capture),
        "-o", "tcp.reassemble_out_of_order:TRUE",
        "-d", f"tcp.port=={port},rtsp",
        "-d", "udp.port==1024-65535,rtp",
        "-T", "fields", "-E", "header=y", "-E", "separator=/t", "-E", "occurrence=a",
        "-E", "aggregator=,",
    ]
    passes = [
        ("media.tsv", "rtp", MEDIA_FIELDS),
        ("control.tsv", f"tcp.port == {port} && tcp.len > 0", CONTROL_FIELDS),
    ]
    for name, display_filter, fields in passes:
        command = common + ["-Y", display_filter]
        for field in fields:
            command += ["-e", field]
        with open(out / name, "w", encoding="ascii") as table:
            subprocess.run(command, stdout=table, stderr=subprocess.DEVNULL, check=True)


def rows(path):
    """Returns the lines of a table as dictionaries."""
    csv.field_size_limit(1 << 30)
    with open(path, encoding="ascii", newline="") as table:
        yield from csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)


def number(text):
    """Parses a number of tshark: decimal, or hexadecimal with 0x."""
    return int(text, 0)


def nanoseconds(text):
    """Parses a time in nanoseconds; a float would round to a quarter of a microsecond."""
    whole, _, part = text.partition(".")
    return int(whole) * 10**9 + int(part.ljust(9, "0")[:9])


def source(row):
    return row["ip.src"] or row["ipv6.src"]


def destination(row):
    return row["ip.dst"] or row["ipv6.dst"]


# The RTSP conversations

class Message:
    """An RTSP request or answer."""

    def __init__(self, first, headers, body, time):
        self.first, self.headers, self.body, self.time = first, headers, body, time

    def header(self, name):
        return self.headers.get(name.lower(), "")


def byte_streams(path, port):
    """Returns both directions of each TCP connection (true: to the client): the bytes, the offsets
    of segments with their times, and the client's address."""
    segments = {}
    for row in rows(path):
        if not row["tcp.payload"]:
            continue
        to_client = int(row["tcp.srcport"]) == port
        key = (int(row["tcp.stream"]), to_client)
        client = destination(row) if to_client else source(row)
        segments.setdefault(key, []).append(
            (int(row["tcp.seq"]), nanoseconds(row["frame.time_epoch"]),
             bytes.fromhex(row["tcp.payload"].replace(":", "")), client))
    streams = {}
    for (connection, to_client), pieces in segments.items():
        pieces.sort(key=lambda piece: piece[:2])
        start, data, marks = pieces[0][0], bytearray(), []
        for seq, time, payload, client in pieces:
            place = seq - start
            if place > len(data):
                raise SystemExit(f"connection {connection}: segments are missing in the capture")
            fresh = payload[len(data) - place:]  # data repeated by a retransmission is left out
            if fresh:
                marks.append((len(data), time))
                data += fresh
        streams.setdefault(connection, {})[to_client] = (bytes(data), marks, pieces[0][3])
    return streams


def messages(data, marks):
    """Returns the RTSP messages in one direction of a connection; interleaved frames are skipped."""
    found, place, mark = [], 0, 0
    while place < len(data):
        if data[place] == 0x24:
            place += 4 + int.from_bytes(data[place + 2:place + 4], "big")
            continue
        if data[place] in b"\r\n":
            place += 1
            continue
        end = data.find(b"\r\n\r\n", place)
        if end < 0:
            break
        while mark + 1 < len(marks) and marks[mark + 1][0] <= place:
            mark += 1
        lines = data[place:end].decode("utf-8", "replace").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = int(headers.get("content-length", "0") or 0)
        body = data[end + 4:end + 4 + length].decode("utf-8", "replace")
        found.append(Message(lines[0], headers, body, marks[mark][1]))
        place = end + 4 + length
    return found


def described_media(sdp):
    """Returns the media of an SDP: control URL and clock rate by payload type."""
    found = []
    for line in sdp.replace("\r", "").split("\n"):
        if line.startswith("m="):
            types = [int(word) for word in line.split()[3:] if word.isdigit()]
            clocks = {kind: STATIC_CLOCKS[kind] for kind in types if kind in STATIC_CLOCKS}
            found.append({"control": "", "types": types, "clocks": clocks})
        elif found and line.startswith("a=control:"):
            found[-1]["control"] = line[len("a=control:"):].strip()
        elif found and (match := re.match(r"a=rtpmap:(\d+)\s+[^/\s]+/(\d+)", line)):
            found[-1]["clocks"][int(match[1])] = int(match[2])
    return found


def same_url(full, part):
    """True if a URL, absolute or relative as servers write it, names the same resource as `full`."""
    full, part = full.rstrip("/"), part.rstrip("/")
    return bool(part) and (full == part or full.endswith("/" + part.lstrip("/")))


def transport_parameter(text, name):
    match = re.search(rf"(?:^|;)\s*{name}\s*=\s*\"?([0-9A-Fa-f]+)", text)
    return match[1] if match else None


def receivers(path, port):
    """Returns the streams that each client set up: for UDP by address and port, for TCP by connection and channel."""
    by_port, by_channel = {}, {}
    for connection, directions in byte_streams(path, port).items():
        if len(directions) < 2:
            continue
        asked, answered = (messages(*directions[way][:2]) for way in (False, True))
        client = directions[True][2]
        answers = {answer.header("cseq"): answer for answer in answered
                   if answer.first.startswith("RTSP/")}
        media, set_up = [], []
        for request in asked:
            method, _, rest = request.first.partition(" ")
            answer = answers.get(request.header("cseq"))
            if answer is None or answer.first.split()[1:2] != ["200"]:
                continue
            url = rest.rsplit(" ", 1)[0]
            if method == "DESCRIBE":
                media = described_media(answer.body)
            elif method == "SETUP":
                one = next((one for one in media if same_url(url, one["control"])), None)
                if one is None and len(media) == 1:
                    one = media[0]
                if one is None:
                    raise SystemExit(f"SETUP of {url}, which the SDP does not name")
                receiver = {"url": url, "from": request.time, "clocks": one["clocks"],
                            "types": one["types"], "base": None}
                set_up.append(receiver)
                transport = answer.header("transport")
                if (channel := transport_parameter(transport, "interleaved")) is not None:
                    by_channel[connection, int(channel)] = receiver
                elif (local := transport_parameter(transport, "client_port")
                      or transport_parameter(request.header("transport"), "client_port")):
                    by_port.setdefault((client, int(local)), []).append(receiver)
            elif method == "PLAY":
                for part in answer.header("rtp-info").split(","):
                    fields = dict(field.strip().partition("=")[::2] for field in part.split(";"))
                    if "url" not in fields or "seq" not in fields:
                        continue
                    for receiver in set_up:
                        if same_url(receiver["url"], fields["url"]) and receiver["base"] is None:
                            receiver["base"] = int(fields["seq"])
    return by_port, by_channel


# The streams

class Stream:
    """The counts of a receiver for one stream."""

    def __init__(self, base, clock):
        self.stated_base, self.clock = base, clock
        self.highest = self.lowest = None
        self.seen = set()
        self.duplicated = self.reordered = self.late = 0
        self.last_transit, self.jitter = None, 0.0
        self.jitter_sum, self.jitter_count, self.jitter_max = 0.0, 0, 0.0

    def packet(self, time, seq, timestamp):
        if self.highest is None:
            extended = seq + 65536  # keeps an earlier, reordered number positive
            self.highest = self.lowest = extended
            self.seen.add(extended)
        else:
            ahead = (seq - self.highest) & 0xFFFF
            if ahead >= 0x8000:
                ahead -= 0x10000
            extended = self.highest + ahead
            if extended in self.seen and ahead > -REMEMBERED:
                self.duplicated += 1
            elif ahead <= -REMEMBERED:
                self.late += 1
                return
            else:
                self.seen.add(extended)
                self.lowest = min(self.lowest, extended)
                if ahead < 0:
                    self.reordered += 1
                else:
                    self.highest = extended
        self.estimate(time, timestamp)

    def estimate(self, time, timestamp):
        if self.last_transit is None:
            self.last_transit = (time, timestamp)
            return
        before, stamp_before = self.last_transit
        stamps = (timestamp - stamp_before) & 0xFFFFFFFF
        if stamps >= 0x80000000:
            stamps -= 0x100000000
        difference = (time - before) / 1e9 - stamps / self.clock
        self.jitter += (abs(difference) - self.jitter) / 16
        self.jitter_sum += self.jitter
        self.jitter_count += 1
        self.jitter_max = max(self.jitter_max, self.jitter)
        self.last_transit = (time, timestamp)

    def base(self):
        if self.stated_base is None:
            return self.lowest
        behind = (self.lowest - self.stated_base) & 0xFFFF
        return self.lowest - behind if behind < BELIEVED else self.lowest

    def figures(self):
        expected = self.highest - self.base() + 1
        received = len(self.seen)
        return {
            "expected": expected, "received": received, "lost": expected - received,
            "duplicated": self.duplicated, "reordered": self.reordered, "late": self.late,
            "jitter": {
                "mean": self.jitter_sum / self.jitter_count if self.jitter_count else None,
                "max": self.jitter_max if self.jitter_count else None,
            },
        }


def split(text):
    return text.split(",") if text else []


def packets(row):
    """Returns the RTP packets of a frame."""
    columns = [split(row[name]) for name in ("rtp.ssrc", "rtp.seq", "rtp.timestamp", "rtp.p_type")]
    if len(set(map(len, columns))) != 1:
        raise SystemExit(f"frame {row['frame.number']}: the lists are not of one length")
    return [tuple(map(number, values)) for values in zip(*columns)]


def owners(row, port, by_port, by_channel, amount):
    """Returns the receivers of the packets of a frame; None for packets that no client requested."""
    if row["udp.dstport"]:
        # The last client that set up the port before the packet arrived.
        candidates = by_port.get((destination(row), int(row["udp.dstport"])), [])
        time = nanoseconds(row["frame.time_epoch"])
        return [next((one for one in reversed(candidates) if one["from"] <= time), None)] * amount
    if not row["tcp.stream"] or int(row["tcp.srcport"]) != port:
        return [None] * amount
    # The frame's list of channels includes those of RTCP.
    connection = int(row["tcp.stream"])
    channels = [number(channel) for channel in split(row["rtsp.channel"])]
    found = [by_channel[connection, channel] for channel in channels
             if (connection, channel) in by_channel]
    if len(found) != amount:
        raise SystemExit(f"frame {row['frame.number']}: {len(found)} channels for {amount} packets")
    return found


def count(directory, port):
    """Computes the figures of every stream and the totals."""
    by_port, by_channel = receivers(directory / "control.tsv", port)
    streams, begun, ignored = {}, set(), 0
    for row in rows(directory / "media.tsv"):
        time = nanoseconds(row["frame.time_epoch"])
        found = packets(row)
        for receiver, (ssrc, seq, stamp, kind) in zip(
                owners(row, port, by_port, by_channel, len(found)), found):
            if receiver is None or kind not in receiver["types"]:
                ignored += 1
                continue
            key = (id(receiver), ssrc)
            if key not in streams:
                # RTP-Info describes the first source; a later source begins with its first packet.
                base = None if id(receiver) in begun else receiver["base"]
                begun.add(id(receiver))
                streams[key] = (receiver, Stream(base, receiver["clocks"].get(kind, 90000)))
            streams[key][1].packet(time, seq, stamp)
    listed = [{"url": receiver["url"], "ssrc": f"{key[1]:08X}", "base": receiver["base"],
               "clock": stream.clock, **stream.figures()}
              for key, (receiver, stream) in streams.items()]
    total = {name: sum(one[name] for one in listed)
             for name in ("expected", "received", "lost", "duplicated", "reordered", "late")}
    measured = [stream for _, stream in streams.values() if stream.jitter_count]
    counted = sum(stream.jitter_count for stream in measured)
    total["jitter"] = {
        "mean": sum(stream.jitter_sum for stream in measured) / counted if counted else None,
        "max": max((stream.jitter_max for stream in measured), default=None),
    }
    return {"total": total, "ignored": ignored, "streams": listed}


# Comparison with a report

def compare(truth, report, population, jitter_tolerance):
    """Prints one line per figure; True if all agree."""
    metrics = report["populations"][population]["metrics"]
    total, agrees = truth["total"], True
    print(f"{'':12} {'wire':>14} {'report':>14}")
    for name in ("expected", "received", "lost", "duplicated", "reordered"):
        same = metrics.get(name) == total[name]
        agrees &= same
        print(f"{name:12} {total[name]:>14} {metrics.get(name)!s:>14} {'' if same else '  DIFFERS'}")
    if jitter_tolerance is not None:
        ours, theirs = total["jitter"]["mean"], (metrics.get("jitter") or {}).get("mean")
        same = (ours is None and theirs is None) or (
            ours is not None and theirs is not None
            and abs(theirs - ours) <= jitter_tolerance * ours)
        agrees &= same
        shown = [f"{value * 1e3:.6f} ms" if value is not None else "none"
                 for value in (ours, theirs)]
        print(f"{'jitter.mean':12} {shown[0]:>14} {shown[1]:>14} {'' if same else '  DIFFERS'}")
    return agrees


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    dumping = modes.add_parser("dump", help="run tshark over a capture")
    dumping.add_argument("capture", type=pathlib.Path)
    dumping.add_argument("--out", type=pathlib.Path, required=True)
    counting = modes.add_parser("count", help="print the figures as JSON")
    comparing = modes.add_parser("compare", help="hold a report against the figures")
    for mode in (counting, comparing):
        mode.add_argument("directory", type=pathlib.Path)
    for mode in (dumping, counting, comparing):
        mode.add_argument("--port", type=int, required=True, help="the RTSP server's port")
    comparing.add_argument("--report", type=pathlib.Path, required=True)
    comparing.add_argument("--population", help="default: the report's only one")
    comparing.add_argument(
        "--jitter", type=float, default=0.01, metavar="SHARE",
        help="how far the mean jitter may be off (default 0.01); negative: not compared")
    arguments = parser.parse_args()

    if arguments.mode == "dump":
        dump(arguments.capture, arguments.port, arguments.out)
        return
    truth = count(arguments.directory, arguments.port)
    if arguments.mode == "count":
        json.dump(truth, sys.stdout, indent=2)
        print()
        return
    report = json.loads(arguments.report.read_text(encoding="utf-8"))
    population = arguments.population or next(iter(report["populations"]))
    tolerance = arguments.jitter if arguments.jitter >= 0 else None
    if not compare(truth, report, population, tolerance):
        sys.exit(1)


if __name__ == "__main__":
    main()
