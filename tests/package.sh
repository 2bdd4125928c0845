#!/bin/bash
# Makes the packages of cargo, and checks that each compiles from the files that it contains.
#
# Usage: tests/package.sh
#
# `cargo package` could verify them itself, but takes eight minutes of processor time for it, and keeps
# the sources of a version for ever: a second run would verify the first one's.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=${CARGO_TARGET_DIR:-target}/package
# Those of other versions.
rm -f "$packages"/*.crate
cargo package --workspace --locked --allow-dirty --no-verify --quiet
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A workspace of the unpacked packages, in which each replaces what a registry would have.
{
    printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n\n[patch.crates-io]\n'
    for package in "$packages"/*.crate; do
        tar -xzf "$package" -C "$scratch"
        folder=$(basename "$package" .crate)
        name=$(sed -n '/^\[package\]/,/^\[/s/^name = "\(.*\)"/\1/p' "$scratch/$folder/Cargo.toml")
        printf '%s = { path = "%s" }\n' "$name" "$folder"
    done
    # Compiled libraries are those of the tests.
    sed -n '/^\[profile\.dev/,/^$/p' Cargo.toml
} >"$scratch/Cargo.toml"
cp Cargo.lock "$scratch/"
rm "$scratch"/*/Cargo.lock
CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}") cargo check --quiet --offline \
    --manifest-path "$scratch/Cargo.toml" --workspace
echo "packages that compile: $(find "$scratch" -mindepth 2 -maxdepth 2 -name Cargo.toml | wc -l)"
