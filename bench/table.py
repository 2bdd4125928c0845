"""Formats the result as text."""

LABELS = {
    "drop": "nobody reads (baseline)",
    "recvmmsg": "bare recvmmsg loop",
    "ring": "streamgauge by ring",
    "sockets": "streamgauge by sockets",
    "tcp": "streamgauge over TCP",
    "gortsplib-udp": "gortsplib over UDP",
    "gortsplib-tcp": "gortsplib over TCP",
    "ffmpeg": "ffmpeg over UDP",
}

NOTES = """
own           CPU of the receiver's processes by the kernel's accounting, user + system = all; us a packet
attributable  busy time of the whole machine less that of the baseline; us a packet. The baseline is of UDP
server        CPU of the server, which on loopback also delivers; us a packet
KiB/client    resident memory of the receiver's processes (proportional set size) over its clients
set-up        milliseconds from the beginning of a client to its first packet; baseline: to the answer of PLAY; ffmpeg: until
              it has found out about the stream and begins to write
gortsplib/    how many times more CPU the gortsplib client takes over the same transport: own, attributable
own/bare      how many times the own CPU of the bare loop
*             see below the table
Each figure is the median of the rounds; (least..most) beside it."""


def rate(bits):
    return f"{bits / 1e6:g} Mb/s" if bits >= 1_000_000 else f"{bits / 1e3:g} kb/s"


def head(result):
    machine = result["machine"]
    versions = ", ".join(text for name, text in machine["versions"].items() if text and name != "go")
    lines = [
        f"{machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}; {versions}",
        f"{result['rounds']} rounds of {result['seconds']:g} s each; "
        + ("server and receivers on cores of their own" if result["pinned"] else "server and receivers share all cores"),
    ]
    if result["others_busy_before"] > 0.05:
        lines.append(
            f"NOTE: others use {result['others_busy_before']:.0%} of a core now: the attributable figures will be wrong"
        )
    return "\n".join(lines)


def number(value, digits=2):
    return "-" if value is None else f"{value:,.{digits}f}"


def median(spread, digits=2, scale=1.0):
    return "-" if spread is None else number(spread["median"] * scale, digits)


def ranged(spread):
    if spread is None:
        return "-"
    return f"{spread['median']:.2f} ({spread['min']:.2f}..{spread['max']:.2f})"


def ratio(over, under):
    """`over` divided by `under`; empty if one of them is unknown, or `under` is too small."""
    if over is None or under is None or under["median"] <= 0 or over["median"] <= 0:
        return "-"
    return f"{over['median'] / under['median']:.1f}x"


def step(result):
    rows = result["rows"]
    columns = ["", "packets/s", "lost", "user", "+ system", "= own", "attributable", "server", "KiB/client",
               "set-up p50", "p95", "gortsplib/own", "/attr.", "own/bare"]
    lines, marks = [columns], []
    bare = rows.get("recvmmsg")
    for name, row in rows.items():
        peer = rows.get("gortsplib-tcp" if name.endswith("tcp") else "gortsplib-udp")
        compared = peer if peer is not row and name != "drop" else None
        baseline = name == "drop"
        lines.append([
            LABELS[name] + ("*" if row["marks"] else ""),
            median(row["packets_per_second"], 0),
            f"{row['lost']:,}",
            "-" if baseline else median(row["user"]),
            "-" if baseline else median(row["system"]),
            "-" if baseline else ranged(row["own"]),
            ranged(row["attributable"]),
            median(row["server"]),
            "-" if baseline else median(row["memory_per_client"], 1, 1 / 1024),
            median(row["setup_p50"], 2, 1e3),
            median(row["setup_p95"], 2, 1e3),
            ratio(compared["own"], row["own"]) if compared else "-",
            ratio(compared["attributable"], row["attributable"]) if compared else "-",
            ratio(row["own"], bare["own"]) if bare and bare is not row and not baseline else "-",
        ])
        if row["marks"]:
            marks.append(f"* {LABELS[name]}: " + ", ".join(row["marks"]))
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    text = [f"\n{result['clients']:,} clients at {rate(result['bitrate'])} each"]
    if result["bitrate"] < 1_000_000 and result["bitrate_chosen_by"] == "trying":
        text[0] += ": server and receivers together do not carry more on this machine"
    for line in lines:
        text.append("  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths))).rstrip())
    text += marks
    text += [f"left out: {LABELS[name]}: {why}" for name, why in result["left_out"].items()]
    disturbed = max((raw["elsewhere"] / raw["seconds"] for row in rows.values() for raw in row["raw"]), default=0)
    if disturbed > 0.1:
        text.append(f"NOTE: up to {disturbed:.0%} of a core went elsewhere: the attributable figures are disturbed")
    return "\n".join(text)
