#!/usr/bin/env python3
"""Tests the GitHub action, packaging/ci/run, and the examples of docs/ci.md.

Usage: STREAMGAUGE=target/debug/streamgauge tests/test_ci.py

The program plays from its own reference server. A release is served from 127.0.0.1; in its archive a
script calls the program. Without STREAMGAUGE or PyYAML (Debian: python3-yaml), all is skipped.
"""

import functools
import hashlib
import http.server
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import xml.etree.ElementTree

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("STREAMGAUGE")
RUN = ROOT / "packaging" / "ci" / "run"
DOCUMENT = ROOT / "docs" / "ci.md"
VERSION = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
LIMIT_SECONDS = 120
# A busy machine is late, which is not what these tests check.
SCENARIO = """
name: evening
clients:
  viewers:
    urls: ["{url}"]
    load: {{ clients: 2, start: at_once }}
duration: 3s
warm_up: 1s
thresholds: ["viewers.received > {received}"]
tester: {{ health: {{ lag_p99: 10s, cpu_wait: 100% }} }}
"""


def action():
    return yaml.safe_load((ROOT / "action.yml").read_text())


def blocks(language):
    """Blocks of the document in a language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def shell(lines):
    """A script as GitLab and Jenkins run it: it ends at the first command that fails."""
    return ["bash", "-e", "-c", "\n".join(lines)]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@unittest.skipUnless(PROGRAM, "STREAMGAUGE names no program")
@unittest.skipUnless(yaml, "no PyYAML: apt-get install python3-yaml")
class Pipeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = str(pathlib.Path(PROGRAM).resolve())
        server = [cls.program, "serve", "rtsp", "--port", "0", "-q"]
        cls.server = subprocess.Popen(server, stdout=subprocess.PIPE, text=True)
        cls.url = cls.server.stdout.readline().split()[-1]
        cls.releases = tempfile.TemporaryDirectory()
        cls.release(pathlib.Path(cls.releases.name, f"v{VERSION}"))
        handler = functools.partial(Quiet, directory=cls.releases.name)
        cls.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=cls.http.serve_forever, daemon=True).start()
        cls.releases_url = f"http://127.0.0.1:{cls.http.server_port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGINT)
        cls.server.wait(LIMIT_SECONDS)
        cls.server.stdout.close()
        cls.http.shutdown()
        cls.http.server_close()
        cls.releases.cleanup()

    @classmethod
    def release(cls, folder):
        """Makes the files of a release, as packaging/release does."""
        name = f"streamgauge-{VERSION}-{platform.machine()}-unknown-linux-musl"
        content = folder / name
        (content / "ci").mkdir(parents=True)
        script = content / "streamgauge"
        script.write_text(f'#!/bin/sh\nexec "{cls.program}" "$@"\n')
        script.chmod(0o755)
        (content / "ci" / "run").write_text(RUN.read_text())
        (content / "ci" / "run").chmod(0o755)
        archive = folder / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(content, name)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        sums = f"{digest}  {archive.name}\n{'0' * 64}  {name}-debug.tar.gz\n"
        (folder / "SHA256SUMS").write_text(sums)

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.reports = self.folder / "streamgauge-reports"
        self.summary = self.folder / "summary"
        self.output = self.folder / "output"
        self.scenario()

    def scenario(self, received=0):
        text = SCENARIO.format(url=self.url, received=received)
        (self.folder / "load.yaml").write_text(text)

    def execute(self, words, code, **environment):
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def act(self, code, **inputs):
        """Runs the action as GitHub does."""
        action_inputs = action()["inputs"]
        self.assertLessEqual(set(inputs), set(action_inputs))
        contexts = {
            **{f"inputs.{name}": value["default"] for name, value in action_inputs.items()},
            **{f"inputs.{name}": value for name, value in inputs.items()},
            "github.server_url": "https://git.invalid",
            "github.action_repository": "owner/streamgauge",
        }
        (step,) = action()["runs"]["steps"]
        self.assertEqual(step["shell"], "bash")
        self.assertNotIn("${{", step["run"])
        environment = {
            name: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: contexts[found[1]], value)
            for name, value in step["env"].items()
        }
        for path in (self.summary, self.output):
            path.write_text("")
        return self.execute(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            code,
            **environment,
            GITHUB_ACTIONS="true",
            GITHUB_ACTION_PATH=str(ROOT),
            GITHUB_STEP_SUMMARY=str(self.summary),
            GITHUB_OUTPUT=str(self.output),
            RUNNER_TEMP=str(self.folder),
        )

    def outputs(self):
        lines = self.output.read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)
        self.assertEqual(set(found), set(action()["outputs"]))
        return found

    def suite(self):
        return xml.etree.ElementTree.parse(self.reports / "junit.xml").getroot()

    def test_action_downloads_a_release_and_reports_a_run_that_passed(self):
        self.act(0, scenario="load.yaml", releases=self.releases_url)
        self.assertEqual(self.outputs(), {"exit-code": "0", "result": "pass", "reports": "streamgauge-reports"})
        summary = self.summary.read_text()
        self.assertIn("### PASS: evening", summary)
        self.assertEqual(summary, (self.reports / "report.md").read_text())
        self.assertEqual(self.suite().get("failures"), "0")
        kept = ["junit.xml", "report.html", "report.json", "report.md", "result"]
        self.assertEqual(sorted(path.name for path in self.reports.iterdir()), kept)

    def test_action_fails_with_a_threshold_and_replaces_the_reports(self):
        self.reports.mkdir()
        for name in ("result", "report.md"):
            (self.reports / name).write_text("of an earlier run")
        self.scenario(received=1_000_000)
        shown = self.act(99, scenario="load.yaml", binary=self.program)
        self.assertEqual(self.outputs()["result"], "fail")
        self.assertIn("### FAIL: evening", self.summary.read_text())
        self.assertIn("::error title=streamgauge::a threshold failed", shown)
        self.assertNotEqual(self.suite().get("failures"), "0")

    def test_arguments_are_words_and_are_not_executed(self):
        shown = self.act(104, arguments="run load.yaml `touch injected`$(touch injected)", binary=self.program)
        self.assertIn("unexpected argument '`touch'", shown)
        self.assertFalse((self.folder / "injected").exists())
        self.assertEqual(self.outputs()["result"], "error")
        self.assertIn("The log of this step has the reason", self.summary.read_text())
        arguments = "run load.yaml --set 'name=late evening' --set \"duration=4s\""
        self.act(0, arguments=arguments, binary=self.program)
        self.assertIn("### PASS: late evening", self.summary.read_text())

    def test_wrong_calls_are_refused_with_104(self):
        folder = pathlib.Path(self.program).parent
        for words, why in (
            ([], "neither --scenario nor --arguments"),
            (["--scenario"], "needs a value"),
            (["--verbose", "1"], "unknown argument"),
            (["--arguments", "demo 'x", "--program", self.program], "quotes"),
            (["--scenario", "load.yaml", "--program", "nowhere/streamgauge"], "no program"),
            (["--scenario", "load.yaml", "--version", "../x"], "not a version"),
            (["--scenario", "load.yaml", "--version", "9.9.9", "--releases", self.releases_url], "cannot download"),
        ):
            shown = self.execute([RUN, *words], 104, PATH=f"{folder}:{os.environ['PATH']}")
            self.assertIn(why, shown, words)

    def test_changed_archive_is_not_run(self):
        folder = self.folder / f"v{VERSION}"
        self.release(folder)
        archive = next(folder.glob("*.tar.gz"))
        archive.write_bytes(archive.read_bytes() + b"x")
        words = ["--scenario", "load.yaml", "--version", VERSION, "--releases", f"file://{self.folder}"]
        self.assertIn("is not the file that SHA256SUMS names", self.execute([RUN, *words], 104))

    def test_run_is_compared_with_a_baseline_as_soon_as_there_is_one(self):
        inputs = {"scenario": "load.yaml", "binary": self.program, "baseline": "baseline"}
        self.act(0, **inputs)
        self.assertIn("Nothing was compared", self.summary.read_text())
        (self.reports / "result").rename(self.folder / "baseline")
        # One run of each says nothing about the difference.
        self.act(110, **inputs)
        self.assertNotIn("Nothing was compared", self.summary.read_text())
        self.assertIn("cannot tell", self.summary.read_text())

    def test_example_for_gitlab_runs(self):
        (job,) = (found["load-test"] for found in map(yaml.safe_load, blocks("yaml")) if "load-test" in found)
        # This machine has the packages.
        lines = [line for line in job["before_script"] + job["script"] if "apt-get" not in line]
        variables = {**job["variables"], "RELEASES": self.releases_url}
        self.assertEqual(variables["VERSION"], VERSION)
        variables["NAME"] = self.archive_name(variables["NAME"])
        self.execute(shell(lines), 0, **variables)
        self.assertEqual(job["artifacts"]["reports"]["junit"], "streamgauge-reports/junit.xml")
        self.assertEqual(self.suite().get("failures"), "0")

    def test_example_for_jenkins_runs(self):
        (text,) = blocks("groovy")
        (script,) = re.findall(r"sh '''\n(.*?)'''", text, re.DOTALL)
        variables = dict(re.findall(r"^ +(\w+) = ['\"](.+)['\"]$", text, re.MULTILINE))
        self.assertEqual(variables["VERSION"], VERSION)
        variables["NAME"] = self.archive_name(variables["NAME"].replace("${VERSION}", "$VERSION"))
        variables["RELEASES"] = self.releases_url
        self.execute(shell(script.splitlines()), 0, **variables)
        self.assertEqual(self.suite().get("failures"), "0")

    def archive_name(self, name):
        name = name.replace("$VERSION", VERSION)
        self.assertEqual(name, f"streamgauge-{VERSION}-x86_64-unknown-linux-musl")
        return name.replace("x86_64", platform.machine())

    def test_examples_for_github_use_the_inputs_of_the_action(self):
        found = action()
        self.assertEqual(found["inputs"]["version"]["default"], VERSION)
        steps = []
        for block in map(yaml.safe_load, blocks("yaml")):
            if isinstance(block, list):
                steps += block
            elif "jobs" in block:
                steps += block["jobs"]["load-test"]["steps"]
        uses = [step for step in steps if step.get("uses", "").startswith("OWNER/streamgauge@")]
        self.assertEqual(len(uses), 3)
        for step in uses:
            self.assertEqual(step["uses"], f"OWNER/streamgauge@v{VERSION}")
            self.assertLessEqual(set(step["with"]), set(found["inputs"]))
        table = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE)
        self.assertEqual(sorted(table), sorted(found["inputs"]))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
