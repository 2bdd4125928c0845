#!/usr/bin/env python3
"""Draws the terminal output of a command as an SVG: the pictures of this project show real runs.

Usage: docs/picture.py COMMAND... > docs/NAME.svg

The command runs in its own terminal (util-linux's `script`), 100 columns wide; overwritten output,
such as progress, is left out.

The picture in the README:
    cargo build --release
    docs/picture.py target/release/streamgauge demo > docs/demo.svg
"""

import html
import re
import shlex
import subprocess
import sys

COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff",
           "36": "#76e3ea", "90": "#8b949e"}
WIDTH, HEIGHT, MARGIN = 8.4, 19, 16


def spans(line):
    """Returns the spans of a line with their styles."""
    style = {}
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if match := re.fullmatch(r"\x1b\[([0-9;]*)m", piece):
            for code in match[1].split(";"):
                if code in ("", "0"):
                    style = {}
                elif code == "1":
                    style["font-weight"] = "bold"
                elif code == "2":
                    style["fill"] = COLOURS["90"]
                elif code == "39":
                    style.pop("fill", None)
                elif code in COLOURS:
                    style["fill"] = COLOURS[code]
        elif piece:
            yield piece, dict(style)


def screen(text):
    """Returns the final lines of the screen, after carriage returns and cursor movements."""
    lines, row = [""], 0
    text = text.replace("\r\n", "\n")
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\n|\r|[^\x1b\n\r]+|.", text):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r" or re.fullmatch(r"\x1b\[[0-2]?K", token):
            lines[row] = ""
        elif match := re.fullmatch(r"\x1b\[(\d*)A", token):
            row = max(0, row - int(match[1] or 1))
        elif match := re.fullmatch(r"\x1b\[(\d*)B", token):
            row += int(match[1] or 1)
            lines += [""] * (row + 1 - len(lines))
        elif re.fullmatch(r"\x1b\[[0-9;]*m", token) or not token.startswith("\x1b"):
            lines[row] += token
    while lines and not re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).strip():
        lines.pop()
    while lines and not re.sub(r"\x1b\[[0-9;]*m", "", lines[0]).strip():
        lines.pop(0)
    return lines


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    command = shlex.join(sys.argv[1:])
    ran = subprocess.run(
        ["script", "--quiet", "--return", "--command",
         f"stty columns 100 rows 50; {command}", "/dev/null"],
        stdin=subprocess.DEVNULL, capture_output=True, check=False)
    name = sys.argv[1].rsplit("/", 1)[-1]
    title = shlex.join([name, *sys.argv[2:]])
    lines = [f"\x1b[1m$ {title}\x1b[0m", *screen(ran.stdout.decode("utf-8", "replace"))]
    columns = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
    width, height = columns * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
          f'viewBox="0 0 {width:.0f} {height}" role="img" aria-label="{html.escape(title)}">')
    print(f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
          f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" '
          f'font-size="14" fill="#e6edf3" xml:space="preserve">')
    for index, line in enumerate(lines):
        y, column = MARGIN + (index + 0.75) * HEIGHT, 0
        for piece, style in spans(line):
            attributes = "".join(f' {key}="{value}"' for key, value in style.items())
            x = MARGIN + column * WIDTH
            print(f'<text x="{x:.1f}" y="{y:.1f}" textLength="{len(piece) * WIDTH:.1f}"'
                  f'{attributes}>{html.escape(piece)}</text>')
            column += len(piece)
    print("</g></svg>")


if __name__ == "__main__":
    main()
