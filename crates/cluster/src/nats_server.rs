//! A NATS server that is started for the runs of one coordinator, on this machine only.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::bounded;
use sut::{Origin, Ready, ServerSpec, Sut, SutError};
use tempfile::TempDir;

use crate::connection::Access;
use crate::error::ClusterError;

/// The program.
const PROGRAM: &str = "nats-server";

/// Attempts to start it: another program may take its port.
const ATTEMPTS: u32 = 3;

/// Restarts of a server that ends. It keeps its data, so nothing is lost.
const RESTARTS: u32 = 5;

/// Interval between checks whether it runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit for a start.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Name of the only user.
const USER: &str = "streamgauge";

/// A running server. It ends when this is dropped, and also if this process is killed.
#[derive(Debug)]
pub(crate) struct NatsServer {
    access: Access,
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Folder with the configuration and the data of the server.
    _folder: TempDir,
}

impl NatsServer {
    /// Starts it at a free port of 127.0.0.1, with a user whose password is `password`.
    pub(crate) fn start(password: &str) -> Result<NatsServer, ClusterError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match NatsServer::try_start(password) {
                Err(ClusterError::Launch { .. }) if attempts < ATTEMPTS && is_installed() => {}
                result => return result,
            }
        }
    }

    fn try_start(password: &str) -> Result<NatsServer, ClusterError> {
        let folder = tempfile::tempdir();
        let folder = folder.map_err(ClusterError::system("no temporary folder"))?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.map_err(ClusterError::system("no free port"))?.port();
        let path = folder.path().join("nats.conf");
        let written = std::fs::write(&path, configuration(folder.path(), port, password));
        let unwritten = ClusterError::system("cannot write the configuration of NATS");
        written.map_err(unwritten)?;
        let spec = ServerSpec {
            ready: Some(Ready::Text("Server is ready".to_owned())),
            ready_timeout: READY_TIMEOUT,
            ..ServerSpec::new(Origin::Command(vec![
                PROGRAM.into(),
                "-c".into(),
                path.into_os_string(),
            ]))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (started, outcome) = bounded(1);
        let thread = std::thread::Builder::new().name("nats-server".to_owned());
        let stopped = stop.clone();
        // The server belongs to the thread that started it.
        let thread = thread.spawn(move || {
            let begin = || Sut::start_with(&spec, Path::new(""), &sut::Options::default(), &|_| ());
            let mut server = match begin() {
                Ok(server) => server,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(()));
            let mut restarts = 0;
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(CHECK_INTERVAL);
                if server.has_exited().is_some() && restarts < RESTARTS {
                    restarts += 1;
                    match begin() {
                        Ok(again) => server = again,
                        // The connections of its users report the failure.
                        Err(_) => return,
                    }
                }
            }
            server.stop();
        });
        let thread = thread.map_err(ClusterError::system("cannot start a thread"))?;
        let outcome = outcome.recv();
        let failed = |error: SutError| ClusterError::Launch {
            what: PROGRAM.to_owned(),
            why: match is_installed() {
                true => error.to_string(),
                false => {
                    "it is not installed: `apt install nats-server`, or name a server with `--at`"
                        .to_owned()
                }
            },
        };
        outcome.unwrap_or(Ok(())).map_err(failed)?;
        let access = Access::new(&format!("nats://127.0.0.1:{port}"))?;
        Ok(NatsServer {
            access: Access {
                user: Some((USER.to_owned(), password.to_owned())),
                ..access
            },
            port,
            stop,
            thread: Some(thread),
            _folder: folder,
        })
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Address for a runner that reaches the server at this port of its own machine. It contains
    /// the password.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let user = self.access.user.as_ref();
        let password = user.map_or("", |(_, password)| password);
        format!("nats://{USER}:{password}@127.0.0.1:{port}")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn configuration(folder: &Path, port: u16, password: &str) -> String {
    // By default it listens on all addresses and knows no password.
    format!(
        "listen: \"127.0.0.1:{port}\"\n\
         max_payload: 1048576\n\
         jetstream {{ store_dir: \"{}\" }}\n\
         authorization {{ user: \"{USER}\", password: \"{password}\" }}\n",
        folder.join("data").display()
    )
}

/// Returns `true` if the program is in PATH.
fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file())
}
