//! `--metrics`: serves the figures of the run under way to Prometheus, out of its run file.
//!
//! A thread of its own answers one request after the other; each has two seconds. It reads the run
//! file as any report does, so it shares nothing with the measurement.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use report::prometheus::{CONTENT_TYPE, Scrape};
use report::{Reader, ReportError, io_reason};

use crate::exit::Failure;
use crate::http;

/// Serves the figures of a run until it is dropped.
pub(crate) struct Scraped {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    run_file: Mutex<Option<PathBuf>>,
    over: AtomicBool,
}

/// A run of which figures are given.
struct Open {
    path: PathBuf,
    reader: Reader,
    scrape: Scrape,
}

/// Reads `127.0.0.1:9105`, `[::1]:9105`, or a port alone, which is one of 127.0.0.1.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text
        .parse()
        .map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| {
        "write an address of this machine and a port, such as 127.0.0.1:9105, or a port alone"
            .to_owned()
    })
}

impl Scraped {
    /// Begins to listen. There is no run yet.
    pub(crate) fn start(address: SocketAddr) -> Result<Scraped, Failure> {
        let failed = |error: io::Error| {
            Failure::bad(format_args!(
                "cannot serve metrics at {address}: {}; name another address with `--metrics`",
                io_reason(&error)
            ))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::<Shared>::default();
        let theirs = shared.clone();
        let serve = move || serve(&listener, &theirs);
        let thread = thread::Builder::new().name("metrics".to_owned());
        let thread = Some(thread.spawn(serve).map_err(failed)?);
        Ok(Scraped {
            shared,
            address,
            thread,
        })
    }

    /// Where it is, for people.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// From now on it is about the run of this file, which may not be there yet.
    pub(crate) fn show(&self, run_file: &Path) {
        *self.shared.run_file() = Some(run_file.to_owned());
    }
}

impl Shared {
    fn run_file(&self) -> std::sync::MutexGuard<'_, Option<PathBuf>> {
        self.run_file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Scraped {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        let woken = http::wake(self.address);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, shared: &Shared) {
    let mut open = None;
    for stream in listener.incoming() {
        if shared.over.load(Ordering::Acquire) {
            return;
        }
        match stream {
            // Whoever asks has gone, or is too slow: that is no matter of the run.
            Ok(stream) => drop(answer(stream, shared, &mut open)),
            // There are no descriptors left, or so: not at once again.
            Err(_) => thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared, open: &mut Option<Open>) -> io::Result<()> {
    let (status, kind, body) = match http::head(&mut stream)? {
        None => plain("400 Bad Request", "this is no request of HTTP/1"),
        Some(head) if head.method != "GET" => plain("405 Method Not Allowed", "there is only GET"),
        Some(head) if head.path == "/metrics" => match figures(shared, open) {
            Ok(Some(text)) => ("200 OK", CONTENT_TYPE, text),
            Ok(None) => unavailable("the run has not begun"),
            Err(error) => unavailable(&error.to_string()),
        },
        Some(_) => plain("404 Not Found", "the figures are at /metrics"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.set_write_timeout(Some(http::REQUEST_MAX))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn plain(status: &'static str, text: &str) -> (&'static str, &'static str, String) {
    (status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn unavailable(text: &str) -> (&'static str, &'static str, String) {
    plain("503 Service Unavailable", text)
}

/// The figures of the run under way; none where it has not begun to be kept.
fn figures(shared: &Shared, open: &mut Option<Open>) -> Result<Option<String>, ReportError> {
    let Some(path) = shared.run_file().clone() else {
        return Ok(None);
    };
    if open.as_ref().is_none_or(|open| open.path != path) {
        *open = None;
        if !path.exists() {
            return Ok(None);
        }
        let reader = report::open(&path, engine::catalogue_of)?;
        let scrape = Scrape::new(&reader);
        *open = Some(Open {
            path,
            reader,
            scrape,
        });
    }
    let Some(open) = open else {
        return Ok(None);
    };
    open.scrape.update(&open.reader)?;
    Ok(Some(open.scrape.write()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(
            address("9105"),
            Ok(SocketAddr::from(([127, 0, 0, 1], 9105)))
        );
        assert_eq!(
            address("0.0.0.0:1"),
            Ok(SocketAddr::from(([0, 0, 0, 0], 1)))
        );
        assert!(address("[::1]:9105").is_ok_and(|address| address.is_ipv6()));
        for wrong in ["", ":9105", "localhost:1", "127.0.0.1", "70000"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
