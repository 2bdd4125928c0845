//! Runs over several runners whose messages get lost, wait, or are refused.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::{
    FAULTY, PATIENCE, nats, nats_with, runner, scenario, summaries, wait_for_clients,
};
use crate::support::{
    Process, Report, Server, established, folder, have, run, streamgauge, wait_for,
};

/// Time within which every fault ends a run.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// A relay of TCP connections that can stop to pass anything on, in both directions, while the
/// connections stay open: a network that is cut off.
struct Relay {
    port: u16,
    is_open: Arc<(Mutex<bool>, Condvar)>,
}

impl Relay {
    fn start(to: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let is_open = Arc::new((Mutex::new(true), Condvar::new()));
        let gate = is_open.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to)))
                else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let copies = from
                        .try_clone()
                        .and_then(|from| Ok((from, to.try_clone()?)));
                    let (from, to) = copies.expect("a descriptor");
                    let gate = gate.clone();
                    thread::spawn(move || pass_on(from, to, &gate));
                }
            }
        });
        Relay { port, is_open }
    }

    fn open(&self, open: bool) {
        let (is_open, changed) = &*self.is_open;
        *is_open.lock().unwrap_or_else(PoisonError::into_inner) = open;
        changed.notify_all();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, gate: &(Mutex<bool>, Condvar)) {
    let mut data = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut data) {
        let (is_open, changed) = gate;
        let open = is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = changed.wait_while(open, |open| !*open);
        drop(open.unwrap_or_else(PoisonError::into_inner));
        if to.write_all(&data[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Address and port of a NATS server.
fn port_of(at: &str) -> u16 {
    let port = at.rsplit(':').next().and_then(|port| port.parse().ok());
    port.expect("an address has a port")
}

/// Starts a run of six clients over two runners, and waits until all are there.
fn begin(folder: &Path, server: &Server, at: &str) -> Process {
    let mut command = streamgauge(["run", "many.yaml", "--runners", "2", "--at", at]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder);
    wait_for_clients(folder, server, 6);
    coordinator
}

#[test]
fn runner_that_is_cut_off_makes_the_run_invalid() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let relay = Relay::start(port_of(&at));
    let around = at.replace(&port_of(&at).to_string(), &relay.port.to_string());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let _one = runner(folder.path(), &at, "one");
    let two = runner(folder.path(), &around, "two");
    scenario(folder.path(), &server.url(), 6, "duration: 300s\n");
    let coordinator = begin(folder.path(), &server, &at);
    relay.open(false);
    let cut = Instant::now();
    let ended = coordinator.finish(PATIENCE).expect(110);
    assert!(cut.elapsed() < ENDED_WITHIN, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("runner two of 2 was lost"),
        "{}",
        ended.stdout
    );
    // The runner cannot be told, and stops its clients by itself.
    wait_for("all clients have left", PATIENCE, || {
        (established(server.port) == 0).then_some(())
    });
    assert!(cut.elapsed() < ENDED_WITHIN);
    let report = Report::read(&folder.path().join("many.json"));
    let lost: Vec<bool> = summaries(&report)
        .iter()
        .map(|one| !one["lost"].is_null())
        .collect();
    assert_eq!(lost, [false, true]);
    // The runner's own run file is whole.
    wait_for("the runner has left the run", PATIENCE, || {
        two.stderr_text().contains("has ended").then_some(())
    });
    let own = folder.path().join("streamgauge-runs");
    let own = std::fs::read_dir(own).expect("it can be read");
    let mut own = own.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = own.find(|name| name.ends_with("-two.sgrun"));
    run(folder.path(), ["report", &own.expect("it has a file")]).expect(0);
    // The next run has both again.
    relay.open(true);
    scenario(folder.path(), &server.url(), 6, "duration: 3s\n");
    let words = ["run", "many.yaml", "--runners", "2", "--at", &at];
    let mut command = streamgauge(words);
    command.args(["-o", "again.run"]);
    Process::start(command, folder.path())
        .finish(PATIENCE)
        .expect(0);
}

#[test]
fn full_log_makes_the_run_invalid() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    // Some seconds of two runners.
    let (_nats, at) = nats_with(folder.path(), "max_file_store: 60KB");
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let _runners = ["one", "two"].map(|name| runner(folder.path(), &at, name));
    scenario(folder.path(), &server.url(), 6, "duration: 300s\n");
    let coordinator = begin(folder.path(), &server, &at);
    let ended = coordinator.finish(PATIENCE).expect(110);
    assert!(ended.stdout.contains("INVALID"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("insufficient resources"),
        "{}",
        ended.stdout
    );
    wait_for("all clients have left", PATIENCE, || {
        (established(server.port) == 0).then_some(())
    });
}

/// Reports wait at NATS, and are read when the coordinator has time again.
#[test]
fn reports_wait_for_a_coordinator_that_stands_still() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let longer = FAULTY.map(|word| if word == "3s" { "10s" } else { word });
    let server = Server::start(folder.path(), &longer);
    let _runners = ["one", "two"].map(|name| runner(folder.path(), &at, name));
    scenario(folder.path(), &server.url(), 6, "");
    let coordinator = begin(folder.path(), &server, &at);
    coordinator.signal("STOP");
    // Shorter than the time after which runners stop by themselves.
    thread::sleep(Duration::from_secs(5));
    coordinator.signal("CONT");
    let ended = coordinator.finish(PATIENCE);
    // Loss is above the implied threshold.
    assert!(
        matches!(ended.status.code(), Some(0 | 99)),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    let (_, sent) = server.stop();
    let report = Report::read(&folder.path().join("many.json"));
    assert_eq!(report.counts(), sent);
}
