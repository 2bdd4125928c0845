//! Runners that are started by SSH, on a real server of OpenSSH.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{FAULTY, scenario, summaries};
use crate::support::{
    Process, RUN_TIMEOUT, Report, Server, folder, free_port, have, number, streamgauge,
};

/// A server of OpenSSH for this user, and a client that knows it as `load1` and `load2`.
struct SshServer {
    process: Process,
    /// Folder with the client `ssh`.
    programs: PathBuf,
}

fn output(command: &mut Command) -> String {
    let done = command.output().expect("the program is installed");
    assert!(done.status.success(), "{command:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn make_key(path: &Path) {
    output(
        Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(path),
    );
}

impl SshServer {
    fn start(folder: &Path) -> SshServer {
        let port = free_port();
        let at = |name: &str| folder.join(name);
        make_key(&at("host"));
        make_key(&at("mine"));
        let user = output(Command::new("id").arg("-un"));
        if user == "root" {
            // sshd of root wants it; Debian's service makes it.
            fs::create_dir_all("/run/sshd").expect("root can make it");
        }
        let program = Path::new(env!("CARGO_BIN_EXE_streamgauge"));
        let own = program.parent().expect("it is in a folder").display();
        let shown = folder.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {shown}/mine.pub\nStrictModes no\nPermitRootLogin yes\n\
             SetEnv PATH={own}:/usr/bin:/bin\n"
        );
        fs::write(at("sshd_config"), config).expect("the folder is the test's");
        let config = format!(
            "Host load1 load2 stranger\n HostName 127.0.0.1\n Port {port}\n User {user}\n \
             IdentitiesOnly yes\n UserKnownHostsFile {shown}/known\n StrictHostKeyChecking no\n\
             Host load1 load2\n IdentityFile {shown}/mine\n"
        );
        fs::write(at("ssh_config"), config).expect("the folder is the test's");
        let programs = at("programs");
        fs::create_dir(&programs).expect("the folder is the test's");
        // OpenSSH's client reads its configuration from the home in the user database.
        let client = programs.join("ssh");
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F '{shown}/ssh_config' \"$@\"\n");
        fs::write(&client, script).expect("the folder is the test's");
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).expect("it is the test's");
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f"]).arg(at("sshd_config"));
        let mut process = Process::start(command, folder);
        process.listen(port);
        SshServer { process, programs }
    }

    /// A command that finds this server's client before the machine's own.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = streamgauge(arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command
    }
}

#[test]
fn runners_are_started_by_ssh() {
    if !have("nats-server") || !have("ssh") || !have("sshd") {
        return;
    }
    let folder = folder();
    let mut ssh = SshServer::start(folder.path());
    let server = Server::start(folder.path(), &FAULTY);
    scenario(folder.path(), &server.url(), 12, "");
    let arguments = [
        "run",
        "many.yaml",
        "--runners",
        "ssh:load1,ssh:load2*2",
        "--json",
        "many.json",
        "-o",
        "many.run",
    ];
    let ran = Process::start(ssh.command(&arguments), folder.path()).finish(RUN_TIMEOUT);
    // Loss is above the implied threshold.
    let sshd = ssh.process.stderr_text();
    assert!(
        matches!(ran.status.code(), Some(0 | 99)),
        "{}\n{sshd}",
        ran.stderr
    );
    let (_, sent) = server.stop();
    let report = Report::read(&folder.path().join("many.json"));
    report.tester_was_fit();
    assert_eq!(report.counts(), sent);
    let clients: Vec<(String, u64)> = summaries(&report)
        .iter()
        .map(|one| {
            let name = one["name"].as_str().expect("it has a name");
            (name.to_owned(), number(&one["clients_max"]))
        })
        .collect();
    assert_eq!(clients, [("load1".to_owned(), 4), ("load2".to_owned(), 8)]);
    assert!(ssh.process.runs());
}

/// A host that refuses the key, and one that does not have the program.
#[test]
fn host_that_starts_no_runner_is_named_with_its_reason() {
    if !have("nats-server") || !have("ssh") || !have("sshd") {
        return;
    }
    let folder = folder();
    let ssh = SshServer::start(folder.path());
    scenario(folder.path(), "rtsp://127.0.0.1:9/a", 2, "");
    let arguments = [
        "run",
        "many.yaml",
        "--no-describe",
        "--runners",
        "ssh:load1,ssh:stranger",
        "--no-run-file",
    ];
    let ran = Process::start(ssh.command(&arguments), folder.path()).finish(RUN_TIMEOUT);
    assert_eq!(ran.status.code(), Some(104), "{}", ran.stderr);
    let expected = ["stranger", "Permission denied"];
    assert!(
        expected.iter().all(|word| ran.stderr.contains(word)),
        "{}",
        ran.stderr
    );
}
