//! WebSocket opening handshake (RFC 6455, 4) with the choice of a subprotocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::auth;
use crate::http1::{
    self, FieldRules, HeadReader, Headers, ResponseDecoder, ResponseItem, TooLong, Url, Version,
};
use crate::url::{UrlError, UrlProblem};
use session::seeds::derive_seed;

/// GUID that the server appends to the client's key (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Maximum length of a request in bytes.
const REQUEST_MAX: usize = 16 * 1024;

/// Field of subprotocols (RFC 6455, 11.3.4).
const PROTOCOL: &str = "Sec-WebSocket-Protocol";

/// Field of extensions (RFC 6455, 11.3.2).
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";

/// Parses `ws://host/chat` or `wss://host/chat` (RFC 6455, 3) and returns the corresponding HTTP
/// URL.
///
/// # Errors
/// If the URL is invalid.
pub fn parse_url(url: &str) -> Result<Url, UrlError> {
    match crate::url::scheme(url)?.as_str() {
        "ws" | "wss" => {}
        _ => {
            let why = UrlProblem::Scheme {
                kind: "WebSocket URL",
                schemes: "ws:// or wss://",
            };
            return Err(why.error_for(url));
        }
    }
    // Apart from the scheme, the URL is an HTTP URL; a final `s` of the scheme means TLS.
    let like = format!("http{}", &url["ws".len()..]);
    Url::parse(&like).map_err(|error| error.why.error_for(url))
}

/// Client side of the handshake.
#[derive(Debug)]
pub struct ClientHandshake {
    decoder: ResponseDecoder,
    accept: String,
    offered: Vec<String>,
    protocol: Option<String>,
    status: Option<u16>,
}

/// Maximum number of bytes quoted from the body of a refusal.
const QUOTE_BYTES_MAX: usize = 200;

impl ClientHandshake {
    /// Header fields that the handshake sets itself.
    pub const OWN_FIELDS: [&str; 9] = [
        "Host",
        "Connection",
        "Upgrade",
        "Sec-WebSocket-Key",
        "Sec-WebSocket-Version",
        PROTOCOL,
        EXTENSIONS,
        "Content-Length",
        "Transfer-Encoding",
    ];

    /// Starts a handshake and returns it with its request. `protocols` are the client's
    /// subprotocols, preferred ones first (RFC 6455, 1.9). Random values follow from `seed`.
    pub fn begin(url: &Url, protocols: &[&str], seed: u64) -> (ClientHandshake, Vec<u8>) {
        ClientHandshake::begin_with(url, protocols, &[], seed)
    }

    /// Starts a handshake with additional header fields. A `User-Agent` among them replaces the
    /// default, an `Authorization` the URL's credentials. None of them may be in
    /// [`ClientHandshake::OWN_FIELDS`].
    pub fn begin_with(
        url: &Url,
        protocols: &[&str],
        further: &[(&str, &str)],
        seed: u64,
    ) -> (ClientHandshake, Vec<u8>) {
        let is_further = |wanted: &str| {
            let mut names = further.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&derive_seed(&[seed, 11]).to_be_bytes());
        nonce[8..].copy_from_slice(&derive_seed(&[seed, 12]).to_be_bytes());
        let key = STANDARD.encode(nonce);
        let credentials = url.user_info().map(auth::basic);
        let credentials = credentials.filter(|_| !is_further("Authorization"));
        let offered = protocols.join(", ");
        let mut headers = vec![
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", key.as_str()),
            ("Sec-WebSocket-Version", "13"),
        ];
        if !is_further("User-Agent") {
            headers.push((
                "User-Agent",
                concat!("streamgauge/", env!("CARGO_PKG_VERSION")),
            ));
        }
        if !offered.is_empty() {
            headers.push((PROTOCOL, &offered));
        }
        if let Some(credentials) = &credentials {
            headers.push(("Authorization", credentials));
        }
        headers.extend_from_slice(further);
        let request = http1::write_request("GET", url, Version::Http11, &headers);
        let upgrade = ClientHandshake {
            decoder: ResponseDecoder::new(),
            accept: accept_of(key.as_bytes()),
            offered: protocols.iter().map(|&name| name.to_owned()).collect(),
            protocol: None,
            status: None,
        };
        (upgrade, request)
    }

    /// Status of the server's response; `None` before it.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Subprotocol that the server chose; `None` before the response, or if it chose none.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Consumes bytes of the response from `bytes`. Returns `true` once the handshake is complete;
    /// the bytes after it stay in `bytes`.
    ///
    /// # Errors
    /// If the response does not accept the handshake; the text quotes the beginning of its body.
    pub fn read_response(&mut self, bytes: &mut &[u8]) -> Result<bool, String> {
        let mut at = 0;
        let item = self
            .decoder
            .next(bytes, &mut at)
            .map_err(|malformed| malformed.to_string())?;
        let head = match item {
            Some(ResponseItem::Head(head)) => head,
            Some(_) => return Err("response body without a head".to_owned()),
            None => {
                *bytes = &[];
                return Ok(false);
            }
        };
        self.status = Some(head.status);
        if head.status != 101 {
            let mut text = format!("server answered {} {}", head.status, head.reason);
            if let Ok(Some(ResponseItem::Body { bytes: words, .. })) =
                self.decoder.next(bytes, &mut at)
            {
                let words = String::from_utf8_lossy(&words[..words.len().min(QUOTE_BYTES_MAX)]);
                let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
                text += &format!(": {words}");
            }
            return Err(text);
        }
        *bytes = &bytes[at..];
        if !head.headers.contains_token("Upgrade", "websocket") {
            return Err("101 response without `Upgrade: websocket`".to_owned());
        }
        if !head.headers.contains_token("Connection", "Upgrade") {
            return Err("101 response without `Connection: Upgrade`".to_owned());
        }
        let unasked = |name: &str, chosen: &str| {
            Err(format!(
                "server chose `{name}: {chosen}`, which was not offered"
            ))
        };
        // The request offers no extension (RFC 6455, 4.1).
        if let Some(extension) = head.headers.list(EXTENSIONS).next() {
            return unasked(EXTENSIONS, extension);
        }
        let mut chosen = head.headers.list(PROTOCOL);
        let protocol = chosen.next();
        // Some servers repeat the field. Two different choices are an error (RFC 6455, 11.3.4).
        if let Some(other) = chosen.find(|&other| Some(other) != protocol) {
            return Err(format!(
                "server chose two subprotocols, `{}` and `{other}`",
                protocol.unwrap_or_default()
            ));
        }
        match protocol {
            Some(protocol) if !self.offered.iter().any(|own| own == protocol) => {
                return unasked(PROTOCOL, protocol);
            }
            protocol => self.protocol = protocol.map(str::to_owned),
        }
        match head.headers.get("Sec-WebSocket-Accept") {
            Some(accept) if accept == self.accept => Ok(true),
            _ => Err("`Sec-WebSocket-Accept` does not match the key".to_owned()),
        }
    }
}

/// Server side of the handshake.
#[derive(Debug)]
pub struct ServerHandshake {
    request: HeadReader,
    known: Vec<String>,
    protocol: Option<String>,
}

impl Default for ServerHandshake {
    fn default() -> ServerHandshake {
        ServerHandshake::new(&[])
    }
}

impl ServerHandshake {
    /// Creates a handshake of a server with these subprotocols.
    pub fn new(protocols: &[&str]) -> ServerHandshake {
        ServerHandshake {
            request: HeadReader::new(REQUEST_MAX),
            known: protocols.iter().map(|&name| name.to_owned()).collect(),
            protocol: None,
        }
    }

    /// The chosen subprotocol: the first one offered by the client that the server knows. `None`
    /// before the response, or if there is none.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Consumes bytes of the request from `bytes`. Returns the response once the request is
    /// complete; the bytes after it stay in `bytes`.
    ///
    /// # Errors
    /// If the request is too long or has no key.
    pub fn read_request(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        match self.request.read(bytes) {
            Ok(Some(request)) => self.answer(&request).map(Some),
            Ok(None) => Ok(None),
            Err(TooLong) => Err("request head too long"),
        }
    }

    /// Returns the response to a request without the empty line at its end.
    fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, &'static str> {
        const NO_KEY: &str = "request without `Sec-WebSocket-Key`";
        let lines = http1::lines(request).skip(1);
        let asked = Headers::parse(lines, FieldRules::Lenient, usize::MAX).map_err(|_| NO_KEY)?;
        let key = asked.get("Sec-WebSocket-Key").ok_or(NO_KEY)?;
        self.protocol = asked
            .list(PROTOCOL)
            .find(|name| self.known.iter().any(|known| known == name))
            .map(str::to_owned);
        let accept = accept_of(key.as_bytes());
        let mut fields = vec![
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept.as_str()),
        ];
        if let Some(protocol) = &self.protocol {
            fields.push((PROTOCOL, protocol));
        }
        Ok(http1::write_head(
            "HTTP/1.1 101 Switching Protocols",
            &fields,
        ))
    }
}

fn accept_of(key: &[u8]) -> String {
    STANDARD.encode(Sha1::digest([key, GUID].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mediagen::steps;

    #[test]
    fn accept_value_matches_the_rfc_example() {
        // RFC 6455, 1.3.
        assert_eq!(
            accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn websocket_urls_map_to_http_urls() {
        for (url, like) in [
            ("ws://u:p@h/chat?a", "http://h/chat?a"),
            ("WSS://[::1]:7", "https://[::1]:7/"),
            ("wsS://h", "https://h/"),
        ] {
            let url = parse_url(url).expect(url);
            assert_eq!(
                (url.to_string().as_str(), url.is_secure()),
                (like, like.starts_with("https"))
            );
        }
        for (wrong, why) in [
            ("http://h", "ws:// or wss://"),
            ("wsss://h", "ws:// or wss://"),
            ("h", "ws:// or wss://"),
            ("ws://u:secret@h:0/", "`ws://h:0/` has a port"),
        ] {
            let error = parse_url(wrong).expect_err(wrong).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn client_and_server_complete_the_handshake() {
        let url = Url::parse("http://h:9000/chat?x=1").expect("a URL");
        let (mut client, request) = ClientHandshake::begin(&url, &[], 3);
        let mut server = ServerHandshake::default();
        let (first, last) = request.split_at(request.len() - 1);
        assert_eq!(server.read_request(&mut &*first), Ok(None));
        let last = [last, b"more"].concat();
        let mut rest = &last[..];
        let answer = server.read_request(&mut rest).expect("a valid request");
        let answer = answer.expect("the request is complete");
        assert_eq!(rest, b"more");
        let with_more = [&answer[..], b"frames"].concat();
        let (mut first, mut rest) = with_more.split_at(20);
        assert_eq!(client.read_response(&mut first), Ok(false));
        assert_eq!(client.read_response(&mut rest), Ok(true));
        assert_eq!(rest, b"frames");
    }

    /// Subprotocols that the client and the server have chosen.
    fn negotiate(offered: &[&str], known: &[&str]) -> (Option<String>, Option<String>) {
        let url = Url::parse("http://h/").expect("a URL");
        let (mut client, request) = ClientHandshake::begin(&url, offered, 3);
        let mut server = ServerHandshake::new(known);
        let answer = server
            .read_request(&mut &*request)
            .expect("a valid request");
        let answer = answer.expect("the request is complete");
        assert_eq!(client.read_response(&mut &*answer), Ok(true));
        let own = |name: Option<&str>| name.map(str::to_owned);
        (own(client.protocol()), own(server.protocol()))
    }

    #[test]
    fn first_subprotocol_known_to_both_is_chosen() {
        let both = |name: &str| (Some(name.to_owned()), Some(name.to_owned()));
        assert_eq!(
            negotiate(&["janus-protocol"], &["janus-protocol"]),
            both("janus-protocol")
        );
        assert_eq!(negotiate(&["a", "b", "c"], &["c", "b"]), both("b"));
        for (offered, known) in [(&["a"][..], &["A"][..]), (&["a"], &[]), (&[], &["a"])] {
            assert_eq!(negotiate(offered, known), (None, None));
        }
    }

    #[test]
    fn additional_fields_replace_default_ones() {
        let url = Url::parse("http://u:p@h/").expect("a URL");
        let request = |further: &[(&str, &str)]| {
            let (_, request) = ClientHandshake::begin_with(&url, &["a"], further, 3);
            String::from_utf8(request).expect("text")
        };
        let usual = request(&[("Origin", "https://o")]);
        for field in [
            "Origin: https://o",
            "User-Agent: streamgauge/",
            "Authorization: Basic",
        ] {
            assert!(usual.contains(&format!("\r\n{field}")), "{usual}");
        }
        let own = request(&[("authorization", "Bearer x"), ("user-agent", "y")]);
        assert!(
            own.contains("\r\nauthorization: Bearer x\r\nuser-agent: y\r\n"),
            "{own}"
        );
        assert!(
            !own.contains("Basic") && !own.contains("streamgauge"),
            "{own}"
        );
    }

    #[test]
    fn subprotocol_that_was_not_offered_is_rejected() {
        let url = Url::parse("http://h/").expect("a URL");
        for offered in [&[][..], &["a", "b"]] {
            let (mut client, request) = ClientHandshake::begin(&url, offered, 3);
            let request = String::from_utf8(request).expect("text");
            let says = request.contains("Sec-WebSocket-Protocol: a, b\r\n");
            assert_eq!(says, !offered.is_empty(), "{request}");
            let answer = "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                          Sec-WebSocket-Protocol: c\r\n\r\n";
            let error = client.read_response(&mut answer.as_bytes());
            let error = error.expect_err("it was not offered");
            assert!(error.contains("Protocol: c`"), "{error}");
        }
    }

    #[test]
    fn lists_in_the_response_may_span_lines() {
        let url = Url::parse("http://h/").expect("a URL");
        let answered = |fields: &str| {
            let (mut client, _) = ClientHandshake::begin(&url, &["a", "b"], 3);
            let accept = client.accept.clone();
            let answer =
                format!("HTTP/1.1 101 Yes\r\n{fields}Sec-WebSocket-Accept: {accept}\r\n\r\n");
            let whole = client.read_response(&mut answer.as_bytes())?;
            assert!(whole);
            Ok::<_, String>(client.protocol().map(str::to_owned))
        };
        let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
        for fields in [
            "Connection: keep-alive\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
            "Connection: Upgrade\r\nUpgrade: websocket\r\nConnection: keep-alive\r\n",
            "Upgrade: h2c\r\nUpgrade: WebSocket\r\nConnection: x,, upgrade\r\n",
            &format!("{upgrade}Sec-WebSocket-Protocol:\r\nSec-WebSocket-Extensions: ,\r\n"),
        ] {
            assert_eq!(answered(fields), Ok(None), "{fields}");
        }
        let chosen = |fields: &str| answered(&format!("{upgrade}{fields}"));
        let twice = "Sec-WebSocket-Protocol: b\r\nSec-WebSocket-Protocol: b\r\n";
        assert_eq!(chosen(twice), Ok(Some("b".to_owned())));
        for (fields, why) in [
            (
                "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n",
                "two",
            ),
            (
                "Sec-WebSocket-Protocol:\r\nSec-WebSocket-Protocol: c\r\n",
                "c`",
            ),
            (
                "Sec-WebSocket-Extensions:\r\nSec-WebSocket-Extensions: z\r\n",
                "z`",
            ),
        ] {
            let error = chosen(fields).expect_err(fields);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn invalid_handshakes_are_rejected() {
        let url = Url::parse("http://h/").expect("a URL");
        for (answer, why) in [
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                "404 Not Found",
            ),
            ("HTTP/1.1 101 Yes\r\n\r\n", "without"),
            (
                "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
                "Connection",
            ),
            (
                "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
                "match",
            ),
            (
                "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
                "deflate",
            ),
            ("SSH-2.0-OpenSSH\r\n", "HTTP"),
        ] {
            let (mut client, _) = ClientHandshake::begin(&url, &[], 3);
            let error = client
                .read_response(&mut answer.as_bytes())
                .expect_err("an invalid response");
            assert!(error.contains(why), "{error}");
        }
        let accept = |request: &[u8]| ServerHandshake::default().read_request(&mut &*request);
        assert!(accept(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").is_err());
        assert!(accept(&[b'a'; REQUEST_MAX + 1]).is_err());
        assert_eq!(accept(&[b'a'; REQUEST_MAX - 1]), Ok(None));
    }

    #[test]
    fn requests_are_read_in_linear_time() {
        for request in [
            "GET / HTTP/1.1\r\nSec-WebSocket-Key: x\r\n\r\n".to_owned(),
            "\r".to_owned(),
            format!("{}\r\n\r\n", "a:b\r\n".repeat(3000)),
        ] {
            let make = |size| request.bytes().cycle().take(size).collect();
            steps::assert_linear("a handshake", 40, make, |pieces| {
                let mut server = ServerHandshake::default();
                // A new handshake continues, as for the next client.
                for piece in pieces.flat_map(|piece| piece.chunks(500)) {
                    if !matches!(server.read_request(&mut &*piece), Ok(None)) {
                        server = ServerHandshake::default();
                    }
                }
            });
        }
    }
}
