#!/bin/bash
# Makes the Debian package, checks it, installs it, uses it as a user who is not root, and removes it.
#
# Usage: tests/deb.sh        as root; needs cargo-deb (see packaging/deb), lintian and systemd
#
# The script works on a temporary copy of the machine's folders, in a private network: it leaves
# nothing behind.
set -euo pipefail
# What is tested does not depend on how busy the machine is.
export STREAMGAUGE_TESTER__HEALTH__WINDOWS=100%
cd "$(dirname "$0")/.."

if [[ ${1:-} != --inside ]]; then
    package=$(packaging/deb --debug | tail -n 1)
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    unshare --mount --net --propagation private "$0" --inside "$package" "$scratch"
    exit
fi
package=$2 scratch=$3
mount -t tmpfs none "$scratch"
for folder in usr etc var; do
    mkdir -p "$scratch/$folder" "$scratch/$folder.work"
    mount -t overlay none "/$folder" \
        -o "lowerdir=/$folder,upperdir=$scratch/$folder,workdir=$scratch/$folder.work"
done
ip link set lo up

fail() { echo "$0: $*" >&2; exit 1; }

lintian --fail-on error --tag-display-limit 0 "$package" ||
    fail "lintian found errors"

dpkg --install "$package" >/dev/null
[[ $(getcap /usr/bin/streamgauge) == *cap_net_raw=p ]] || fail "it has no capability"
for file in man/man1/streamgauge-run.1.gz bash-completion/completions/streamgauge \
    zsh/vendor-completions/_streamgauge fish/vendor_completions.d/streamgauge.fish \
    doc/streamgauge/examples/rtsp-vod.yaml doc/streamgauge/copyright \
    doc/streamgauge/changelog.Debian.gz doc/streamgauge/THIRD-PARTY.txt; do
    [[ -s /usr/share/$file ]] || fail "/usr/share/$file is not there"
done
bash -n /usr/share/bash-completion/completions/streamgauge

home=$(mktemp -d "$scratch/home.XXXX")
chown nobody "$home"
cd "$home"
setpriv --reuid=nobody --clear-groups --inh-caps=-all --bounding-set=+net_raw -- \
    streamgauge demo --clients 3 --duration 3s --json report.json >demo.log 2>&1 || {
    cat demo.log >&2; fail "a user's run failed"; }
grep -q 'read by ring' demo.log || { cat demo.log >&2; fail "the ring was not used"; }
python3 -c '
import json, sys
report = json.load(open("report.json"))
sys.exit(report["verdict"]["result"] != "pass")' || fail "the report says something else"

unit=streamgauge-runner.service
systemd-analyze verify --man=no --recursive-errors=no "$unit" || fail "the unit is wrong"
[[ $(systemctl --root=/ is-enabled "$unit" || true) == disabled ]] || fail "the unit is enabled"
# The command of the unit, without systemd. It parses its options, and finds no certificate.
AT='' OPTIONS=''
# shellcheck source=/dev/null
. /etc/default/streamgauge-runner
command=$(sed -n 's/^ExecStart=//p' "/lib/systemd/system/$unit")
[[ -n $AT && -n $OPTIONS ]] || fail "the settings of the unit are empty"
said=$(CREDENTIALS_DIRECTORY=/nowhere AT=$AT OPTIONS=$OPTIONS bash -c "$command" 2>&1) && fail "it runs"
[[ $said == *"/nowhere/runner.pem"* ]] || fail "the unit's command is wrong: $said"

# A file that the administrator has changed stays until the package is purged.
echo 'OPTIONS="--name runner-1"' >>/etc/default/streamgauge-runner
dpkg --remove streamgauge >/dev/null
[[ ! -e /usr/bin/streamgauge ]] || fail "it is still there"
grep -q 'runner-1' /etc/default/streamgauge-runner || fail "settings were removed"
dpkg --purge streamgauge >/dev/null
[[ ! -e /etc/default/streamgauge-runner ]] || fail "settings are still there"
echo "installed, used and removed: $(basename "$package")"
