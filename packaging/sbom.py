#!/usr/bin/env python3
"""Writes the SBOM of the program (CycloneDX 1.5), and the licences of everything in it.

Usage: packaging/sbom.py --target TARGET --sbom FILE --licences FILE

The components are the crates that cargo compiles into the program for this target, C libraries in
them, and Rust's standard library. Tools of the build and of tests are left out. Dates come from
SOURCE_DATE_EPOCH, so the same source gives the same files.

Fails if the licence of a component or the version of a C library cannot be found.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "streamgauge"
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
# Crates that bring a C library: its name, and the header and the line with its version.
C_LIBRARIES = {
    "aws-lc-sys": ("aws-lc", "aws-lc/include/openssl/base.h", r'AWSLC_VERSION_NUMBER_STRING "(.+)"'),
    "libdeflate-sys": ("libdeflate", "libdeflate/libdeflate.h", r'_VERSION_STRING\s+"(.+)"'),
    "libmimalloc-sys": (
        "mimalloc",
        "c_src/mimalloc/v3/include/mimalloc.h",
        r"define MI_MALLOC_VERSION (\d)(\d\d)(\d\d)",
    ),
    "libsqlite3-sys": ("sqlite", "sqlite3/sqlite3.h", r'define SQLITE_VERSION\s+"(.+)"'),
}


def cargo(*words):
    """Output of a command of cargo."""
    return subprocess.run(
        ["cargo", *words, "--locked"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def linked(target):
    """Packages that are compiled into the program or are macros of it: each (name, version), with the
    versions as cargo resolves features for this target."""
    lines = cargo(
        *["tree", "--package", PROGRAM, "--edges", "normal", "--target", target],
        *["--prefix", "none", "--format", "{p}"],
    )
    found = (line.split() for line in lines.splitlines() if line.strip())
    return {(words[0], words[1].removeprefix("v")) for words in found}


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def checksums():
    """SHA-256 of each package of the registry, as in Cargo.lock."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {
        (package["name"], package["version"]): package["checksum"]
        for package in lock["package"]
        if "checksum" in package
    }


def folder_of(package):
    return pathlib.Path(package["manifest_path"]).parent


def c_library(package):
    """Name and version of the C library in a crate, if it has one."""
    known = C_LIBRARIES.get(package["name"])
    if known is None:
        return None
    name, header, pattern = known
    found = re.search(pattern, (folder_of(package) / header).read_text())
    if found is None:
        sys.exit(f"{sys.argv[0]}: no version of {name} in {header}")
    parts = found.groups()
    return name, parts[0] if len(parts) == 1 else ".".join(str(int(part)) for part in parts)


def component(package, sums):
    found = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        # Macros run in the compiler: their output is in the program, they are not.
        "scope": "excluded" if is_macro(package) else "required",
        "licenses": [{"expression": expression(package)}],
        "purl": purl(package),
    }
    if package["description"]:
        found["description"] = " ".join(package["description"].split())
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    library = c_library(package)
    if library:
        name, version = library
        found["components"] = [
            {
                "type": "library",
                "bom-ref": f"pkg:generic/{name}@{version}",
                "name": name,
                "version": version,
                "purl": f"pkg:generic/{name}@{version}",
            }
        ]
    return found


def expression(package):
    """SPDX expression of a package. Old packages separate alternatives with a slash."""
    if not package["license"]:
        sys.exit(f"{sys.argv[0]}: {package['name']} names no licence")
    return " OR ".join(part.strip() for part in package["license"].split("/"))


def rust():
    """Version of Rust's standard library."""
    return subprocess.run(
        ["rustc", "--version"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()[1]


def bill(target, packages, edges, root, sums):
    """The SBOM."""
    when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    others = sorted(
        (package for package in packages.values() if package["id"] != root),
        key=lambda package: (package["name"], package["version"]),
    )
    standard = f"pkg:generic/rust-std@{rust()}"
    top = {**component(packages[root], sums), "type": "application"}
    top["properties"] = [{"name": "target", "value": target}]
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": top},
        "components": [component(package, sums) for package in others]
        + [
            {
                "type": "library",
                "bom-ref": standard,
                "name": "rust-std",
                "version": rust(),
                "scope": "required",
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "purl": standard,
            }
        ],
        "dependencies": [
            {
                "ref": purl(package),
                "dependsOn": sorted(
                    {purl(packages[other]) for other in edges[id] if other in packages}
                    | ({standard} if id == root else set())
                ),
            }
            for id, package in sorted(packages.items(), key=lambda item: purl(item[1]))
        ],
    }
    content = json.dumps(found, sort_keys=True)
    return {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}", **found}


def licence_files(package):
    """Files with licences in a package; of one with C code also those of its libraries."""
    folder = folder_of(package)
    found = folder.rglob("*") if package["name"] in C_LIBRARIES else folder.iterdir()
    return sorted(
        path
        for path in found
        if LICENCE_FILE.match(path.name) and path.is_file() and path.suffix not in (".h", ".c", ".py")
    )


def licences(packages, root):
    """The text of each licence, with the packages that it belongs to."""
    users, texts, without = {}, {}, []
    for package in sorted(packages.values(), key=lambda package: package["name"]):
        if package["id"] == root or package["source"] is None and "crates/" in package["manifest_path"]:
            # Of this project: LICENSE-MIT and LICENSE-APACHE are next to the program.
            continue
        name = f"{package['name']} {package['version']} ({expression(package)})"
        files = licence_files(package)
        if not files:
            if "Apache-2.0" not in expression(package):
                sys.exit(f"{sys.argv[0]}: {name} has no licence text")
            without.append(name)
        for path in files:
            text = path.read_text(errors="replace").strip()
            key = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            texts.setdefault(key, text)
            users.setdefault(key, []).append(name)
    line = "=" * 80
    parts = [f"Licences of the libraries in {PROGRAM}.\n"]
    if without:
        names = "\n".join(without)
        parts.append(f"{line}\nUnder the Apache License 2.0 (the file LICENSE-APACHE):\n\n{names}\n")
    for key, text in sorted(texts.items(), key=lambda item: users[item[0]]):
        names = "\n".join(dict.fromkeys(users[key]))
        parts.append(f"{line}\n{names}\n\n{text}\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--sbom", required=True, type=pathlib.Path)
    parser.add_argument("--licences", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    metadata = json.loads(
        cargo("metadata", "--format-version", "1", "--filter-platform", arguments.target)
    )
    wanted = linked(arguments.target)
    packages = {
        package["id"]: package
        for package in metadata["packages"]
        if (package["name"], package["version"]) in wanted
    }
    if len(packages) != len(wanted):
        sys.exit(f"{sys.argv[0]}: {len(wanted)} packages are linked, {len(packages)} are known")
    undeclared = [
        package["name"]
        for package in packages.values()
        if package["links"]
        and package["name"].endswith("-sys")
        and package["name"] not in C_LIBRARIES
    ]
    if undeclared:
        sys.exit(f"{sys.argv[0]}: which C library is in {', '.join(undeclared)}?")
    edges = {
        node["id"]: [
            edge["pkg"]
            for edge in node["deps"]
            if any(kind["kind"] is None for kind in edge["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
    }
    root = next(id for id, package in packages.items() if package["name"] == PROGRAM)
    sbom = bill(arguments.target, packages, edges, root, checksums())
    arguments.sbom.write_text(json.dumps(sbom, indent=1) + "\n")
    arguments.licences.write_text(licences(packages, root))


if __name__ == "__main__":
    main()
