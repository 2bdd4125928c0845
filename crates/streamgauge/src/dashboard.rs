//! `--dashboard`: the page of the run under way, live in a browser, out of its run file.
//!
//! One thread answers requests, another reads the run file and tells every browser what has come
//! (server-sent events). Both only read, so they share nothing with the measurement. Nothing is
//! read while nobody looks, and reading takes a twentieth of one core at most, at a low priority.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use measure::HealthBounds;
use report::html::{Live, write_live};
use report::{Reader, ReportError, io_reason};
use scenario::Scenario;

use crate::exit::Failure;
use crate::http::{self, Head};

/// Where it is unless told otherwise.
pub(crate) const USUAL: &str = "127.0.0.1:9106";
/// How often browsers are told what has come.
const EVERY: Duration = Duration::from_secs(1);
/// How much longer than it takes to tell them the pause after it is at least.
const REST: u32 = 20;
/// How long a browser may take to be told of a change.
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// How many browsers may look on.
const VIEWERS_MAX: usize = 8;
/// How much less urgent its threads are than the measurement (nice(2)).
const NICE: i32 = 10;

/// What keeps a page from being kept, framed, or taken for something else.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
                       Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n";

/// Shows the run under way until it is dropped.
pub(crate) struct Dashboard {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Needed in every request where the address can be reached from other machines.
    token: Option<String>,
    state: Mutex<State>,
    /// Told of new browsers, of a new run, and of the end.
    news: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    run: Option<Run>,
    viewers: Vec<Viewer>,
    /// How many more there are, who are being told something.
    being_told: usize,
}

impl State {
    fn looking_on(&self) -> usize {
        self.viewers.len() + self.being_told
    }
}

/// The run that is shown.
#[derive(Clone, PartialEq)]
struct Run {
    path: PathBuf,
    thresholds: Vec<String>,
    bounds: HealthBounds,
}

struct Viewer {
    stream: TcpStream,
    /// Whether it knows what metrics mean, and what the run has come to so far.
    greeted: bool,
}

/// A run that is being read.
struct Open {
    run: Run,
    reader: Reader,
    live: Live,
    said_end: bool,
}

impl Dashboard {
    /// Begins to listen. There is no run yet.
    pub(crate) fn start(address: SocketAddr) -> Result<Dashboard, Failure> {
        let failed = |error: io::Error| {
            Failure::bad(format_args!(
                "cannot serve the dashboard at {address}: {}; name another address with \
                 `--dashboard=ADDRESS`",
                io_reason(&error)
            ))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let token = match address.ip().is_loopback() {
            true => None,
            false => Some(token().map_err(failed)?),
        };
        let shared = Arc::new(Shared {
            token,
            ..Shared::default()
        });
        let mut threads = Vec::new();
        let theirs = shared.clone();
        let serve = move || serve(&listener, &theirs);
        let named = || thread::Builder::new().name("dashboard".to_owned());
        threads.push(named().spawn(serve).map_err(failed)?);
        let theirs = shared.clone();
        threads.push(named().spawn(move || tell(&theirs)).map_err(failed)?);
        Ok(Dashboard {
            shared,
            address,
            threads,
        })
    }

    /// Where it is, for people.
    pub(crate) fn url(&self) -> String {
        match &self.shared.token {
            Some(token) => format!("http://{}/?token={token}", self.address),
            None => format!("http://{}/", self.address),
        }
    }

    /// From now on it is about the run of this file, which may not be there yet.
    pub(crate) fn show(&self, run_file: &Path, scenario: &Scenario) {
        let thresholds = scenario.thresholds.iter();
        self.shared.state().run = Some(Run {
            path: run_file.to_owned(),
            thresholds: thresholds.map(|one| one.text.clone()).collect(),
            bounds: scenario.tester.health.clone(),
        });
        self.shared.news.notify_all();
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        {
            // With the lock: else it could fall between a look at it and the wait for news.
            let _state = self.shared.state();
            self.shared.over.store(true, Ordering::Release);
        }
        self.shared.news.notify_all();
        if http::wake(self.address) {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether whoever asks may look.
    ///
    /// Without a token the address is one of this machine alone. A page of another site could still
    /// ask it through a name of its own that leads here, so only addresses are answered to.
    fn admits(&self, head: &Head) -> bool {
        if let Some(token) = &self.token {
            let parts = head.query.split('&');
            let mut given = parts.filter_map(|part| part.strip_prefix("token="));
            return given.any(|given| same(given.as_bytes(), token.as_bytes()));
        }
        let Some(host) = &head.host else {
            return false;
        };
        let socket = host.parse::<SocketAddr>().is_ok();
        let name = host
            .rsplit_once(':')
            .map_or(host.as_str(), |(name, _)| name);
        socket
            || name == "localhost"
            || host.parse::<IpAddr>().is_ok()
            || name.parse::<Ipv4Addr>().is_ok()
    }
}

/// Whether they are the same, in a time that does not tell where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differences == 0
}

/// A secret that nobody can guess: 128 bits.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn serve(listener: &TcpListener, shared: &Shared) {
    let _ = rustix::process::nice(NICE);
    for stream in listener.incoming() {
        if shared.is_over() {
            return;
        }
        match stream {
            // Whoever asks has gone, or is too slow: that is no matter of the run.
            Ok(stream) => drop(answer(stream, shared)),
            // There are no descriptors left, or so: not at once again.
            Err(_) => thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let head = http::head(&mut stream)?;
    stream.set_write_timeout(Some(http::REQUEST_MAX))?;
    let refused = |stream: &mut TcpStream, status: &str, text: &str| {
        let kind = "text/plain; charset=utf-8";
        respond(stream, status, kind, format!("{text}\n").as_bytes())
    };
    match head {
        None => refused(
            &mut stream,
            "400 Bad Request",
            "this is no request of HTTP/1",
        ),
        Some(head) if head.method != "GET" => {
            refused(&mut stream, "405 Method Not Allowed", "there is only GET")
        }
        Some(head) if !shared.admits(&head) => refused(
            &mut stream,
            "403 Forbidden",
            "use the address that streamgauge printed",
        ),
        Some(head) if head.path == "/" => {
            let mut page = Vec::new();
            write_live(&mut page).map_err(io::Error::other)?;
            respond(&mut stream, "200 OK", "text/html; charset=utf-8", &page)
        }
        Some(head) if head.path == "/events" => {
            if shared.state().looking_on() >= VIEWERS_MAX {
                return refused(&mut stream, "503 Service Unavailable", "too many look on");
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}\
                 Connection: close\r\n\r\nretry: 2000\n\n"
            );
            stream.write_all(head.as_bytes())?;
            shared.state().viewers.push(Viewer {
                stream,
                greeted: false,
            });
            shared.news.notify_all();
            Ok(())
        }
        Some(_) => refused(&mut stream, "404 Not Found", "the page is at /"),
    }
}

fn respond(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS}\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Tells every browser what has come, until it is over: the last time then.
fn tell(shared: &Shared) {
    let _ = rustix::process::nice(NICE);
    let mut open = None;
    loop {
        let is_last = shared.is_over();
        let begun = Instant::now();
        // What cannot be read now can be a second later.
        let events = news(shared, &mut open).unwrap_or_default();
        // What it takes to send them is the browsers' matter.
        let spent = begun.elapsed();
        if let Some(events) = events {
            send(shared, &events);
        }
        if is_last {
            return;
        }
        rest(shared, (spent * REST).max(EVERY));
    }
}

/// Waits so long, and longer where nobody looks on.
fn rest(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    let mut state = shared.state();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if shared.is_over() || left.is_zero() && !state.viewers.is_empty() {
            return;
        }
        let left = if left.is_zero() { EVERY } else { left };
        let waited = shared.news.wait_timeout(state, left);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
}

/// What browsers are to be told; none where there is nothing new.
struct Events {
    /// For those who have not been told yet what metrics mean.
    definitions: String,
    run: String,
}

fn news(shared: &Shared, open: &mut Option<Open>) -> Result<Option<Events>, ReportError> {
    let (run, viewers) = {
        let state = shared.state();
        (state.run.clone(), state.viewers.len())
    };
    let Some(run) = run.filter(|_| viewers > 0) else {
        return Ok(None);
    };
    if open.as_ref().is_none_or(|open| open.run != run) {
        let reader = report::open(&run.path, engine::catalogue_of)?;
        let live = Live::new(&reader, &run.thresholds, run.bounds.clone())?;
        *open = Some(Open {
            run,
            reader,
            live,
            said_end: false,
        });
        for viewer in &mut shared.state().viewers {
            viewer.greeted = false;
        }
    }
    let Some(open) = open else {
        return Ok(None);
    };
    let news = open.live.update(&open.reader)?;
    let ends = open.reader.is_finished()? && !open.said_end;
    let is_new = |viewer: &Viewer| !viewer.greeted;
    let somebody_new = shared.state().viewers.iter().any(is_new);
    if !news && !ends && !somebody_new {
        return Ok(None);
    }
    open.said_end |= ends;
    Ok(Some(Events {
        run: event("run", &open.live.value(&open.reader)?),
        definitions: event("definitions", &Live::definitions(&open.reader)),
    }))
}

/// Tells all browsers. Whoever takes too long looks on no more; the lock is free meanwhile, because
/// the run waits for it where it ends.
fn send(shared: &Shared, events: &Events) {
    let mut viewers = {
        let mut state = shared.state();
        let viewers = std::mem::take(&mut state.viewers);
        state.being_told = viewers.len();
        viewers
    };
    viewers.retain_mut(|viewer| {
        let until = Instant::now() + TELL_WITHIN;
        let mut told = Ok(());
        if !std::mem::replace(&mut viewer.greeted, true) {
            told = write_until(&mut viewer.stream, events.definitions.as_bytes(), until);
        }
        told.and_then(|()| write_until(&mut viewer.stream, events.run.as_bytes(), until))
            .is_ok()
    });
    let mut state = shared.state();
    state.being_told = 0;
    state.viewers.append(&mut viewers);
}

/// Writes all of it up to then: the time-out of a socket begins anew with each byte that it takes.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// An event as a browser reads it: JSON has no line ends of its own.
fn event(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, query: &str) -> Head {
        Head {
            host: Some(host.to_owned()),
            query: query.to_owned(),
            ..Head::default()
        }
    }

    #[test]
    fn on_this_machine_only_addresses_of_it_are_answered() {
        let shared = Shared::default();
        for host in [
            "127.0.0.1:9106",
            "localhost:9106",
            "[::1]:9106",
            "127.0.0.1",
        ] {
            assert!(shared.admits(&asked(host, "")), "{host}");
        }
        for host in ["evil.example:9106", "evil.example", ""] {
            assert!(!shared.admits(&asked(host, "")), "{host}");
        }
    }

    /// A browser that takes a little now and then is let go in time, and holds nobody up.
    #[test]
    fn a_browser_that_hardly_reads_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let mut slow = TcpStream::connect(address).expect("it listens");
        let (mut stream, _) = listener.accept().expect("it was asked");
        let over = Arc::new(AtomicBool::new(false));
        let theirs = over.clone();
        let reading = thread::spawn(move || {
            let mut some = [0; 4096];
            while !theirs.load(Ordering::Acquire) {
                match slow.read(&mut some) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => thread::park_timeout(Duration::from_millis(20)),
                }
            }
        });
        let much = vec![b'a'; 64 << 20];
        let begun = Instant::now();
        let until = begun + Duration::from_millis(300);
        assert!(write_until(&mut stream, &much, until).is_err());
        assert!(begun.elapsed() < Duration::from_secs(10));
        over.store(true, Ordering::Release);
        drop(stream);
        reading.join().expect("it ends");
    }

    #[test]
    fn from_elsewhere_only_who_knows_the_token_is_answered() {
        let shared = Shared {
            token: Some("abc".to_owned()),
            ..Shared::default()
        };
        assert!(shared.admits(&asked("host:1", "token=abc")));
        for query in ["", "token=", "token=ab", "token=abcd", "token=abd", "abc"] {
            assert!(!shared.admits(&asked("127.0.0.1:1", query)), "{query}");
        }
        let tokens = [(); 2].map(|()| token().expect("there is a source of chance"));
        assert_eq!(tokens[0].len(), 32);
        assert_ne!(tokens[0], tokens[1]);
    }
}
