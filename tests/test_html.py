#!/usr/bin/env python3
"""Tests the HTML report in a real Chromium.

Usage: tests/test_html.py STREAMGAUGE [--pictures FOLDER]

Makes runs with the given program, writes their pages, and checks them in the browser: there are no
complaints, charts are drawn, cursor and zoom are shared, dark mode, paper and narrow screens work,
and texts of servers stay texts. With --pictures the pages are also kept as PNG files.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from chromium import Chromium, program

PROGRAM = None
PICTURES = None

# A day, in windows of a second.
DAY = 86_400
# Maximum size of the page of a day in bytes, and maximum time to open it in seconds.
DAY_BYTES = 5_000_000
DAY_SECONDS = 1.0
# Number of runs, and their length in seconds, that must fit into a page of the same size and opening time.
RUNS = 60
RUN_SECONDS = 600
# A unique second: its processor time must be in the page of the day.
SPIKE_AT = 43_210
SPIKE = 7.5

HOSTILE = (
    "x</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
    "<a href='javascript:window.pwned=1'>y</a>\u202e"
)


# Health bounds that a busy machine does not exceed. `worker_cpu` is reserved for the invalid run.
RELAXED = {
    f"STREAMGAUGE_TESTER__HEALTH__{bound}": value
    for bound, value in {
        "CPU_WAIT": "100%",
        "LAG_P99": "60s",
        "LATE_CLIENTS": "100%",
        "LONGEST_STALL": "60s",
        "SEND_LATENESS_P99": "60s",
        "STEAL": "100%",
    }.items()
}


def streamgauge(folder, *arguments, code=0):
    done = subprocess.run(
        [PROGRAM, *arguments],
        cwd=folder,
        env={**os.environ, **RELAXED},
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode != code:
        raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")


def free_port():
    """A TCP port that nobody uses. It lies below those that the kernel chooses for sockets, so that
    no other process takes it meanwhile."""
    for port in random.sample(range(10_000, 16_000), 100):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            pass
    raise AssertionError("no free port")


def invalid(folder):
    """Makes a run with a health bound that no tester can keep."""
    port = free_port()
    server = [PROGRAM, "serve", "rtsp", "--quiet", "--port", str(port)]
    scenario = {
        "name": "late tester",
        "duration": "8s",
        "warm_up": "2s",
        "server": {"command": server, "ready": {"port": port}},
        "clients": {
            "viewers": {"urls": [f"rtsp://127.0.0.1:{port}/a"], "load": {"clients": 20}},
            "phones": {
                "urls": [f"rtsp://127.0.0.1:{port}/b"],
                "transport": "tcp",
                "load": {"clients": 10, "ramp": "5s"},
            },
        },
        "thresholds": ["viewers.loss < 1%"],
        "tester": {"health": {"worker_cpu": "0.1%"}},
    }
    (folder / "invalid.yaml").write_text(json.dumps(scenario))
    arguments = ["run", "invalid.yaml", "-o", "invalid.run", "--html", "invalid.html"]
    streamgauge(folder, *arguments, code=110)


def longer(short, path, seconds):
    """Makes a run of that many seconds from the seconds of a short one."""
    shutil.copy(short, path)
    database = sqlite3.connect(path)
    last = database.execute("SELECT max(idx) FROM window").fetchone()[0]
    figures, histograms = {}, {}
    for window, *rest in database.execute("SELECT * FROM figures"):
        figures.setdefault(window, []).append(rest)
    for window, *rest in database.execute("SELECT * FROM histogram"):
        histograms.setdefault(window, []).append(rest)
    server = database.execute("SELECT id, catalogue FROM subject WHERE name = 'server'").fetchone()
    cpu = json.loads(server[1])["gauges"].index("cpu")
    for name in ("window", "figures", "histogram", "failure"):
        database.execute(f"DELETE FROM {name}")
    chance = random.Random(1)
    for index in range(seconds):
        source = chance.randrange(2, last)
        database.execute("INSERT INTO window VALUES (?, ?, 1.0)", (index, index * 10**9))
        for subject, counters, gauges in figures[source]:
            if subject == server[0] and index == SPIKE_AT:
                levels = json.loads(gauges)
                levels[cpu] = SPIKE
                gauges = json.dumps(levels)
            row = (index, subject, counters, gauges)
            database.execute("INSERT INTO figures VALUES (?, ?, ?, ?)", row)
        # Not for every second: reading all of them takes a debug build minutes.
        if index % 10 == 0:
            rows = [(index, *rest) for rest in histograms[source]]
            database.executemany("INSERT INTO histogram VALUES (?, ?, ?, ?)", rows)
    database.execute("UPDATE meta SET value = ? WHERE key = 'stopped_at'", (str(float(seconds)),))
    database.commit()
    database.close()


def day(folder):
    """Makes the run of a day."""
    longer(folder / "fail.run", folder / "day.run", DAY)
    streamgauge(folder, "report", "day.run", "--html", "day.html", "-q")


def hostile(folder):
    """Makes a run file whose texts look like markup and script."""
    shutil.copy(folder / "fail.run", folder / "hostile.run")
    database = sqlite3.connect(folder / "hostile.run")
    scenario = database.execute("SELECT value FROM meta WHERE key = 'scenario'").fetchone()[0]
    scenario = {**json.loads(scenario), "name": HOSTILE, HOSTILE: HOSTILE}
    meta = "UPDATE meta SET value = ? WHERE key = ?"
    database.execute(meta, (json.dumps(scenario), "scenario"))
    for key in ("version", "receive_path", "receive_hint", "command"):
        database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(HOSTILE)))
    event = "INSERT INTO event (time, kind, subject, text) VALUES (1, ?, ?, ?)"
    database.execute(event, (HOSTILE, HOSTILE, HOSTILE))
    database.execute("INSERT INTO failure SELECT 1, min(id), ?, 1 FROM subject", (HOSTILE,))
    database.execute(
        "UPDATE client SET outcome = 'failed', reason = ?, detail = ?, url = ?", (HOSTILE,) * 3
    )
    database.commit()
    database.close()
    streamgauge(folder, "report", "hostile.run", "--html", "hostile.html", "-q")


def short_series(folder):
    """Makes six runs: three numbers of clients by two transports, of which some fail."""
    port = free_port()
    server = [PROGRAM, "serve", "rtsp", "--quiet", "--port", str(port)]
    scenario = {
        "name": HOSTILE,
        "duration": "2s",
        "server": {"command": server, "ready": {"port": port}},
        "clients": {
            "viewers": {"urls": [f"rtsp://127.0.0.1:{port}/a"], "load": {"clients": 2}}
        },
        "thresholds": ["viewers.active.max < 7"],
        "vary": {
            "clients.viewers.transport": ["udp", "tcp"],
            "clients.viewers.load.clients": [2, 4, 8],
        },
        "settle": "0s",
    }
    (folder / "series.yaml").write_text(json.dumps(scenario))
    arguments = ["run", "series.yaml", "-o", "short.series", "--html", "series.html"]
    streamgauge(folder, *arguments, code=99)


def search(folder):
    """Searches for the capacity of a server with three sessions, over two transports."""
    port = free_port()
    server = [PROGRAM, "serve", "rtsp", "--quiet", "--max-sessions", "3", "--port", str(port)]
    scenario = {
        "name": "three",
        "warm_up": "1s",
        "server": {"command": server, "ready": {"port": port}},
        "clients": {
            "viewers": {"urls": [f"rtsp://127.0.0.1:{port}/a"], "load": {"clients": 2}}
        },
        "thresholds": ["viewers.received > 0"],
        "vary": {"clients.viewers.transport": ["udp", "tcp"]},
        "capacity": {"quick": True, "hold": "3s"},
        "settle": "0s",
    }
    (folder / "search.yaml").write_text(json.dumps(scenario))
    arguments = ["run", "search.yaml", "-o", "search.series", "--html", "search.html"]
    streamgauge(folder, *arguments)


def long_series(folder):
    """Makes a series of 60 runs of ten minutes from the seconds of a short one."""
    runs = folder / "long.series"
    runs.mkdir()
    longer(folder / "fail.run", runs / "00.run", RUN_SECONDS)
    for number in range(RUNS):
        path = runs / f"{number:02}.run"
        if number > 0:
            shutil.copy(runs / "00.run", path)
        database = sqlite3.connect(path)
        row = database.execute("SELECT value FROM meta WHERE key = 'scenario'").fetchone()
        varied = [{"key": "clients.viewers.load.clients", "value": str(10 * number + 10)}]
        scenario = {**json.loads(row[0]), "varied": varied}
        meta = "UPDATE meta SET value = ? WHERE key = 'scenario'"
        database.execute(meta, (json.dumps(scenario),))
        database.commit()
        database.close()
    streamgauge(folder, "report", "long.series", "--html", "long.html", "-q")


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        cls.folder = pathlib.Path(cls.place.name)
        demo = ["demo", "-c", "20", "-d", "8s", "--seed", "7"]
        passes = [*demo, "-o", "pass.run", "--html", "pass.html"]
        wrong = ["--fault", "loss=5%", "--threshold", "viewers.loss < 1%"]
        wrong += ["--threshold", "viewers.startup_delay.p95 < 60s", "-o", "fail.run"]
        fails = [*demo, *wrong, "--html", "fail.html"]
        with ThreadPoolExecutor() as pool:
            runs = [
                pool.submit(streamgauge, cls.folder, *passes),
                pool.submit(streamgauge, cls.folder, *fails, code=99),
                pool.submit(invalid, cls.folder),
                pool.submit(short_series, cls.folder),
                pool.submit(search, cls.folder),
            ]
            for run in runs:
                run.result()
        hostile(cls.folder)
        # They take a while, and only two tests need them.
        cls.long_reports = ThreadPoolExecutor()
        cls.addClassCleanup(cls.long_reports.shutdown)
        cls.day = cls.long_reports.submit(day, cls.folder)
        cls.sixty_runs = cls.long_reports.submit(long_series, cls.folder)
        # One run of each: the difference, and no word.
        compared = ["compare", "pass.run", "fail.run", "--html", "compare.html", "-q"]
        streamgauge(cls.folder, *compared, code=110)
        cls.browser = Chromium().__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, name, **how):
        self.browser.open(self.folder / f"{name}.html", **how)

    def opening(self, name):
        """Processor time to open a page, in seconds: the minimum of five attempts."""
        times = []
        for _ in range(5):
            before = self.browser.cpu_time()
            self.open(name)
            times.append(self.browser.cpu_time() - before)
        return min(times)

    def run_in(self, expression):
        return self.browser.run(expression)

    def nothing_is_complained_of(self):
        self.assertEqual(self.browser.complaints(), [])

    def draw_all(self):
        """Draws all charts, including those not yet visible."""
        self.run_in("shown.charts.redraw(true)")
        self.browser.frame()

    def test_verdicts_are_said_at_the_top(self):
        for name, word, said in [
            ("pass", "PASS", "every threshold held"),
            ("fail", "FAIL", "Loss of viewers was"),
            ("invalid", "INVALID", "Not to be trusted: the busiest worker"),
        ]:
            for dark in (False, True):
                self.open(name, dark=dark)
                top = self.run_in("document.querySelector('header').innerText")
                self.assertIn(word, top)
                self.assertIn(said, top)
                self.assertTrue(self.run_in("document.title").startswith(word))
                self.draw_all()
                self.nothing_is_complained_of()
                if PICTURES:
                    mode = "dark" if dark else "light"
                    self.browser.picture(f"{PICTURES}/{name}-{mode}.png")

    def test_head_has_target_time_and_key_figures(self):
        self.open("fail")
        facts = self.run_in("[...document.querySelectorAll('.facts span')].map(one => one.innerText)")
        self.assertEqual(len(facts), 3)
        self.assertRegex(facts[0], "^rtsp://127.0.0.1:[0-9]+")
        self.assertRegex(facts[1], "^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC$")
        labels = self.run_in("[...document.querySelectorAll('.key-figures dt')].map(one => one.innerText)")
        self.assertEqual(labels, ["served_well", "loss", "startup_delay"])
        self.assertTrue(self.run_in(
            "[...document.querySelectorAll('.key-figures dd')].every(one => /[0-9]/.test(one.innerText))"
        ))

    def test_important_figures_are_cards_and_others_rows(self):
        self.open("pass")
        cards = "document.querySelector('.group .cards')"
        self.assertEqual(self.run_in(f"{cards}.querySelectorAll('.card').length"), 4)
        self.assertEqual(self.run_in(f"{cards}.querySelectorAll('.large').length"), 1)
        self.assertIn("served_well", self.run_in(f"{cards}.querySelector('.large').innerText"))
        self.assertGreater(self.run_in("document.querySelectorAll('.rows dt').length"), 0)

    def test_implied_thresholds_that_held_are_folded(self):
        self.open("pass")
        self.assertEqual(self.run_in("document.querySelectorAll('.threshold').length"), 0)
        self.run_in(
            "[...document.querySelectorAll('summary')]"
            ".find(one => / implied thresholds held$/.test(one.textContent)).click()"
        )
        self.browser.frame()
        self.assertGreater(self.run_in("document.querySelectorAll('.threshold.held').length"), 2)

    def test_charts_have_lines(self):
        for name in ("pass", "fail", "invalid"):
            self.open(name)
            self.draw_all()
            # For each chart: number of coloured (not grey) pixels.
            coloured = self.run_in(
                """[...document.querySelectorAll('.plot canvas')].map(canvas => {
                    const { data } = canvas.getContext('2d')
                        .getImageData(0, 0, canvas.width, canvas.height);
                    let number = 0;
                    for (let at = 0; at < data.length; at += 4) {
                        const [red, green, blue, alpha] = data.slice(at, at + 4);
                        const spread = Math.max(red, green, blue) - Math.min(red, green, blue);
                        if (alpha > 128 && spread > 60) number += 1;
                    }
                    return number;
                })"""
            )
            self.assertGreaterEqual(len(coloured), 7, name)
            # An empty chart has none; a line that is short because a run was late has some.
            self.assertGreater(min(coloured), 5, f"{name}: {coloured}")

    def test_heat_maps_are_drawn(self):
        self.open("pass")
        self.draw_all()
        pixels = """(() => { const canvas = shown.charts.views.find(view => view.chart.heat)
            .place.querySelector('canvas');
            return canvas.toDataURL(); })()"""
        before = self.run_in(pixels)
        self.run_in(
            "[...document.querySelectorAll('.chart-head .small')]"
            ".find(one => one.textContent === 'Heat map').click()"
        )
        self.browser.frame()
        self.assertNotEqual(self.run_in(pixels), before)
        self.nothing_is_complained_of()

    def middle(self, number):
        """Position of a chart on the screen: left, top, width, height."""
        self.run_in(f"shown.charts.views[{number}].place.scrollIntoView({{block: 'center'}})")
        self.browser.frame()
        return self.run_in(
            f"""(() => {{ const box = shown.charts.views[{number}].plot.over.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height]; }})()"""
        )

    def test_cursor_and_zoom_are_shared(self):
        self.open("fail")
        self.draw_all()
        left, top, width, height = self.middle(0)
        y = top + height / 2
        self.browser.mouse("mouseMoved", left + width / 2, y)
        self.browser.frame()
        cursors = self.run_in("shown.charts.views.map(view => view.plot.cursor.idx)")
        self.assertEqual(len(set(cursors)), 1, cursors)
        self.assertIsNotNone(cursors[0])
        self.assertTrue(self.run_in("document.querySelector('.readout').textContent"))
        self.browser.mouse("mousePressed", left + width / 4, y, buttons=1, clicks=1)
        for part in (0.4, 0.5, 0.6, 0.75):
            self.browser.mouse("mouseMoved", left + part * width, y, buttons=1)
        self.browser.mouse("mouseReleased", left + 0.75 * width, y, clicks=1)
        self.browser.frame()
        ranges = """shown.charts.views.map(view =>
            [view.plot.scales.x.min, view.plot.scales.x.max].map(at => at.toFixed(2)).join())"""
        zoomed = self.run_in(ranges)
        self.assertEqual(len(set(zoomed)), 1, zoomed)
        begins, ends = (float(at) for at in zoomed[0].split(","))
        self.assertGreater(begins, 1.5)
        self.assertLess(ends, 6.5)
        self.assertEqual(
            self.run_in("getComputedStyle(document.querySelector('.reset')).visibility"), "visible"
        )
        for clicks in (1, 2):
            self.browser.mouse("mousePressed", left + width / 2, y, buttons=1, clicks=clicks)
            self.browser.mouse("mouseReleased", left + width / 2, y, clicks=clicks)
        self.browser.frame()
        whole = self.run_in(ranges)
        self.assertEqual(len(set(whole)), 1, whole)
        self.assertTrue(whole[0].startswith("0.00,8"), whole)
        self.nothing_is_complained_of()

    def test_charts_obey_the_keyboard(self):
        self.open("pass")
        self.middle(0)
        self.run_in("shown.charts.views[0].place.focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
            self.browser.press(key)
        self.assertEqual(self.run_in("shown.charts.views[0].index"), 3)
        self.browser.press("+")
        self.assertLess(self.run_in("shown.charts.range[1] - shown.charts.range[0]"), 5)
        self.browser.press("Escape")
        self.assertTrue(self.run_in("shown.charts.isWhole()"))
        self.nothing_is_complained_of()

    def test_definitions_show_on_focus_and_on_hover(self):
        self.open("pass")
        self.run_in("document.querySelector('.card .term').focus()")
        self.assertFalse(self.run_in("tip.hidden"))
        self.assertIn("served_well", self.run_in("tip.innerText"))
        self.browser.press("Escape")
        self.assertTrue(self.run_in("tip.hidden"))
        self.run_in("document.activeElement.blur()")
        box = self.run_in(
            """(() => { const box = document.querySelectorAll('.card .term')[1]
            .getBoundingClientRect(); return [box.left + 4, box.top + 4]; })()"""
        )
        self.browser.mouse("mouseMoved", *box)
        self.assertFalse(self.run_in("tip.hidden"))
        self.assertIn("loss", self.run_in("tip.innerText"))

    def test_tables_stand_behind_charts(self):
        self.open("fail")
        self.run_in("document.querySelector('.chart details').open = true")
        self.browser.frame()
        rows = self.run_in("document.querySelectorAll('.chart details tbody tr').length")
        self.assertEqual(rows, 8)
        label = self.run_in("document.querySelector('.plot').getAttribute('aria-label')")
        self.assertIn("active from", label)

    def test_clients_are_shown_one_by_one(self):
        self.open("fail")
        self.run_in("document.querySelectorAll('details').forEach(one => one.open = true)")
        self.browser.frame()
        heights = self.run_in(
            "[...document.querySelectorAll('.column span')].map(one => one.clientHeight)"
        )
        self.assertGreater(max(heights), 40)
        traces = self.run_in(
            "[...document.querySelectorAll('.trace')].map(one => one.textContent)"
        )
        self.assertEqual(len(traces), 20)
        self.assertRegex(traces[0], r"^streamgauge demo -c 20 .* --trace 'viewers/\d+'$")
        self.nothing_is_complained_of()

    def test_dark_mode_is_dark(self):
        self.open("pass", dark=True)
        dark = "getComputedStyle(document.body).backgroundColor"
        self.assertEqual(self.run_in(dark), "rgb(21, 23, 26)")
        pixels = "shown.charts.views[0].place.querySelector('canvas').toDataURL()"
        self.draw_all()
        before = self.run_in(pixels)
        self.browser.scheme(False)
        self.browser.frame()
        self.assertEqual(self.run_in(dark), "rgb(255, 255, 255)")
        self.assertNotEqual(self.run_in(pixels), before)
        self.nothing_is_complained_of()

    def test_paper_is_light_and_has_every_chart(self):
        self.open("fail", dark=True)
        paper = self.browser.pdf()
        self.assertTrue(paper.startswith(b"%PDF"))
        self.assertGreater(len(paper), 30_000)
        drawn = self.run_in("shown.charts.views.every(view => view.plot !== null)")
        self.assertTrue(drawn)
        self.assertFalse(self.run_in("document.documentElement.classList.contains('printed')"))
        self.nothing_is_complained_of()
        if PICTURES:
            pathlib.Path(PICTURES, "fail.pdf").write_bytes(paper)

    def test_a_narrow_screen_has_all(self):
        for name in ("pass", "fail", "invalid"):
            self.open(name, width=400, height=800)
            self.draw_all()
            self.assertLessEqual(self.run_in("document.documentElement.scrollWidth"), 400, name)
            self.nothing_is_complained_of()
            if PICTURES:
                self.browser.picture(f"{PICTURES}/{name}-narrow.png")

    def test_texts_of_servers_stay_texts(self):
        self.open("hostile")
        self.draw_all()
        self.run_in("document.querySelectorAll('details').forEach(one => one.open = true)")
        self.browser.frame()
        self.assertIsNone(self.run_in("window.pwned"))
        self.assertEqual(self.run_in("document.querySelectorAll('img, a, iframe').length"), 0)
        name = self.run_in("document.querySelector('h1').textContent")
        self.assertEqual(name, HOSTILE.replace("\u202e", "<U+202E>"))
        self.nothing_is_complained_of()

    def test_the_policy_is_enforced(self):
        self.open("pass")
        markup = """(() => { try { document.body.innerHTML = '<b>x</b>'; return 'made'; }
            catch (error) { return error.name; } })()"""
        self.assertEqual(self.run_in(markup), "TypeError")
        loaded = """new Promise(done => { const image = new Image();
            image.onload = () => done('loaded'); image.onerror = () => done('refused');
            image.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw='; })"""
        self.assertEqual(self.run_in(loaded), "refused")

    def open_run(self, number):
        """Follows the table's link to a run of the series."""
        self.run_in(f"document.querySelector('.runs a[href=\"#run-{number}\"]').click()")
        self.browser.wait("!!document.querySelector('.runs-nav')")
        self.browser.frame()

    def test_a_series_has_a_mark_for_each_run_in_each_chart(self):
        for dark in (False, True):
            self.open("series", dark=dark)
            self.assertEqual(self.run_in("document.querySelectorAll('.runs tbody tr').length"), 6)
            chips = self.run_in("document.querySelector('.chips').innerText")
            self.assertIn("4 passed", chips)
            self.assertIn("2 failed", chips)
            said = self.run_in("document.querySelector('.sentence').innerText")
            self.assertIn("Up to 4 clients passed, whatever the transport", said)
            # Two panels in each chart, udp and tcp, with three runs each.
            marks = self.run_in(
                """[...document.querySelectorAll('.multiple')].map(chart =>
                    [...chart.querySelectorAll('svg')].map(
                        one => one.querySelectorAll('.mark').length))"""
            )
            self.assertGreaterEqual(len(marks), 4)
            self.assertTrue(all(panels == [3, 3] for panels in marks), marks)
            # In one chart every mark is within its panel, and higher for larger values.
            heights = self.run_in(
                """[...document.querySelectorAll('.multiple svg')][0] &&
                [...document.querySelectorAll('.multiple svg')[0].querySelectorAll('.mark')]
                .map(mark => mark.getBoundingClientRect().top)"""
            )
            self.assertGreater(heights[0], heights[1])
            self.assertGreater(heights[1], heights[2])
            self.nothing_is_complained_of()
            if PICTURES:
                self.browser.picture(f"{PICTURES}/series-{'dark' if dark else 'light'}.png")

    def test_every_run_of_a_series_is_one_click_away(self):
        self.open("series")
        for number, word in ((1, "PASS"), (6, "FAIL")):
            self.open_run(number)
            self.assertIn(word, self.run_in("document.querySelector('header').innerText"))
            where = self.run_in("document.querySelector('.where').innerText")
            self.assertTrue(where.startswith(f"run {number} of 6"), where)
            self.draw_all()
            self.assertGreaterEqual(self.run_in("shown.charts.views.length"), 7)
            self.run_in("document.querySelector('.runs-nav a').click()")
            self.browser.wait("!!document.querySelector('.multiples')")
        # A mark of a chart leads there too, and the browser's back button works.
        self.run_in("document.querySelectorAll('.multiple a.run')[2].dispatchEvent("
                    "new MouseEvent('click', {bubbles: true, cancelable: true}))")
        self.browser.wait("!!document.querySelector('.runs-nav')")
        self.run_in("history.back()")
        self.browser.wait("!!document.querySelector('.multiples')")
        self.nothing_is_complained_of()

    def test_marks_say_what_they_are_of_on_focus(self):
        self.open("series")
        self.run_in("document.querySelector('.multiple a.run').focus()")
        self.assertFalse(self.run_in("tip.hidden"))
        self.assertIn("clients 2", self.run_in("tip.innerText"))
        self.assertIn("PASS", self.run_in("tip.innerText"))

    def test_a_series_of_hostile_texts_is_text(self):
        self.open("series")
        name = HOSTILE.replace("\u202e", "<U+202E>")
        self.assertEqual(self.run_in("document.querySelector('h1').textContent"), name)
        self.open_run(1)
        self.assertEqual(self.run_in("document.querySelector('h1').textContent"), name)
        self.assertIsNone(self.run_in("window.pwned"))
        self.assertEqual(self.run_in("document.querySelectorAll('img, iframe').length"), 0)
        strange = "a:not([href^='#run-']):not([href='#series'])"
        self.assertEqual(self.run_in(f'document.querySelectorAll("{strange}").length'), 0)

    def test_a_series_fits_narrow_screens_and_paper(self):
        self.open("series", width=400, height=800)
        self.assertLessEqual(self.run_in("document.documentElement.scrollWidth"), 400)
        if PICTURES:
            self.browser.picture(f"{PICTURES}/series-narrow.png")
        self.open("series", dark=True)
        paper = self.browser.pdf()
        self.assertTrue(paper.startswith(b"%PDF"))
        if PICTURES:
            pathlib.Path(PICTURES, "series.pdf").write_bytes(paper)
        self.nothing_is_complained_of()

    def test_a_search_shows_each_trial_and_each_capacity(self):
        self.open("search")
        index = self.folder / "search.series" / "series.json"
        runs = json.loads(index.read_text())["runs"]
        marks = self.run_in(
            """[...document.querySelectorAll('.search a.trial')]
                .map(mark => [mark.getAttribute('href'), mark.getAttribute('class')])"""
        )
        self.assertEqual([mark[0] for mark in marks], [f"#run-{at + 1}" for at in range(len(runs))])
        failed = sum(run["outcome"] == "fail" for run in runs)
        self.assertEqual(sum("failed" in mark[1] for mark in marks), failed)
        self.assertGreaterEqual(failed, 2)
        bars = self.run_in("document.querySelectorAll('.capacity-bar').length")
        self.assertEqual(bars, 2)
        answers = self.run_in("document.querySelector('.sentence').textContent")
        self.assertEqual(answers.replace("\xa0", " ").count("3 clients"), 2, answers)
        self.nothing_is_complained_of()

    def test_a_comparison_shows_the_effects_and_curves_of_both(self):
        self.open("compare")
        self.assertEqual(self.run_in("document.querySelector('.badge').textContent"), "Cannot tell")
        rows = self.run_in(
            "[...document.querySelectorAll('.effect')].map(row => row.querySelector('title').textContent)"
        )
        loss = [row for row in rows if row.startswith("loss: cannot tell, 0 % → ")]
        self.assertEqual(len(loss), 1, rows)
        curves = self.run_in("document.querySelectorAll('.curves svg').length")
        both = [f"document.querySelectorAll('.curve-{side}').length" for side in "ab"]
        self.assertGreaterEqual(curves, 3)
        self.assertEqual([self.run_in(side) for side in both], [curves, curves])
        self.open_run(2)
        self.nothing_is_complained_of()

    def test_the_page_of_sixty_runs_is_small_and_opens_at_once(self):
        self.sixty_runs.result()
        size = (self.folder / "long.html").stat().st_size
        self.assertLess(size, DAY_BYTES)
        took = self.opening("long")
        self.assertLess(took, DAY_SECONDS)
        print(f"a page of {RUNS} runs: {size} bytes, opened in {took:.2f} s", file=sys.stderr)
        self.open_run(RUNS)
        self.draw_all()
        self.assertGreaterEqual(self.run_in("shown.charts.views.length"), 7)
        self.nothing_is_complained_of()

    def test_a_run_under_way_is_shown_live(self):
        port = free_port()
        demo = [PROGRAM, "demo", "-c", "5", "-d", "20m", "-q", "--no-run-file"]
        demo += [f"--dashboard={port}", "--dashboard-linger"]
        environment = {**os.environ, **RELAXED}
        run = subprocess.Popen(
            demo, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL
        )
        try:
            until = time.monotonic() + 20
            while time.monotonic() < until:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            self.browser.size(1280, 900)
            self.browser.scheme(False)
            self.browser.events.clear()
            # As long as there are as many viewers as are allowed, the page is refused its data.
            viewers = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
            for viewer in viewers:
                viewer.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                self.assertIn(b"200", viewer.recv(100))
            self.browser.call("Page.navigate", {"url": f"http://127.0.0.1:{port}/"})
            refused = "document.querySelector('.notice')?.textContent.includes('cannot be reached')"
            self.browser.wait(refused)
            for viewer in viewers:
                viewer.close()
            self.browser.wait("!!document.querySelector('header.running')")
            # The browser complained of the refusal.
            self.browser.events.clear()
            self.browser.wait("shown.run.course.times.length >= 3")
            # A chart that is drawn again has no plot for a moment.
            drawn = "(shown.charts.views[0].plot?.data[0].length ?? 0)"
            self.browser.wait(f"{drawn} > 0")
            before = self.run_in(drawn)
            self.browser.wait(f"{drawn} > {before}")
            # The user's view does not change: opened parts, and the zoom.
            self.run_in("document.querySelector('section:last-of-type details').open = true")
            self.run_in("shown.charts.zoom(1, 2)")
            before = self.run_in("shown.run.course.times.length")
            self.browser.wait(f"shown.run.course.times.length > {before}")
            self.assertTrue(
                self.run_in("document.querySelector('section:last-of-type details').open")
            )
            self.assertEqual(self.run_in("shown.charts.range.join()"), "1,2")
            # It does not change either if the run gets other charts, or another count in a summary.
            self.run_in("shown.charts.refresh = () => false")
            self.run_in(
                "document.querySelector('section:last-of-type summary').textContent += ' 17'"
            )
            before = self.run_in("shown.run.course.times.length")
            self.browser.wait(f"shown.run.course.times.length > {before}")
            self.assertTrue(
                self.run_in("document.querySelector('section:last-of-type details').open")
            )
            self.assertEqual(self.run_in("shown.charts.range.join()"), "1,2")
            # The run ends when it is stopped, however long the checks took.
            run.send_signal(signal.SIGINT)
            self.browser.wait("!document.querySelector('header.running')")
            self.assertIn("STOPPED", self.run_in("document.querySelector('header').innerText"))
            # The page says when it goes away: here nobody can press a key.
            self.browser.wait("notice.textContent.includes('until streamgauge is stopped')")
            self.assertFalse(self.run_in("notice.hidden"))
            run.send_signal(signal.SIGINT)
            self.browser.wait("notice.textContent.includes('cannot be loaded again')")
            own = f"http://127.0.0.1:{port}/"
            complaints = self.browser.complaints()
            strange = [one for one in complaints if not str(one).startswith(own)]
            self.assertEqual(strange, [])
            self.assertEqual(run.wait(60), 105)
        finally:
            run.kill()
            run.wait()

    def test_the_page_of_a_day_is_small_and_opens_at_once(self):
        self.day.result()
        size = (self.folder / "day.html").stat().st_size
        self.assertLess(size, DAY_BYTES)
        took = self.opening("day")
        self.assertLess(took, DAY_SECONDS)
        print(f"a page of {DAY} windows: {size} bytes, opened in {took:.2f} s", file=sys.stderr)
        most = self.run_in(
            """Math.max(...data.runs[0].course.charts
            .find(chart => chart.title === 'Server: processor').lines[0].values)"""
        )
        self.assertEqual(most, SPIKE)
        self.assertLessEqual(self.run_in("data.runs[0].course.times.length"), 4_000)
        self.draw_all()
        self.nothing_is_complained_of()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if arguments else 2)
    if program() is None:
        print("no Chromium is installed: apt-get install chromium", file=sys.stderr)
        sys.exit(1)
    PROGRAM = os.path.abspath(arguments.pop(0))
    if arguments[:1] == ["--pictures"]:
        PICTURES = arguments[1]
        os.makedirs(PICTURES, exist_ok=True)
        del arguments[:2]
    unittest.main(argv=[sys.argv[0], *arguments])
