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
    pub(super) deadline: Option<Time>,
    /// Connection of the POST, which carries the requests.
    pub(super) post: Option<ChannelId>,
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
        let channel = self.conversation.connection.channel;
        self.ask_http(
            cx,
            channel,
            "GET",
            &cookie,
            [&[("Accept", MEDIA_TYPE)], &[]],
        );
        true
    }

    /// Sends the head of the GET or POST. `first` precedes the cache headers, `last` follows them.
    fn ask_http(
        &self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        method: &str,
        cookie: &str,
        [first, last]: [&[(&str, &str)]; 2],
    ) {
        let version = Version::Http10.name();
        let line = format!("{method} {} {version}", self.url.target());
        let own = [
            ("Host", self.url.authority()),
            ("User-Agent", &self.config.user_agent),
            ("x-sessioncookie", cookie),
        ];
        let not_kept = [("Pragma", "no-cache"), ("Cache-Control", "no-cache")];
        let further: Vec<(&str, &str)> = self.additional_fields().collect();
        cx.out.push_back(Output::Send {
            channel,
            port: Port::Media,
            bytes: http1::write_head(&line, &[&own, first, &not_kept, last, &further].concat()),
        });
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
                let detail = "the head of the answer to GET is too long";
                return self.fail_here(cx, Failure::MessageTooLarge, detail);
            }
        };
        tunnel.head = None;
        tunnel.deadline = None;
        let line = String::from_utf8_lossy(http1::start_line(&head));
        let failure = match http1::parse_status_line(&line) {
            Ok((_, 200..=299, _)) => None,
            Ok((_, status, _)) if status >= 300 => Some(Failure::from_status(status)),
            _ => Some(Failure::MalformedResponse),
        };
        if let Some(failure) = failure {
            return self.fail_here(cx, failure, format!("GET was answered `{line}`"));
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
        let fields: [&[_]; 2] = [
            &[("Content-Type", MEDIA_TYPE)],
            &[("Content-Length", &length)],
        ];
        self.ask_http(cx, channel, "POST", &tunnel.cookie, fields);
    }

    /// Fails the session if GET was not answered in time.
    pub(super) fn overdue_tunnel(&mut self, cx: &mut Context<'_>) {
        let deadline = self.conversation.connection.tunnel_deadline();
        if self.phase == Phase::Connecting && deadline.is_some_and(|deadline| cx.now >= deadline) {
            let detail = format!("GET not answered within {}", self.config.request_timeout);
            self.fail_here(cx, Failure::TimeoutTunnel, detail);
        }
    }
}
