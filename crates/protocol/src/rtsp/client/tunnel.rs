//! RTSP tunnelled over HTTP, for networks that let nothing else through: what the server says comes
//! as the endless answer to a GET, what the client says goes as the endless body of a POST, in
//! base64; a cookie tells the server which two belong together. No RFC describes it; Apple's
//! QuickTime Streaming Server began it, and cameras, GStreamer and others speak it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use measure::Time;
use rand::Rng;

use super::{Client, Phase};
use crate::http1::{self, HeadReader, TooLong, Version};
use crate::rtsp::config::Transport;
use crate::rtsp::failure::Failure;
use crate::session::{ChannelId, Context, Output, Port, Times};

/// The longest head of an answer to GET, the empty line at its end included.
const MOST_HEAD: usize = 8 * 1024 + 4;

/// What both bodies hold.
const MEDIA_TYPE: &str = "application/x-rtsp-tunnelled";

/// What the body of POST is said to be long. It is not: nobody counts, and no length would do.
const SAID_LENGTH: u32 = 32_767;

/// The second connection, and how far the tunnel is.
#[derive(Debug)]
pub(super) struct Tunnel {
    cookie: String,
    /// What has come of the answer to GET; nothing once it is whole.
    head: Option<HeadReader>,
    /// Until when the answer is waited for.
    deadline: Option<Time>,
    /// The connection of POST.
    post: Option<ChannelId>,
}

impl Tunnel {
    /// The connection over which requests go.
    pub(super) fn post(&self) -> Option<ChannelId> {
        self.post
    }

    /// Until when the answer to GET is waited for.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

impl Client {
    /// The tunnel that a new connection is to be part of, if it is to be.
    pub(super) fn new_tunnel(&mut self) -> Option<Tunnel> {
        (self.config.transport == Transport::Http).then(|| Tunnel {
            cookie: format!("{:016x}", self.random.next_u64()),
            head: Some(HeadReader::new(MOST_HEAD)),
            deadline: None,
            post: None,
        })
    }

    /// Sends bytes to the server: a request, or a frame.
    pub(super) fn put(&self, cx: &mut Context<'_>, bytes: Vec<u8>) {
        let (channel, bytes) = match &self.connection.tunnel {
            Some(Tunnel {
                post: Some(post), ..
            }) => (*post, STANDARD.encode(bytes).into_bytes()),
            _ => (self.connection.channel, bytes),
        };
        cx.out.push_back(Output::Send {
            channel,
            port: Port::Media,
            bytes,
        });
    }

    /// Asks for the way back, on the first connection of a tunnel; says whether it is one.
    pub(super) fn ask_get(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(tunnel) = &mut self.connection.tunnel else {
            return false;
        };
        tunnel.deadline = Some(cx.now + self.config.request_timeout.0);
        let cookie = tunnel.cookie.clone();
        let asked = self.ask_http("GET", &cookie, &[("Accept", MEDIA_TYPE)], &[]);
        cx.out.push_back(Output::Send {
            channel: self.connection.channel,
            port: Port::Media,
            bytes: asked,
        });
        true
    }

    /// The head of one of the two requests: fields that both have stand between `first` and `last`.
    fn ask_http(
        &self,
        method: &str,
        cookie: &str,
        first: &[(&str, &str)],
        last: &[(&str, &str)],
    ) -> Vec<u8> {
        let version = Version::Http10.name();
        let line = format!("{method} {} {version}", self.url.target());
        let own = [
            ("Host", self.url.authority()),
            ("User-Agent", &self.config.user_agent),
            ("x-sessioncookie", cookie),
        ];
        let not_kept = [("Pragma", "no-cache"), ("Cache-Control", "no-cache")];
        http1::write_head(&line, &[&own, first, &not_kept, last].concat())
    }

    /// Whether what comes is still the answer to GET.
    pub(super) fn hears_get(&self) -> bool {
        let tunnel = self.connection.tunnel.as_ref();
        tunnel.is_some_and(|tunnel| tunnel.head.is_some())
    }

    /// Takes in what comes of the answer to GET, and what comes after it.
    pub(super) fn get_answered(&mut self, cx: &mut Context<'_>, bytes: &[u8], times: Times<'_>) {
        let Some(tunnel) = &mut self.connection.tunnel else {
            return;
        };
        let Some(head) = &mut tunnel.head else { return };
        let mut rest = bytes;
        let head = match head.take(&mut rest) {
            Ok(Some(head)) => head,
            Ok(None) => return,
            Err(TooLong) => {
                let detail = format!("an answer to GET without an end, {}", self.ends());
                return self.fail(cx, Failure::MessageTooLarge, detail);
            }
        };
        tunnel.head = None;
        tunnel.deadline = None;
        let line = String::from_utf8_lossy(http1::start_line(&head));
        let status = http1::parse_status_line(&line).ok();
        let status = status.map(|(_, status, _)| status);
        let detail = format!("`{line}` to GET, {}", self.ends());
        match status {
            Some(200..=299) => {}
            Some(status) if status >= 300 => {
                return self.fail(cx, Failure::of_status(status), detail);
            }
            _ => return self.fail(cx, Failure::MalformedResponse, detail),
        }
        let post = self.new_channel();
        if let Some(tunnel) = &mut self.connection.tunnel {
            tunnel.post = Some(post);
        }
        let open = self.open_to_server();
        cx.out.push_back(Output::Open {
            channel: post,
            open,
        });
        if !rest.is_empty() {
            let (at, _) = times.clone().of(bytes.len());
            self.bytes(cx, rest, Times::new(&[], at));
        }
    }

    /// Begins the way there, now that the second connection stands.
    pub(super) fn begin_post(&mut self, cx: &mut Context<'_>) {
        let Some(tunnel) = &self.connection.tunnel else {
            return;
        };
        let Some(channel) = tunnel.post else { return };
        let length = SAID_LENGTH.to_string();
        let asked = self.ask_http(
            "POST",
            &tunnel.cookie,
            &[("Content-Type", MEDIA_TYPE)],
            &[("Content-Length", &length)],
        );
        cx.out.push_back(Output::Send {
            channel,
            port: Port::Media,
            bytes: asked,
        });
    }

    /// Gives the tunnel up where GET was not answered in time.
    pub(super) fn overdue_tunnel(&mut self, cx: &mut Context<'_>) {
        let deadline = self.connection.tunnel.as_ref().and_then(Tunnel::deadline);
        if self.phase == Phase::Connecting && deadline.is_some_and(|deadline| cx.now >= deadline) {
            let detail = format!(
                "GET not answered within {}, {}",
                self.config.request_timeout,
                self.ends()
            );
            self.fail(cx, Failure::TimeoutTunnel, detail);
        }
    }
}
