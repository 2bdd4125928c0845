#!/usr/bin/env python3
"""Runs messages against the reference server many times, and requires equal counts on both sides.

    tests/messages-runs.py [PROGRAM] [RUNS]

Sinks and echoes, each plan in turn, one of them over TLS if openssl is installed; every second run is stopped by SIGINT in the middle.
Prints the number of runs. Exits with 1 at the first run in which the counts differ.
"""

import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATTERNS = [
    ("sink", ["--sleep", "0s"]),
    ("sink", ["--every", "10ms"]),
    ("echo", ["--in-flight", "4"]),
    ("echo", ["--rate", "200/s", "--answers", "echo"]),
    ("sink", ["--rate", "200/s"]),
    ("tls", ["--rate", "200/s", "--answers", "echo"]),
]


def once(program, number, folder, draw):
    mode, pattern = PATTERNS[number % len(PATTERNS)]
    secure = []
    if mode == "tls":
        mode, pattern = "echo", [*pattern, "--tls-ca", "own.pem"]
        if shutil.which("openssl"):
            make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "own.pem"]
            subprocess.run(make, cwd=folder, check=True, capture_output=True)
            secure = ["--tls-cert", "own.pem", "--tls-key", "key.pem"]
        else:
            pattern = pattern[:-2]
    stopped = number % 2 == 1
    served, report = folder / "served.jsonl", folder / "report.json"
    server = subprocess.Popen([program, "serve", "messages", "--mode", mode, "--port", "0", "--report", str(served), "-q", *secure], stdout=subprocess.PIPE, text=True,
                              cwd=folder)
    url = server.stdout.readline().split()[-1]
    words = [program, "load", url, "-c", str(draw.choice([1, 7, 60, 300])), *pattern, "-d", "1s" if not stopped else "30s", "-q", "--no-describe",
             "--json", str(report), "-o", str(folder / f"{number}.run")]
    client = subprocess.Popen(words, cwd=folder)
    if stopped:
        time.sleep(0.4 + draw.random())
        client.send_signal(signal.SIGINT)
    code = client.wait(timeout=60)
    server.send_signal(signal.SIGINT)
    server.wait(timeout=60)
    own = json.loads(report.read_text())["populations"]["senders"]["metrics"]
    counted = json.loads(served.read_text().splitlines()[-1])["messages"]
    pairs = {
        "messages": (own["sent"], counted["messages"]),
        "acknowledged": (own["acknowledged"], counted["messages"]),
        "bytes": (own["bytes_sent"], counted["bytes"]),
        "lost": (own["lost_in_flight"], 0),
    }
    if mode == "echo":
        pairs["answers"] = (own["answered"], counted["replies"])
    wrong = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return own["sent"], code, wrong


def main():
    program = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/streamgauge").resolve())
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    draw = random.Random(1)
    messages = 0
    for number in range(runs):
        with tempfile.TemporaryDirectory(prefix="streamgauge-runs-") as folder:
            sent, code, wrong = once(program, number, pathlib.Path(folder), draw)
        if wrong or sent == 0 or code not in (0, 105, 110):
            print(f"run {number + 1}, {PATTERNS[number % len(PATTERNS)]}: exit {code}, {sent} sent; we and the server: {wrong}")
            return 1
        messages += sent
    print(f"{runs} runs, {messages} messages, every one of them counted on both sides")
    return 0


if __name__ == "__main__":
    sys.exit(main())
