//! RTSP tunnelled over HTTP, for networks that block everything else. Messages of the server arrive
//! as the endless answer to a GET; requests are sent in base64 as the endless body of a POST. A
//! cookie tells the server which two connections belong together. No RFC describes this. Apple's
//! QuickTime Streaming Server introduced it, and cameras, GStreamer and others support it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use measure::Time;
use rand::Rng;

use super::{Client, Phase};
use crate::config::Transport;
use crate::failure::Failure;
use kit::http1::{self, HeadReader, TooLong, Version};
use session::{ArrivalTimes, ChannelId, Context, Output, Port};

/// Maximum length of the head of the answer to GET, including the empty line at its end.
const GET_HEAD_MAX: usize = 8 * 1024 + 4;

/// Media type of both bodies.
const MEDIA_TYPE: &str = "application/x-rtsp-tunnelled";

/// `Content-Length` of the POST. The body is endless, so no value would be right, and no server
/// checks it.
const POST_CONTENT_LENGTH: u32 = 32_767;

/// Second connection and state of a tunnel.
#[derive(Debug)]
pub(super) struct Tunnel {
    cookie: String,
    /// Head of the answer to GET. `None` once it is complete.
    head: Option<HeadReader>,
    /// Deadline of the answer to GET.
    deadline: Option<Time>,
    /// Connection of the POST.
    post: Option<ChannelId>,
}

impl Tunnel {
    /// Returns the connection of the POST, which carries the requests.
    pub(super) fn post(&self) -> Option<ChannelId> {
        self.post
    }

    /// Returns the deadline of the answer to GET.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

impl Client {
    /// Returns the tunnel for a new connection, if the transport is HTTP.
    pub(super) fn new_tunnel(&mut self) -> Option<Tunnel> {
        (self.config.transport == Transport::Http).then(|| Tunnel {
            cookie: format!("{:016x}", self.random.next_u64()),
            head: Some(HeadReader::new(GET_HEAD_MAX)),
            deadline: None,
            post: None,
        })
    }

    /// Sends bytes to the server: a request, or an interleaved frame.
    pub(super) fn send_bytes(&self, cx: &mut Context<'_>, bytes: Vec<u8>) {
        let (channel, bytes) = match &self.conversation.connection.tunnel {
            Some(Tunnel {
                post: Some(post), ..
            }) => (*post, STANDARD.encode(bytes).into_bytes()),
            _ => (self.conversation.connection.channel, bytes),
        };
        cx.out.push_back(Output::Send {
            channel,
            port: Port::Media,
            bytes,
        });
    }

    /// Sends GET on the first connection of a tunnel. Returns `false` if there is no tunnel.
    pub(super) fn send_get(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(tunnel) = &mut self.conversation.connection.tunnel else {
            return false;
        };
        tunnel.deadline = Some(cx.now + self.config.request_timeout.0);
        let cookie = tunnel.cookie.clone();
        let asked = self.ask_http("GET", &cookie, &[("Accept", MEDIA_TYPE)], &[]);
        cx.out.push_back(Output::Send {
            channel: self.conversation.connection.channel,
            port: Port::Media,
            bytes: asked,
        });
        true
    }

    /// Formats the head of the GET or POST. `first` precedes the cache headers, `last` follows
    /// them.
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
        let further: Vec<(&str, &str)> = self.additional_fields().collect();
        http1::write_head(&line, &[&own, first, &not_kept, last, &further].concat())
    }

    /// Returns whether the head of the answer to GET is still incomplete.
    pub(super) fn awaits_get_answer(&self) -> bool {
        let tunnel = self.conversation.connection.tunnel.as_ref();
        tunnel.is_some_and(|tunnel| tunnel.head.is_some())
    }

    /// Handles bytes of the answer to GET, and the bytes after its head.
    pub(super) fn on_get_bytes(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        times: ArrivalTimes<'_>,
    ) {
        let Some(tunnel) = &mut self.conversation.connection.tunnel else {
            return;
        };
        let Some(head) = &mut tunnel.head else { return };
        let mut rest = bytes;
        let head = match head.read(&mut rest) {
            Ok(Some(head)) => head,
            Ok(None) => return,
            Err(TooLong) => {
                let detail = format!(
                    "the head of the answer to GET is too long, {}",
                    self.describe_addresses()
                );
                return self.fail(cx, Failure::MessageTooLarge, detail);
            }
        };
        tunnel.head = None;
        tunnel.deadline = None;
        let line = String::from_utf8_lossy(http1::start_line(&head));
        let status = http1::parse_status_line(&line).ok();
        let status = status.map(|(_, status, _)| status);
        let detail = format!("GET was answered `{line}`, {}", self.describe_addresses());
        match status {
            Some(200..=299) => {}
            Some(status) if status >= 300 => {
                return self.fail(cx, Failure::from_status(status), detail);
            }
            _ => return self.fail(cx, Failure::MalformedResponse, detail),
        }
        let post = self.new_channel();
        if let Some(tunnel) = &mut self.conversation.connection.tunnel {
            tunnel.post = Some(post);
        }
        let open = self.server_open();
        cx.out.push_back(Output::Open {
            channel: post,
            open,
        });
        if !rest.is_empty() {
            let (at, _) = times.clone().arrival_of(bytes.len());
            self.bytes(cx, rest, ArrivalTimes::new(&[], at));
        }
    }

    /// Sends POST, now that the second connection is open.
    pub(super) fn send_post(&mut self, cx: &mut Context<'_>) {
        let Some(tunnel) = &self.conversation.connection.tunnel else {
            return;
        };
        let Some(channel) = tunnel.post else { return };
        let length = POST_CONTENT_LENGTH.to_string();
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

    /// Fails the session if GET was not answered in time.
    pub(super) fn overdue_tunnel(&mut self, cx: &mut Context<'_>) {
        let deadline = self.conversation.connection.tunnel_deadline();
        if self.phase == Phase::Connecting && deadline.is_some_and(|deadline| cx.now >= deadline) {
            let detail = format!(
                "GET not answered within {}, {}",
                self.config.request_timeout,
                self.describe_addresses()
            );
            self.fail(cx, Failure::TimeoutTunnel, detail);
        }
    }
}
