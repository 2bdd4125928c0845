#!/bin/bash
# Builds the container image, and runs it as its user: with the capability NET_RAW, without it, and
# where no capability may be gained.
#
# Usage: tests/container.sh DIST
#   DIST   folder with the archives of a release (tests/release.sh makes one)
#
# Needs root. buildah builds the image; without it, the root file system is used as it is. A chroot
# stands in for the container's run time. All traffic is in a network of its own.
set -euo pipefail
# What is tested does not depend on how busy the machine is.
export STREAMGAUGE_TESTER__HEALTH__WINDOWS=100%
cd "$(dirname "$0")/.."

if [[ ${1:-} != --inside ]]; then
    (( $# == 1 )) || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 2; }
    dist=$(realpath "$1")
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    unshare --net --mount --propagation private "$0" --inside "$dist" "$scratch"
    exit
fi
dist=$2 scratch=$3
ip link set lo up

fail() { echo "$0: $*" >&2; exit 1; }

context=$scratch/context root=$scratch/root
packaging/container/context "$dist" "$context" >/dev/null
mkdir "$root"
if command -v buildah >/dev/null; then
    # The image in the folder of an archive: layers and settings, as a registry has them.
    export STORAGE_DRIVER=vfs
    folders=(--root "$scratch/storage" --runroot "$scratch/storage-run")
    printf '{"default":[{"type":"insecureAcceptAnything"}]}\n' >"$scratch/policy.json"
    buildah "${folders[@]}" build --isolation chroot --quiet --tag streamgauge "$context" >/dev/null
    buildah "${folders[@]}" push --quiet --signature-policy "$scratch/policy.json" \
        streamgauge "oci:$scratch/image"
    python3 -c '
import json, pathlib, sys
image, context = map(pathlib.Path, sys.argv[1:])

def blob(digest):
    return image / "blobs" / digest.replace(":", "/")

index = json.loads((image / "index.json").read_text())
manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
settings = json.loads(blob(manifest["config"]["digest"]).read_text())
config = settings["config"]
assert settings["architecture"] == "amd64", settings
assert config["User"] == "65532:65532", config
assert config["Entrypoint"] == ["/usr/bin/streamgauge"], config
assert config["WorkingDir"] == "/work", config
for layer in manifest["layers"]:
    print(blob(layer["digest"]))
' "$scratch/image" "$context" >"$scratch/layers"
    while read -r layer; do
        tar -xf "$layer" -C "$root" --xattrs --xattrs-include='*' --same-owner --preserve-permissions
    done <"$scratch/layers"
    echo "built by buildah"
else
    tar -xf "$context/root-amd64.tar" -C "$root" --xattrs --xattrs-include='*' --same-owner \
        --preserve-permissions
    echo "left out: buildah is not installed, so the root file system is used without an image"
fi

[[ $(stat -c %u:%a "$root/work") == 65532:755 ]] || fail "/work is not the user's"
[[ $(stat -c %u:%a "$root/tmp") == 0:1777 ]] || fail "/tmp cannot be written by the user"
[[ $(getcap "$root/usr/bin/streamgauge") == *cap_net_raw=p ]] || fail "it has no capability"
[[ -s $root/etc/ssl/certs/ca-certificates.crt ]] || fail "it has no certificates"
if find "$root" -type f -perm /6000 | grep .; then fail "it has a program of another user"; fi

mkdir -p "$root/proc" "$root/dev"
mount -t proc none "$root/proc"
mknod -m 666 "$root/dev/null" c 1 3

# Runs the image as its user; options of setpriv restrict it. chroot needs three capabilities itself.
container() {
    local own=+sys_chroot,+setuid,+setgid
    setpriv "${@:1:$#-1}" --bounding-set="-all,$own${!#}" -- \
        chroot --userspec=65532:65532 "$root" /usr/bin/streamgauge \
        demo --clients 3 --duration 4s --force --markdown /work/report.md --out /work/demo.run \
        >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "the image does not run"; }
}

expect() { tr -d '\\' <"$root/work/report.md" | grep -qF -- "$1" || { cat "$root/work/report.md" >&2; fail "no: $1"; }; }

container ,+net_raw
expect 'read by ring'
[[ $(stat -c %u "$root/work/demo.run") == 65532 ]] || fail "it did not run as its user"
container ''
expect 'read by sockets'
expect 'start this container or service with the capability NET_RAW (`--cap-add NET_RAW`)'
container --no-new-privs ,+net_raw
expect 'read by sockets'
expect 'without `no-new-privileges`'
echo "the image was used with NET_RAW, without it, and with no-new-privileges"
