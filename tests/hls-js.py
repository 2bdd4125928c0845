#!/usr/bin/env python3
"""Compares a player of streamgauge with hls.js in Chromium, at the same time and at the same server.

    tests/hls-js.py PROGRAM HLS_JS

PROGRAM is streamgauge, HLS_JS the file hls.min.js of https://github.com/video-dev/hls.js. Prints
the figures of both for five cases. Exits with 1 if they differ by more than the two can: one stall,
half a second behind live, or the variant that is played most of the time.

In the last case, each picture shows the time at which it was made, as sixteen black or white bars,
and ffmpeg encodes and segments them. The page reads the time from the pixels, so the latency
depends neither on the dates of the playlist nor on codes beside the pictures.
"""

import contextlib
import http.server
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from chromium import Chromium

SECONDS = 40
LATENCY_ERROR_MAX = 0.5

# Name, flags of the server, keys of the client, options of hls.js, and the bandwidth in bit/s.
CASES = [
    ("segments", "--bitrate 1Mbps", "low_latency: none", "lowLatencyMode: false", None),
    ("slow segments", "--bitrate 1Mbps --fault slow=6:14s", "low_latency: none", "lowLatencyMode: false", None),
    ("parts", "--bitrate 1Mbps --format fmp4 --part 400ms --gop 25", "low_latency: parts", "lowLatencyMode: true", None),
    ("variants", "--bitrate 2Mbps --variants 3", "variant: adaptive, bandwidth: 1800kbps", "lowLatencyMode: false", 1_800_000),
    ("pictures of the time", None, "low_latency: none", "lowLatencyMode: false", None),
]

# Pictures with the time, in milliseconds from 0 to 65,535: bars of 20 pixels, the first one has 1.
WIDTH, HEIGHT, RATE = 320, 32, 25
SHADES = {False: b"\x10" * 20, True: b"\xeb" * 20}

PAGE = """<!DOCTYPE html><video muted autoplay></video><script src="hls.js"></script><script>
const video = document.querySelector('video');
const found = {stalls: 0, stalled: 0, levels: {}, latencies: [], shown: [], start: null, errors: []};
const canvas = new OffscreenCanvas(320, 32).getContext('2d', {willReadFrequently: true});
// The time that the picture shows.
const shown = () => {
  canvas.drawImage(video, 0, 0, 320, 32);
  const pixels = canvas.getImageData(0, 16, 320, 1).data;
  let code = 0;
  for (let bit = 0; bit < 16; bit += 1) if (pixels[4 * (20 * bit + 10)] > 128) code += 2 ** bit;
  return code;
};
const begun = performance.now();
let waiting = null;
const hls = new Hls({OPTIONS});
hls.on(Hls.Events.ERROR, (_, data) => data.fatal && found.errors.push(data.details));
hls.loadSource('URL');
hls.attachMedia(video);
video.onplaying = () => {
  found.start ??= (performance.now() - begun) / 1000;
  if (waiting !== null) { found.stalls += 1; found.stalled += (performance.now() - waiting) / 1000; }
  waiting = null;
};
video.onwaiting = () => { if (found.start !== null) waiting ??= performance.now(); };
setInterval(() => {
  if (!hls.playingDate || waiting !== null || found.start === null) return;
  found.latencies.push((Date.now() - hls.playingDate) / 1000);
  found.shown.push(((Date.now() - shown()) % 65536 + 65536) % 65536 / 1000);
  const level = hls.levels[hls.currentLevel];
  if (level) found.levels[level.height + ' ' + level.bitrate] = (found.levels[level.height + ' ' + level.bitrate] ?? 0) + 1;
}, 200);
</script><footer></footer>"""


@contextlib.contextmanager
def server(program, flags):
    words = [program, "serve", "hls", "--port", "0", *flags.split()]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(timeout=60)


def draw(sink, stopped):
    """Writes pictures that show the time."""
    due = time.monotonic()
    with contextlib.suppress(BrokenPipeError):
        while not stopped.is_set():
            code = time.time_ns() // 1_000_000 % 65_536
            sink.write(b"".join(SHADES[bool(code >> bit & 1)] for bit in range(16)) * HEIGHT)
            sink.flush()
            due += 1 / RATE
            time.sleep(max(0, due - time.monotonic()))


class Files(http.server.SimpleHTTPRequestHandler):
    """The files of a folder, for pages of any origin."""

    protocol_version = "HTTP/1.1"

    def end_headers(self):
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def pictures_of_the_time(folder):
    media = folder / "media"
    media.mkdir()
    words = f"ffmpeg -v error -f rawvideo -pix_fmt gray -s {WIDTH}x{HEIGHT} -r {RATE} -i - -pix_fmt yuv420p "
    words += f"-c:v libx264 -preset ultrafast -tune zerolatency -g {RATE} -f hls -hls_time 1 -hls_list_size 8 "
    words += "-hls_flags program_date_time+delete_segments+temp_file index.m3u8"
    encoder = subprocess.Popen(words.split(), cwd=media, stdin=subprocess.PIPE)
    stopped = threading.Event()
    painter = threading.Thread(target=draw, args=(encoder.stdin, stopped))
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *own: Files(*own, directory=media))
    files.daemon_threads = True
    painter.start()
    threading.Thread(target=files.serve_forever, daemon=True).start()
    try:
        deadline = time.monotonic() + 60
        playlist = media / "index.m3u8"
        while not playlist.exists() or playlist.read_text().count("#EXTINF") < 5:
            assert time.monotonic() < deadline, "ffmpeg made no segments"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{files.server_port}/index.m3u8"
    finally:
        stopped.set()
        painter.join()
        encoder.stdin.close()
        encoder.wait(timeout=60)
        files.shutdown()


def play(program, hls_js, case, folder):
    """Returns what hls.js found, and what streamgauge did."""
    _, flags, keys, options, bandwidth = case
    source = server(program, flags) if flags else pictures_of_the_time(folder)
    with source as url, Chromium() as browser:
        page = folder / "page.html"
        page.write_text(PAGE.replace("OPTIONS", options).replace("URL", url))
        (folder / "hls.js").write_bytes(hls_js.read_bytes())
        if bandwidth:
            limits = {"offline": False, "latency": 0, "downloadThroughput": bandwidth / 8, "uploadThroughput": -1}
            browser.call("Network.emulateNetworkConditions", limits)
        scenario = f"duration: {SECONDS}s\nclients:\n  viewers: {{ urls: '{url}', load: {{ clients: 1 }}, {keys} }}\n"
        (folder / "run.yaml").write_text(scenario)
        words = [program, "run", "run.yaml", "--json", "out.json", "-q"]
        browser.call("Page.navigate", {"url": f"file://{page}"})
        client = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        client.wait(timeout=3 * SECONDS)
        theirs = browser.run("found")
    return theirs, json.loads((folder / "out.json").read_text())["populations"]["viewers"]["metrics"]


def compare(case, theirs, own):
    """Prints both, and returns what differs by too much."""
    name, bandwidth = case[0], case[4]
    latencies = theirs["latencies"] if case[1] else theirs["shown"]
    latency = statistics.median(latencies) if latencies else float("nan")
    # A page takes longer to begin, and stays that much behind.
    behind, own_behind = latency - theirs["start"], own["live_latency"]["p50"] - own["playback_delay"]["max"]
    level = max(theirs["levels"], key=theirs["levels"].get, default="none")
    times = own["stall_time"] or {"mean": 0, "count": 0}
    stalled = times["mean"] * times["count"]
    print(f"{name}:")
    print(f"  hls.js       {theirs['stalls']} stalls ({theirs['stalled']:.1f} s), {behind:.2f} s behind live when it began, level {level}")
    print(f"  streamgauge  {own['stalls']} stalls ({stalled:.1f} s), {own_behind:.2f} s behind live when it began, {own['bitrate']:.0f} bit/s")
    if theirs["errors"]:
        yield f"hls.js failed: {theirs['errors']}"
    if abs(theirs["stalls"] - own["stalls"]) > 1:
        yield "the numbers of stalls differ"
    if not abs(behind - own_behind) <= LATENCY_ERROR_MAX:
        yield "the latencies differ"
    if bandwidth:
        rate = int(level.split()[-1]) if level != "none" else 0
        if not 0.75 <= own["bitrate"] / max(rate, 1) <= 1.25:
            yield f"the variants differ: {rate} bit/s, and {own['bitrate']} bit/s"


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    program, hls_js = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    wrong = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            found = play(program, hls_js, case, pathlib.Path(folder))
        wrong += [f"{case[0]}: {text}" for text in compare(case, *found)]
    print("\n".join(wrong) or "they agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
