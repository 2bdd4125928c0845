//! A server that answers as a test demands. It shares no code with the reference server or the
//! client.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The answer of a server without faults.
    Good,
    /// This status, without a body.
    Status(u16),
    /// No answer.
    Silence,
    /// The connection is closed.
    Close,
    /// Bytes that are not RTSP.
    Garbage,
    /// Bytes that look like the start of a message, repeated as fast and as long as they are
    /// accepted.
    Flood,
    /// The answer of a server without faults; after it nothing more is read.
    Deaf,
}

/// Number of requests by method.
type Seen = Arc<Mutex<BTreeMap<String, usize>>>;

/// A scripted server. Its threads end with their connections, which end with the client.
pub(crate) struct Scripted {
    pub(crate) port: u16,
    seen: Seen,
}

const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=scripted\r\nt=0 0\r\na=control:*\r\n\
    a=range:npt=0-60\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:video\r\n";

impl Scripted {
    /// Starts the server. `script` is called with the method of each request.
    pub(crate) fn start(script: fn(&str) -> Answer) -> Scripted {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Seen::default();
        let counter = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || serve(&stream, script, &counter));
            }
        });
        Scripted { port, seen }
    }

    /// Returns the number of requests with this method.
    pub(crate) fn seen(&self, method: &str) -> usize {
        let counts = self.seen.lock().expect("nobody panics with it");
        counts.get(method).copied().unwrap_or(0)
    }

    pub(crate) fn url(&self) -> String {
        format!("rtsp://127.0.0.1:{}/a", self.port)
    }
}

fn serve(stream: &TcpStream, script: fn(&str) -> Answer, seen: &Seen) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        let (mut cseq, mut transport, mut body) = (String::new(), String::new(), 0usize);
        for line in lines.by_ref() {
            let Ok(line) = line else { return };
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            match name.to_ascii_lowercase().as_str() {
                "cseq" => cseq = value.trim().to_owned(),
                "content-length" => body = value.trim().parse().unwrap_or(0),
                "transport" => transport = value.trim().to_owned(),
                _ => {}
            }
        }
        while body > 0 {
            let Some(Ok(line)) = lines.next() else { return };
            body = body.saturating_sub(line.len() + 2);
        }
        let (method, rest) = first.split_once(' ').unwrap_or((&first, ""));
        let url = rest.split(' ').next().unwrap_or_default();
        let mut counts = seen.lock().expect("nobody panics with it");
        *counts.entry(method.to_owned()).or_default() += 1;
        drop(counts);
        let reply = match script(method) {
            Answer::Silence => continue,
            Answer::Close => return,
            Answer::Garbage => "\u{1}\u{2}not RTSP at all\r\n\r\n".repeat(50),
            Answer::Flood => {
                let (flood, mut out) = ("PLAY".repeat(64 * 1024), stream);
                while out.write_all(flood.as_bytes()).is_ok() {}
                return;
            }
            Answer::Status(status) => {
                let challenge = match status {
                    401 => "WWW-Authenticate: Basic realm=\"scripted\"\r\n",
                    _ => "",
                };
                format!("RTSP/1.0 {status} No\r\nCSeq: {cseq}\r\n{challenge}\r\n")
            }
            Answer::Good | Answer::Deaf => good(method, url, &cseq, &transport),
        };
        let mut out = stream;
        if out.write_all(reply.as_bytes()).is_err() {
            return;
        }
        while script(method) == Answer::Deaf {
            thread::park();
        }
    }
}

fn good(method: &str, url: &str, cseq: &str, transport: &str) -> String {
    let head = format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n");
    match method {
        "OPTIONS" => {
            format!("{head}Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n\r\n")
        }
        "DESCRIBE" => format!(
            "{head}Content-Type: application/sdp\r\nContent-Base: {url}/\r\nContent-Length: {}\r\n\r\n{SDP}",
            SDP.len()
        ),
        "SETUP" => {
            let server = match transport.contains("interleaved") {
                true => "",
                false => ";server_port=6970-6971",
            };
            format!("{head}Transport: {transport}{server}\r\nSession: 1;timeout=60\r\n\r\n")
        }
        _ => format!("{head}Session: 1\r\n\r\n"),
    }
}
