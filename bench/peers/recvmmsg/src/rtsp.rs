//! Minimal RTSP for receiving packets: DESCRIBE, SETUP, PLAY, TEARDOWN.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use crate::kernel;

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum length of the body of an answer.
const LONGEST: usize = 64 * 1024;

/// Next even port to try, below the range of ephemeral ports on Linux.
static NEXT_PORT: AtomicU16 = AtomicU16::new(10_000);

/// A client: its connection and its pair of ports.
pub struct Session {
    control: TcpStream,
    pub media: UdpSocket,
    _reports: UdpSocket,
    url: String,
    session: String,
    requests: u32,
}

struct Answer {
    head: String,
    body: String,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn pair(address: std::net::IpAddr) -> io::Result<(UdpSocket, UdpSocket)> {
    for _ in 0..30_000 {
        let port = NEXT_PORT.fetch_add(2, Relaxed);
        if !(10_000..32_000).contains(&port) {
            NEXT_PORT.store(10_000, Relaxed);
            continue;
        }
        let sockets = UdpSocket::bind((address, port))
            .and_then(|media| Ok((media, UdpSocket::bind((address, port + 1))?)));
        match sockets {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    Err(wrong("no pair of ports is free"))
}

impl Session {
    /// Connects and sets up the first media. The server does not send it before PLAY.
    pub fn set_up(url: &str, drop: bool) -> io::Result<Session> {
        let host = url
            .strip_prefix("rtsp://")
            .and_then(|rest| rest.split('/').next())
            .ok_or_else(|| wrong("not a URL of RTSP"))?;
        let control = TcpStream::connect(host)?;
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(PATIENCE))?;
        control.set_write_timeout(Some(PATIENCE))?;
        let (media, reports) = pair(control.local_addr()?.ip())?;
        if drop {
            kernel::drop_all(media.as_raw_fd())?;
            kernel::drop_all(reports.as_raw_fd())?;
        }
        let port = media.local_addr()?.port();
        let mut session = Session {
            control,
            media,
            _reports: reports,
            url: url.to_owned(),
            session: String::new(),
            requests: 0,
        };
        let described = session.ask("DESCRIBE", url, "Accept: application/sdp\r\n")?;
        let base = described.header("Content-Base").unwrap_or(url).to_owned();
        let control = described
            .body
            .lines()
            .skip_while(|line| !line.starts_with("m="))
            .find_map(|line| line.strip_prefix("a=control:"))
            .ok_or_else(|| wrong("no media in the answer to DESCRIBE"))?;
        let track = if control.contains("://") {
            control.to_owned()
        } else {
            format!("{}/{control}", base.trim_end_matches('/'))
        };
        let transport = format!(
            "Transport: RTP/AVP;unicast;client_port={port}-{}\r\n",
            port + 1
        );
        let answer = session.ask("SETUP", &track, &transport)?;
        session.session = answer
            .header("Session")
            .and_then(|value| value.split(';').next())
            .ok_or_else(|| wrong("no session in the answer to SETUP"))?
            .to_owned();
        session.url = base;
        Ok(session)
    }

    pub fn play(&mut self) -> io::Result<()> {
        let url = self.url.clone();
        self.ask("PLAY", &url, "Range: npt=0.000-\r\n").map(drop)
    }

    fn send(&mut self, method: &str, url: &str, more: &str) -> io::Result<()> {
        self.requests += 1;
        let session = match self.session.as_str() {
            "" => String::new(),
            id => format!("Session: {id}\r\n"),
        };
        let request = format!(
            "{method} {url} RTSP/1.0\r\nCSeq: {}\r\n{session}{more}\r\n",
            self.requests
        );
        self.control.write_all(request.as_bytes())
    }

    fn ask(&mut self, method: &str, url: &str, more: &str) -> io::Result<Answer> {
        self.send(method, url, more)?;
        let answer = self.answer()?;
        let status = answer.head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return Err(wrong(format!("{method}: {status}")));
        }
        Ok(answer)
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        let mut part = [0u8; 4096];
        loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let mut answer = Answer {
                    head,
                    body: String::new(),
                };
                let length = answer.header("Content-Length").map_or(0, |value| {
                    value.parse::<usize>().map_or(0, |value| value.min(LONGEST))
                });
                if bytes.len() >= end + 4 + length {
                    let body = &bytes[end + 4..end + 4 + length];
                    answer.body = String::from_utf8_lossy(body).into_owned();
                    return Ok(answer);
                }
            }
            match self.control.read(&mut part)? {
                0 => return Err(wrong("the server closed the connection")),
                _ if bytes.len() > 2 * LONGEST => return Err(wrong("an endless answer")),
                count => bytes.extend_from_slice(&part[..count]),
            }
        }
    }
}

/// Ends all sessions: sends every TEARDOWN before it waits for an answer.
pub fn tear_down(mut sessions: Vec<Session>) {
    for session in &mut sessions {
        let url = session.url.clone();
        // A server that is gone has ended the session as well.
        let _ = session.send("TEARDOWN", &url, "");
    }
    for session in &mut sessions {
        if session.answer().is_err() {
            return;
        }
    }
}
