"""A headless Chromium, driven through its DevTools protocol over two pipes.

Needs nothing but Python and the program: no driver, and no WebSocket.
"""

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

# Time-out of every operation, in seconds.
DEADLINE = 60


def program():
    """The path of Chromium, or None if it is not installed."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Chromium:
    """One browser with one page."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        # Moved away from the descriptor numbers that the browser expects, so that neither replaces the other.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64) for end in (theirs_read, theirs_write)]

        def ends():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        arguments = [
            program(),
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.profile.name}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        self.process = subprocess.Popen(
            arguments + ["about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=ends,
        )
        for end in (theirs_read, theirs_write, *high):
            os.close(end)
        self.reading, self.writing = ours_read, ours_write
        self.rest = b""
        self.number = 0
        self.events = []
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attach = {"targetId": page["targetId"], "flatten": True}
        self.session = self.call("Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.reading)
        os.close(self.writing)
        self.profile.cleanup()

    def cpu_time(self):
        """Processor time of the browser and all of its processes so far, in seconds."""
        parents, times = {}, {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                # The name may contain blanks and brackets.
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            process = int(stat.parent.name)
            parents[process] = int(fields[1])
            # The time of the process, and of its ended children (proc(5): utime to cstime).
            times[process] = sum(map(int, fields[11:15]))

        def is_ours(process):
            while process > 1:
                if process == self.process.pid:
                    return True
                process = parents.get(process, 0)
            return False

        ticks = sum(time for process, time in times.items() if is_ours(process))
        return ticks / os.sysconf("SC_CLK_TCK")

    def message(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            ready, _, _ = select.select([self.reading], [], [], max(left, 0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.reading, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, parameters=None):
        """Calls a method and returns its result; events in the meantime are kept in `events`."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters or {}}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.writing, data):]
        until = time.monotonic() + DEADLINE
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def run(self, expression):
        """Evaluates an expression in the page; awaits a promise."""
        found = self.call(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True},
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, expression):
        """Waits until an expression is true."""
        until = time.monotonic() + DEADLINE
        while not self.run(expression):
            if time.monotonic() > until:
                raise TimeoutError(expression)
            self.frame()

    def frame(self):
        """Waits until the page has drawn a frame."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def open(self, path, width=1280, height=900, dark=False):
        """Opens a file, and waits until its visible charts are drawn."""
        self.size(width, height)
        self.scheme(dark)
        self.events.clear()
        self.call("Page.navigate", {"url": f"file://{os.path.abspath(path)}"})
        self.wait("document.readyState === 'complete' && !!document.querySelector('footer')")
        self.frame()

    def size(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def scheme(self, dark):
        value = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.call("Emulation.setEmulatedMedia", {"media": "", "features": features})

    def mouse(self, kind, x, y, buttons=0, clicks=0):
        self.call(
            "Input.dispatchMouseEvent",
            {
                "type": kind,
                "x": x,
                "y": y,
                "button": "left" if buttons or kind == "mouseReleased" else "none",
                "buttons": buttons,
                "clickCount": clicks,
            },
        )

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            code = {"key": key, "code": key, "type": kind}
            self.call("Input.dispatchKeyEvent", code)

    def picture(self, path):
        """Returns the whole page as a PNG."""
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        width = self.run("innerWidth")
        self.size(width, int(box["height"]))
        self.frame()
        self.frame()
        shot = self.call("Page.captureScreenshot", {"format": "png"})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def pdf(self):
        """Returns the page as printed to a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", {"printBackground": True})["data"])

    def complaints(self):
        """Returns console messages, refusals by the policy, and network requests."""
        found = []
        for event in self.events:
            method, about = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(about["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled":
                found.append(about["args"])
            elif method == "Log.entryAdded":
                found.append(about["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = about["request"]["url"]
                if not url.startswith("file://") or about.get("type") != "Document":
                    found.append(url)
        return found
