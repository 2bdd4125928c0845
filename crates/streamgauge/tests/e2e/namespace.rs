//! Network namespaces that end with their test.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{wait_for, wrap_command};

/// Time limit for making a namespace.
const PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace without a name, which ends when this value is dropped.
pub(crate) struct Namespace(Child);

impl Namespace {
    /// Makes a namespace. Returns `None` if that is not permitted.
    pub(crate) fn new() -> Option<Namespace> {
        let own = fs::read_link("/proc/self/ns/net").expect("Linux has namespaces");
        // It lives until its standard input ends, even if this process is killed.
        let mut holder = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare is there: it is part of util-linux");
        let path = format!("/proc/{}/ns/net", holder.id());
        let stands = wait_for("the namespace", PATIENCE, || {
            let denied = holder.try_wait().is_ok_and(|status| status.is_some());
            let other = fs::read_link(&path).is_ok_and(|other| other != own);
            (denied || other).then_some(!denied)
        });
        stands.then_some(Namespace(holder))
    }

    /// Makes a namespace whose only interface is the loopback interface, which carries multicast.
    /// Returns `None` if that is not permitted, and prints why.
    pub(crate) fn with_multicast() -> Option<Namespace> {
        let Some(namespace) = Namespace::new() else {
            // Printed on purpose: readers of the test's output must know.
            let why = "making a network namespace needs the capability CAP_SYS_ADMIN";
            let _ = writeln!(std::io::stderr(), "left out: {why}");
            return None;
        };
        namespace.ip("link set lo multicast on");
        namespace.ip("link set lo up");
        namespace.ip("route add 239.81.0.0/16 dev lo");
        namespace.ip("-6 route add local ff15::/16 dev lo");
        Some(namespace)
    }

    /// Returns the process that holds the namespace.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns a command that runs this one in the namespace.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut within = Command::new("nsenter");
        within.args(["--net", "--target", &self.0.id().to_string(), "--"]);
        wrap_command(within, command)
    }

    pub(crate) fn ip(&self, arguments: &str) {
        let mut ip = Command::new("ip");
        ip.args(arguments.split_whitespace());
        let output = self.within(&ip).output().expect("nsenter is there");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {arguments}: {message}");
    }

    /// Returns a table of the namespace in /proc/net.
    pub(crate) fn table(&self, name: &str) -> String {
        let path = format!("/proc/{}/net/{name}", self.0.id());
        fs::read_to_string(path).unwrap_or_default()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
