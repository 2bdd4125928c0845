#!/usr/bin/env python3
"""Tests the Kubernetes manifests without a cluster.

Usage: STREAMGAUGE=target/debug/streamgauge tests/test_kubernetes.py

Without STREAMGAUGE, tests that ask the program for its options are skipped.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "packaging" / "kubernetes"
PROGRAM = os.environ.get("STREAMGAUGE")
COMPONENT = "app.kubernetes.io/component"
# Directory of nats.conf in the container of the chart.
NATS_CONFIG = pathlib.PurePosixPath("/etc/nats-config")
# Default directory of the chart's `config.nats.tls`.
NATS_CERTS = pathlib.PurePosixPath("/etc/nats-certs/nats")
LIMIT_SECONDS = 60


class Yaml:
    """Strict reader of the part of YAML that the manifests use.

    It reads block mappings, block sequences whose dashes are indented below their key, comments,
    and scalars in one line. Anything else is an error: Python has no reader of YAML, and a manifest
    that is misread would pass.
    """

    KEY = re.compile(r"""([\w.$/-]+):(?: (.*))?$""")
    PLAIN = re.compile(r"(--)?[\w./$][^#]*$")

    def __init__(self, text):
        self.lines = []
        for number, line in enumerate(text.splitlines(), 1):
            bare = re.sub(r"(^|\s)#.*$", "", line).rstrip()
            if re.search(r"""["'].*\s#""", line):
                raise ValueError(f"line {number}: `#` after a quote")
            if "\t" in line:
                raise ValueError(f"line {number}: tabulator")
            if bare:
                self.lines.append((number, len(bare) - len(bare.lstrip()), bare.lstrip()))

    @classmethod
    def documents(cls, path):
        """Returns all documents of a file."""
        texts = re.split(r"^---$", path.read_text(), flags=re.MULTILINE)
        return [cls(text).document() for text in texts]

    def document(self):
        value = self.block(0)
        if self.lines:
            raise self.wrong("wrong indentation")
        return value

    def wrong(self, why):
        number, _, text = self.lines[0]
        return ValueError(f"line {number}: {why}: {text}")

    def block(self, indent):
        """Reads a mapping or a sequence, all of whose lines have this indentation or more."""
        if not self.lines or self.lines[0][1] != indent:
            raise self.wrong("wrong indentation") if self.lines else ValueError("no value")
        if self.lines[0][2].startswith("- "):
            return self.sequence(indent)
        return self.mapping(indent)

    def sequence(self, indent):
        items = []
        while self.lines and self.lines[0][1] == indent:
            number, _, text = self.lines[0]
            if not text.startswith("- "):
                raise self.wrong("no item of a sequence")
            text = text[2:]
            if self.KEY.match(text):
                self.lines[0] = (number, indent + 2, text)
                items.append(self.mapping(indent + 2))
            else:
                items.append(self.scalar(text))
                self.lines.pop(0)
        return items

    def mapping(self, indent):
        pairs = {}
        while self.lines and self.lines[0][1] == indent:
            found = self.KEY.match(self.lines[0][2])
            if not found or found[1] in pairs:
                raise self.wrong("no key, or a key that is there already")
            if found[2]:
                pairs[found[1]] = self.scalar(found[2])
                self.lines.pop(0)
            else:
                self.lines.pop(0)
                pairs[found[1]] = self.block(indent + 2)
        return pairs

    def scalar(self, text):
        if text == "{}":
            return {}
        if re.fullmatch(r"\"[^\"\\]*\"|'[^']*'", text):
            return text[1:-1]
        if text in ("true", "false"):
            return text == "true"
        if re.fullmatch(r"0|[1-9]\d*", text):
            return int(text)
        # Kubernetes reads this as octal.
        if re.fullmatch(r"0[0-7]{3}", text):
            return int(text, 8)
        # YAML reads these as something other than text.
        special = re.fullmatch(r"(?i)null|~|yes|no|on|off|y|n|0[xo].*|[-+.\d][\d.e_:]*", text)
        if special or not self.PLAIN.match(text) or text.endswith(":") or ": " in text:
            raise self.wrong("this reader does not know such a value")
        return text


def kustomization():
    (settings,) = Yaml.documents(FOLDER / "kustomization.yaml")
    return settings


def resources():
    """Documents that `kubectl apply -k` applies, without generated ones."""
    names = kustomization()["resources"]
    return [document for name in names for document in Yaml.documents(FOLDER / name)]


def resource(kind, name):
    wanted = (kind, name)
    (found,) = (one for one in resources() if (one["kind"], one["metadata"]["name"]) == wanted)
    return found


def pods():
    """Specifications of all pods, by name."""
    jobs = {one["metadata"]["name"]: one for one in resources() if one["kind"] == "Job"}
    found = {name: job["spec"]["template"]["spec"] for name, job in jobs.items()}
    (results,) = Yaml.documents(FOLDER / "results.yaml")
    return {**found, results["metadata"]["name"]: results["spec"]}


def programs():
    """Containers of streamgauge, by name of their pod."""
    both = {name: pod["containers"][0] for name, pod in pods().items()}
    return {name: one for name, one in both.items() if one["image"] == "streamgauge"}


def generated(generator):
    """Names of the keys of generated secrets or config maps, by name of the object."""
    keys = {}
    for one in kustomization()[generator]:
        files = [pathlib.PurePosixPath(path).name for path in one.get("files", [])]
        literals = [literal.split("=", 1)[0] for literal in one.get("literals", [])]
        keys[one["name"]] = files + literals
    return keys


def literal(config_map, key):
    """Value of a key of a generated config map."""
    (found,) = (one for one in kustomization()["configMapGenerator"] if one["name"] == config_map)
    values = dict(one.split("=", 1) for one in found["literals"])
    return values[key]


def nats_values():
    (values,) = Yaml.documents(FOLDER / "nats-values.yaml")
    return values


def commands():
    """Commands of the README, as lists of words."""
    text = (FOLDER / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line and not line.startswith("#")]


def command(*start):
    """The only command of the README that begins with these words."""
    (found,) = (words for words in commands() if words[: len(start)] == list(start))
    return found


def values_of(words, option):
    """Values of an option that may be repeated."""
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def runner_names():
    return [f"runner-{index}" for index in range(resource("Job", "runners")["spec"]["completions"])]


def run(*words, folder=None):
    """Runs the program and returns its standard output."""
    program = str(pathlib.Path(PROGRAM).resolve())
    done = subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


needs_program = unittest.skipUnless(PROGRAM, "STREAMGAUGE names no program")


class Reader(unittest.TestCase):
    def test_documents_are_read(self):
        text = "a:\n  - b: 0400 # octal\n    c: \"4\"\n  - d\ne:\n  $f: true\ng: x:y(1)\nh: {}\n"
        wanted = {"a": [{"b": 0o400, "c": "4"}, "d"], "e": {"$f": True}, "g": "x:y(1)", "h": {}}
        self.assertEqual(Yaml(text).document(), wanted)

    def test_unknown_syntax_is_refused(self):
        wrong = [
            "a: 1\na: 2\n", "a: [1]\n", "a: |\n  b\n", "a: &b c\n", "a: *b\n", "a: yes\n",
            "a: null\n", "a: 1.5\n", "a: 0x1\n", "a: 08\n", "a: b: c\n", "a:\tb\n", "a:\n",
            "a:\n    b: 1\n", "a:\n- b\n", "a: b\n  c: d\n", "- - a\n", "? a\n", 'a: "b" c\n',
            'a: "b #c"\n',
        ]
        for text in wrong:
            with self.subTest(text), self.assertRaises(ValueError):
                Yaml(text).document()


class Manifests(unittest.TestCase):
    def test_every_document_is_named(self):
        seen = set()
        for document in resources() + Yaml.documents(FOLDER / "results.yaml"):
            self.assertRegex(document["apiVersion"], r"^(batch/)?v1$")
            key = (document["kind"], document["metadata"]["name"])
            self.assertNotIn(key, seen)
            self.assertRegex(key[1], r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
            seen.add(key)

    def test_every_file_is_used(self):
        others = ["kustomization.yaml", "nats-values.yaml", "results.yaml", "scenario.yaml"]
        used = sorted(kustomization()["resources"] + others)
        self.assertEqual(used, sorted(path.name for path in FOLDER.glob("*.yaml")))

    def test_runners_are_an_indexed_job(self):
        spec = resource("Job", "runners")["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(spec["completions"], spec["parallelism"])
        container = programs()["runners"]
        args = container["args"]
        self.assertEqual(args[0], "runner")
        self.assertIn("--once", args)
        self.assertEqual(values_of(args, "--name"), ["runner-$(JOB_COMPLETION_INDEX)"])
        self.assertEqual(values_of(args, "--allow-target"), ["$(ALLOW_TARGET)"])
        self.assertNotIn("cpu", container["resources"]["limits"])

    def test_jobs_are_not_repeated(self):
        for name in ("runners", "coordinator"):
            spec = resource("Job", name)["spec"]
            self.assertEqual(spec["backoffLimit"], 0)
            self.assertEqual(spec["podReplacementPolicy"], "Failed")
            self.assertEqual(spec["template"]["spec"]["restartPolicy"], "Never")
            # The longest run has 24 h.
            self.assertGreater(spec["activeDeadlineSeconds"], 24 * 3600)
        (rule,) = resource("Job", "coordinator")["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(rule["action"], "FailJob")
        self.assertEqual(rule["onExitCodes"]["operator"], "In")
        self.assertEqual(rule["onExitCodes"]["containerName"], programs()["coordinator"]["name"])
        self.assertEqual(rule["onExitCodes"]["values"], [99, 104, 105, 110])

    def test_each_runner_has_a_node_of_its_own(self):
        template = resource("Job", "runners")["spec"]["template"]
        anti = template["spec"]["affinity"]["podAntiAffinity"]
        (rule,) = anti["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(rule["topologyKey"], "kubernetes.io/hostname")
        self.assertEqual(rule["labelSelector"]["matchLabels"], template["metadata"]["labels"])

    def test_pods_have_few_rights(self):
        for name, pod in pods().items():
            with self.subTest(name):
                self.assertIs(pod["automountServiceAccountToken"], False)
                # Variables of services named `streamgauge` would be taken for settings.
                self.assertIs(pod["enableServiceLinks"], False)
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                self.assertGreater(pod["securityContext"]["runAsUser"], 0)
                self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
                (container,) = pod["containers"]
                rights = container["securityContext"]
                self.assertNotIn("runAsUser", rights)
                # The file capability of the program has no effect with no_new_privs.
                self.assertIs(rights["allowPrivilegeEscalation"], name == "runners")
                self.assertIs(rights["readOnlyRootFilesystem"], True)
                self.assertEqual(rights["capabilities"]["drop"], ["ALL"])
                added = rights["capabilities"].get("add", [])
                self.assertEqual(added, ["NET_RAW"] if name == "runners" else [])
                self.assertIn("cpu", container["resources"]["requests"])
                requested = container["resources"]["requests"]["memory"]
                self.assertEqual(container["resources"]["limits"]["memory"], requested)
                for variable in container.get("env", []):
                    self.assertFalse(variable["name"].startswith("STREAMGAUGE"))

    def test_namespace_permits_the_capability(self):
        labels = resource("Namespace", kustomization()["namespace"])["metadata"]["labels"]
        self.assertEqual(labels["pod-security.kubernetes.io/enforce"], "privileged")

    def test_volumes_refer_to_objects_that_exist(self):
        secrets, maps = generated("secretGenerator"), generated("configMapGenerator")
        for name, pod in pods().items():
            with self.subTest(name):
                (container,) = pod["containers"]
                volumes = {volume["name"]: volume for volume in pod["volumes"]}
                mounts = [mount["name"] for mount in container["volumeMounts"]]
                self.assertEqual(sorted(volumes), sorted(mounts))
                paths = [mount["mountPath"] for mount in container["volumeMounts"]]
                self.assertEqual(len(paths), len(set(paths)))
                for volume in volumes.values():
                    (kind,) = set(volume) - {"name"}
                    if kind == "secret":
                        self.assertIn(volume[kind]["secretName"], secrets)
                        self.assertEqual(volume[kind]["defaultMode"], 0o400)
                    elif kind == "configMap":
                        self.assertIn(volume[kind]["name"], maps)
                    elif kind == "persistentVolumeClaim":
                        resource("PersistentVolumeClaim", volume[kind]["claimName"])
                    else:
                        self.assertEqual(kind, "emptyDir")
                for variable in container.get("env", []):
                    if "configMapKeyRef" in variable["valueFrom"]:
                        reference = variable["valueFrom"]["configMapKeyRef"]
                        self.assertIn(reference["key"], maps[reference["name"]])

    def test_files_of_options_are_mounted(self):
        known = {**generated("secretGenerator"), **generated("configMapGenerator")}
        for name, container in programs().items():
            volumes = {volume["name"]: volume for volume in pods()[name]["volumes"]}
            for path in (word for word in container["args"] if word.startswith("/")):
                with self.subTest(f"{name} {path}"):
                    above = [one for one in container["volumeMounts"]
                             if f"{path}/".startswith(f"{one['mountPath']}/")]
                    (mount,) = above
                    volume = volumes[mount["name"]]
                    source = volume.get("secret", {}).get("secretName")
                    source = source or volume.get("configMap", {}).get("name")
                    if source is None:
                        self.assertNotIn("readOnly", mount)
                        continue
                    self.assertIs(mount["readOnly"], True)
                    file = mount.get("subPathExpr", pathlib.PurePosixPath(path).name)
                    indices = range(resource("Job", "runners")["spec"]["completions"])
                    files = {file.replace("$(JOB_COMPLETION_INDEX)", str(at)) for at in indices}
                    self.assertLessEqual(files, set(known[source]))

    def test_variables_of_arguments_are_set(self):
        for name, container in programs().items():
            own = {variable["name"] for variable in container["env"]}
            own |= {"JOB_COMPLETION_INDEX"} if name == "runners" else set()
            used = re.findall(r"\$\((\w+)\)", " ".join(container["args"]))
            self.assertLessEqual(set(used), own)

    def test_number_of_runners_agrees(self):
        wanted = runner_names()
        args = programs()["coordinator"]["args"]
        self.assertEqual(values_of(args, "--runners"), [str(len(wanted))])
        files = [f"{name}.pem" for name in wanted]
        self.assertEqual(generated("secretGenerator")["runner-keys"], files)
        self.assertEqual(values_of(command("streamgauge", "cluster", "keys"), "--runner"), wanted)

    def test_nats_has_the_same_address_everywhere(self):
        namespace = kustomization()["namespace"]
        install = command("helm", "install")
        host = f"{install[2]}.{namespace}.svc"
        for container in programs().values():
            self.assertEqual(values_of(container["args"], "--at"), [f"tls://{host}:4222"])
        self.assertEqual(values_of(command("streamgauge", "cluster", "keys"), "--host"), [host])
        self.assertEqual(values_of(install, "--namespace"), [namespace])
        self.assertEqual(values_of(install, "--values"), ["nats-values.yaml"])
        (results,) = Yaml.documents(FOLDER / "results.yaml")
        self.assertEqual(results["metadata"]["namespace"], namespace)
        for words in commands():
            for wanted in values_of(words, "-n"):
                self.assertEqual(wanted, namespace)

    def test_nats_knows_clients_by_their_certificates(self):
        values = nats_values()
        config = values["config"]
        keys = generated("secretGenerator")
        tls = config["nats"]["tls"]
        self.assertIs(tls["enabled"], True)
        self.assertIs(tls["merge"]["verify_and_map"], True)
        self.assertIn(tls["cert"], keys[tls["secretName"]])
        self.assertIn(tls["key"], keys[tls["secretName"]])
        self.assertIs(values["tlsCA"]["enabled"], True)
        self.assertIn(values["tlsCA"]["key"], keys[values["tlsCA"]["secretName"]])
        self.assertIs(config["jetstream"]["enabled"], True)
        for part in ("cluster", "websocket"):
            self.assertIs(config[part]["enabled"], False)
        # The users are in a file of the same secret, which the chart mounts for TLS.
        (name, included) = next(iter(config["merge"].items()))
        self.assertTrue(name.endswith("$include"))
        path = pathlib.PurePosixPath(os.path.normpath(NATS_CONFIG / included))
        self.assertEqual(path.parent, NATS_CERTS)
        self.assertIn(path.name, keys[tls["secretName"]])

    def test_key_that_signs_certificates_stays_outside(self):
        self.assertNotIn("ca-key.pem", sum(generated("secretGenerator").values(), []))
        self.assertIn("/cluster-keys/", (FOLDER / ".gitignore").read_text().splitlines())

    def test_setup_is_applied_before_the_jobs(self):
        _, setup, *rest = commands()
        self.assertEqual(setup, ["kubectl", "apply", "-k", ".", "-l", f"{COMPONENT}=setup"])
        self.assertIn(["kubectl", "apply", "-k", "."], rest)
        self.assertEqual(kustomization()["generatorOptions"]["labels"][COMPONENT], "setup")
        self.assertIs(kustomization()["generatorOptions"]["disableNameSuffixHash"], True)
        for document in resources():
            component = document["metadata"]["labels"][COMPONENT]
            self.assertEqual(component == "setup", document["kind"] != "Job")

    def test_image_is_set_in_one_place(self):
        (image,) = kustomization()["images"]
        self.assertEqual(sorted(programs()), ["coordinator", "runners"])
        for container in programs().values():
            self.assertEqual(container["image"], image["name"])
            self.assertEqual(container["command"], ["streamgauge"])

    def test_example_sends_only_to_the_permitted_target(self):
        text = (FOLDER / "scenario.yaml").read_text()
        hosts = set(re.findall(r"\w://([^:/\"]+)", text))
        self.assertEqual(hosts, {literal("runners", "allow-target")})


@needs_program
class Program(unittest.TestCase):
    def test_options_exist(self):
        for name, container in programs().items():
            command_name, *words = container["args"]
            text = run(command_name, "--help")
            # An option, and its value if it takes one.
            line = r"^ +(?:-\w, )?(--[a-z-]+)( <[A-Z:=|]+>)?"
            # The first one: a text that continues with the name of an option comes after it.
            options = dict(reversed(re.findall(line, text, re.MULTILINE)))
            usage = re.search(r"^Usage: streamgauge \w+(.*)$", text, re.MULTILINE)[1]
            places = len(re.findall(r"<\w+>", re.sub(r"--\S+ <\w+>", "", usage)))
            positional = []
            while words:
                word = words.pop(0)
                if not word.startswith("-"):
                    positional.append(word)
                    continue
                self.assertIn(word, options, name)
                if options[word]:
                    self.assertTrue(words and not words[0].startswith("-"), f"{name}: {word}")
                    words.pop(0)
            self.assertEqual(len(positional), places, f"{name}: {positional}")

    def test_written_keys_are_those_of_the_secrets(self):
        words = command("streamgauge", "cluster", "keys")[1:]
        with tempfile.TemporaryDirectory() as folder:
            run(*words, folder=folder)
            for secret in kustomization()["secretGenerator"]:
                for file in secret["files"]:
                    self.assertTrue(pathlib.Path(folder, file).is_file(), file)
            users = pathlib.Path(folder, "cluster-keys", "nats.conf").read_text()
            for user in ["coordinator", *runner_names()]:
                self.assertIn(f'user: "{user}@', users)

    def test_scenario_is_valid(self):
        runners = str(len(runner_names()))
        run("check", str(FOLDER / "scenario.yaml"), "--offline", "--runners", runners)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
