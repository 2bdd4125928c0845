//! Small web server that serves pages to browsers and receives their figures, on the loopback
//! interface of the clients' namespace. Its paths contain a secret, so that only these browsers use
//! it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kit::browser::{Figures, PageCommand, PageState};

/// Interval between checks of the stop flag.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Time limit of a request. Browsers open connections that they may never use.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// Maximum lengths of a request's head and body, in bytes.
const HEAD_MAX: usize = 16 << 10;
const BODY_MAX: usize = 1 << 20;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of concurrent connections.
const CONNECTIONS_MAX: usize = 64;

/// Maximum number of queued reports of a page. One arrives per second, and they are taken once per
/// second.
const WAITING_MAX: usize = 16;

#[derive(Debug, Default)]
struct Page {
    html: String,
    /// True once the page has asked for a command.
    runs: bool,
    /// True once the page has left the server or failed.
    is_done: bool,
    reports: Vec<Figures>,
}

#[derive(Debug)]
struct State {
    word: PageCommand,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Shared {
    secret: String,
    state: Mutex<State>,
    ends: AtomicBool,
    connections: AtomicUsize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every single change leaves the state consistent, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the running server. Dropping it stops the server.
#[derive(Debug)]
pub(super) struct PageServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    /// Serves these pages, in the namespace of the calling thread.
    ///
    /// # Errors
    /// No port or no thread is available.
    pub(super) fn start(pages: Vec<String>, secret: String) -> io::Result<PageServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        // The read timeout applies to accept(2) as well (socket(7)).
        socket2::SockRef::from(&listener).set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
        let page = |html| Page {
            html,
            ..Page::default()
        };
        let shared = Arc::new(Shared {
            secret,
            state: Mutex::new(State {
                word: PageCommand::Wait,
                pages: pages.into_iter().map(page).collect(),
            }),
            ends: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("pages".to_owned())
            .spawn(move || serve(&listener, &own))?;
        Ok(PageServer {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// URL of a page.
    pub(super) fn url(&self, page: usize) -> String {
        format!("http://{}/{}/{page}/", self.address, self.shared.secret)
    }

    /// True if the page runs in a browser.
    pub(super) fn runs(&self, page: usize) -> bool {
        self.shared.lock().pages[page].runs
    }

    /// True if the page has left the server or failed.
    pub(super) fn is_done(&self, page: usize) -> bool {
        self.shared.lock().pages[page].is_done
    }

    /// Sets the command that pages receive with their next request.
    pub(super) fn tell(&self, word: PageCommand) {
        self.shared.lock().word = word;
    }

    /// Takes the reports of a page since the last call, oldest first.
    pub(super) fn take(&self, page: usize) -> Vec<Figures> {
        std::mem::take(&mut self.shared.lock().pages[page].reports)
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.ends.load(Ordering::Acquire) {
        let Ok((stream, _)) = listener.accept() else {
            // Without file descriptors each attempt fails at once.
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if shared.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let own = shared.clone();
        let started = std::thread::Builder::new()
            .name("page".to_owned())
            .spawn(move || {
                // A browser whose connection breaks asks again.
                let _ = answer(stream, &own);
                own.connections.fetch_sub(1, Ordering::AcqRel);
            });
        if started.is_err() {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let until = Instant::now() + REQUEST_WITHIN;
    let Some((path, body)) = request(&mut stream, until)? else {
        return Ok(());
    };
    let (status, content) = match respond(&path, &body, shared) {
        Some(content) => ("200 OK", content),
        None => ("404 Not Found", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        content.len()
    );
    stream.set_write_timeout(Some(REQUEST_WITHIN))?;
    stream.write_all((head + &content).as_bytes())
}

fn respond(path: &str, body: &[u8], shared: &Shared) -> Option<String> {
    let mut parts = path.strip_prefix('/')?.split('/');
    if parts.next()? != shared.secret {
        return None;
    }
    let number: usize = parts.next()?.parse().ok()?;
    let mut state = shared.lock();
    let word = state.word.text().to_owned();
    let page = state.pages.get_mut(number)?;
    match (parts.next()?, parts.next()) {
        ("", None) => Some(page.html.clone()),
        ("word", None) => {
            page.runs = true;
            Some(word)
        }
        ("figures", None) => {
            let figures = Figures::parse(body).ok()?;
            page.is_done = matches!(figures.state, PageState::Left | PageState::Failed);
            if page.reports.len() < WAITING_MAX {
                page.reports.push(figures);
            }
            Some(word)
        }
        _ => None,
    }
}

/// Reads the path and the body of a request (RFC 9112). Returns `None` if it is malformed or too
/// long.
fn request(stream: &mut TcpStream, until: Instant) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if bytes.len() > HEAD_MAX || !read_more(stream, until, &mut bytes)? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1));
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>());
    let (Some(path), Ok(length @ 0..=BODY_MAX)) = (path, length) else {
        return Ok(None);
    };
    let mut body = bytes.split_off(end);
    while body.len() < length {
        if !read_more(stream, until, &mut body)? {
            return Ok(None);
        }
    }
    body.truncate(length);
    Ok(Some((path.to_owned(), body)))
}

/// Reads available bytes. Returns `false` at the end of the stream or of the time limit.
fn read_more(stream: &mut TcpStream, until: Instant, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    stream.set_read_timeout(Some(left))?;
    let mut room = [0; 8 << 10];
    let count = stream.read(&mut room)?;
    bytes.extend_from_slice(&room[..count]);
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &PageServer, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[test]
    fn pages_are_served_and_their_reports_queued() {
        let pages = vec!["<p>one".to_owned(), "<p>two".to_owned()];
        let server = PageServer::start(pages, "s3cret".to_owned()).expect("a port");
        assert!(server.url(1).ends_with("/s3cret/1/"));
        assert!(ask(&server, "GET", "/s3cret/1/", "").ends_with("<p>two"));
        assert!(!server.runs(1));
        assert!(ask(&server, "GET", "/s3cret/1/word", "").ends_with("\r\n\r\nwait"));
        assert!(server.runs(1) && !server.runs(0));
        server.tell(PageCommand::Begin);
        for number in 1..=WAITING_MAX + 2 {
            let body = format!(r#"{{"number":{number}}}"#);
            let answer = ask(&server, "POST", "/s3cret/0/figures", &body);
            assert!(answer.ends_with("begin"), "{answer}");
        }
        let reports = server.take(0);
        assert_eq!((reports.len(), reports[0].number), (WAITING_MAX, 1));
        assert!(server.take(0).is_empty());
    }

    #[test]
    fn requests_without_the_secret_get_404() {
        let server =
            PageServer::start(vec!["<p>".to_owned()], "s3cret".to_owned()).expect("a port");
        for path in [
            "/",
            "/0/",
            "/other/0/word",
            "/s3cret/1/",
            "/s3cret/0/x",
            "/s3cret/0/word/x",
            "s3cret",
        ] {
            assert!(ask(&server, "GET", path, "").contains(" 404 "), "{path}");
        }
        assert!(ask(&server, "POST", "/s3cret/0/figures", "nonsense").contains(" 404 "));
        // An incomplete request whose content length exceeds the limit.
        let mut stream = TcpStream::connect(server.address).expect("it listens");
        stream
            .write_all(b"POST /s3cret/0/figures HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
            .expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it closes");
        assert!(answer.is_empty());
    }
}
