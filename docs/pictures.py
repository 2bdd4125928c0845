#!/usr/bin/env python3
"""Takes the pictures of reports in docs/pictures/ from real runs, in a headless Chromium.

Usage: docs/pictures.py [--again] [--keep FOLDER] PROGRAM [NAME...]

PROGRAM is a release build of streamgauge; NAME is a picture of the list below, all by default.
Runs are kept in target/pictures (or FOLDER). With --again no run is made: pages are drawn from the
existing runs. Needs root, chromium, ffmpeg (to make PNGs small), and the servers of the scenarios.
Stops at a run with an unexpected verdict.

    cargo build --release
    sudo docs/pictures.py target/release/streamgauge
"""

import argparse
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import Chromium  # noqa: E402 (the module is next to the tests)

# Width of pages, in pixels.
WIDTH = 1280
# Maximum size of a picture in bytes; tests/layout/book.rs checks it.
LARGEST = 150 * 1024
# Verdicts by exit code.
PASS, FAIL, INVALID = 0, 99, 110


class Picture:
    """A run, and the shown part of its page."""

    def __init__(self, command, codes=(PASS,), series=False, height=900, show=None):
        self.command = command
        self.codes = codes
        self.series = series
        self.height = height
        # Heading at the top of the picture; by default the beginning of the page.
        self.show = show


def example(name, *settings):
    command = ["run", f"examples/{name}.yaml"]
    for setting in settings:
        command += ["--set", setting]
    return command


SHORT_CLIPS = "server.clips.length=20s"
NUMBERS = "vary.clients.viewers.load.clients=[50, 100, 200, 300, 350, 400, 450, 500, 600]"
# The tester has priority over a server that uses all cores of the machine.
FIRST = "tester.priority=raised"
ALL = {
    # For the README.
    "report": Picture(
        example("rtsp-vod", SHORT_CLIPS, "clients.viewers.load={clients: 100, ramp: 10s}"),
        height=1500),
    # For docs/html.md.
    "fail": Picture(
        ["demo", "--clients", "200", "--duration", "20s", "--fault", "loss=2%",
         "--threshold", "viewers.loss < 1%"], (FAIL,)),
    "invalid": Picture(
        ["demo", "--clients", "200", "--duration", "12s", "--bitrate", "3Mbps",
         "--receive", "sockets", "--receive-buffer", "4KiB"], (INVALID,), height=760),
    # For the tutorials.
    "rtsp-vod": Picture(
        example("rtsp-vod-series", SHORT_CLIPS, NUMBERS, "settle=1s", FIRST),
        (PASS, FAIL, INVALID), True),
    "janus-room": Picture(
        example("janus-rooms", "clients.people.load={clients: 46, ramp: 92s}", "duration=105s", FIRST),
        (PASS, FAIL, INVALID), height=1150, show="Over time"),
    "relays": Picture(
        example("relays-eight-groups", "vary.server.launch=[rtp2httpd, msd_lite, udpxy]"),
        (PASS, FAIL, INVALID), True),
    "rtmp-srt": Picture(
        example("rtmp-srt-delay"),
        (PASS, FAIL, INVALID), True, show="Viewer's delay"),
    "hls-or-ll-hls": Picture(
        example("hls-or-ll-hls"),
        (PASS, FAIL, INVALID), True, show="Figures by"),
    "messages": Picture(
        example("messages-series", "duration=6s", "warm_up=3s",
                "vary.clients.users.load.clients=[1000, 2000, 3000, 4000, 5000, 6000]"),
        (PASS, FAIL, INVALID), True, show="Figures by"),
}


def make(program, name, picture, path):
    """Makes the run or the series of a picture."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    done = subprocess.run([program, *picture.command, "--no-live", "-o", str(path)], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    print(done.stdout)
    if done.returncode not in picture.codes:
        sys.exit(f"{name}: {done.returncode}, and not {picture.codes}\n{done.stderr}")


def draw(program, name, picture, path, folder):
    """Draws the page of a run, and keeps the shown part."""
    page = folder / f"{name}.html"
    subprocess.run([program, "report", str(path), "--html", str(page), "-q"],
                   stdout=subprocess.DEVNULL, check=True)
    target = DOCS / "pictures" / f"{name}.png"
    with Chromium() as browser, tempfile.TemporaryDirectory() as scratch:
        browser.open(page, WIDTH, picture.height)
        if picture.show:
            browser.run(
                "[...document.querySelectorAll('h2, h3, h4')].find(one => one.innerText.startsWith("
                f"{json.dumps(picture.show)})).scrollIntoView()")
            browser.frame()
        shot = browser.call("Page.captureScreenshot", {"format": "png"})["data"]
        large = pathlib.Path(scratch, "large.png")
        large.write_bytes(base64.b64decode(shot))
        # A page has few colours; a palette makes it a third as large.
        small = "split[a][b];[a]palettegen=max_colors=96[p];[b][p]paletteuse=dither=none"
        subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-i", large, "-vf", small,
                        "-compression_level", "9", target], check=True)
    size = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {size} bytes")
    if size > LARGEST:
        sys.exit(f"{target}: more than {LARGEST} bytes")


def main():
    parser = argparse.ArgumentParser(description="Takes the pictures of reports.")
    parser.add_argument("--again", action="store_true", help="make no run: draw those that are there")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "target" / "pictures",
                        metavar="FOLDER", help="where runs are kept")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ALL]
    if unknown:
        parser.error(f"no picture {', '.join(unknown)}: there are {', '.join(ALL)}")
    program = str(pathlib.Path(options.program).resolve())
    options.keep.mkdir(parents=True, exist_ok=True)
    for name in options.names or ALL:
        picture = ALL[name]
        path = options.keep / f"{name}.{'series' if picture.series else 'run'}"
        if not options.again:
            make(program, name, picture, path)
        draw(program, name, picture, path, options.keep)


if __name__ == "__main__":
    main()
