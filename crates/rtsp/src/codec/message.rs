//! Requests and responses: parsing and encoding.

use super::{MAX_BODY, MAX_HEADERS, Malformed, Method};
use crate::headers;
pub use kit::http1::Headers;
use kit::http1::{self, FieldError, FieldRules};

/// Returns the sequence number of a message (RFC 2326, 12.17).
pub fn cseq(headers: &Headers) -> Option<u32> {
    headers.get("CSeq").and_then(headers::parse_cseq)
}

/// A request (RFC 2326, 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// Absolute URL, or `*`.
    pub uri: String,
    pub headers: Headers,
    /// Empty if the request has no body.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns a request without headers and body.
    pub fn new(method: Method, uri: impl Into<String>) -> Request {
        Request {
            method,
            uri: uri.into(),
            headers: Headers::new(),
            body: Vec::new(),
        }
    }

    /// Encodes the message. Adds a `Content-Length` header if there is a body and no such header
    /// yet. An existing `Content-Length` is kept, right or wrong.
    pub fn encode(&self) -> Vec<u8> {
        encode(
            &format!("{} {} RTSP/1.0\r\n", self.method, self.uri),
            &self.headers,
            &self.body,
        )
    }
}

/// A response (RFC 2326, 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Reason phrase; may be empty.
    pub reason: String,
    pub headers: Headers,
    /// Empty if the response has no body.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns a response with RFC 2326's reason phrase for the status, without headers and body.
    pub fn new(status: u16) -> Response {
        Response {
            status,
            reason: reason(status).to_owned(),
            headers: Headers::new(),
            body: Vec::new(),
        }
    }

    /// Appends a header.
    pub fn with(mut self, name: &str, value: impl AsRef<str>) -> Response {
        self.headers.push(name, value);
        self
    }

    /// Encodes the message. See [`Request::encode`] for `Content-Length`.
    pub fn encode(&self) -> Vec<u8> {
        encode(
            &format!("RTSP/1.0 {:03} {}\r\n", self.status, self.reason),
            &self.headers,
            &self.body,
        )
    }
}

/// Returns the reason phrase of a status code (RFC 2326, 7.1.1). Empty for unknown codes.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        201 => "Created",
        250 => "Low on Storage Space",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Time-out",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        415 => "Unsupported Media Type",
        451 => "Parameter Not Understood",
        452 => "Conference Not Found",
        453 => "Not Enough Bandwidth",
        454 => "Session Not Found",
        455 => "Method Not Valid in This State",
        456 => "Header Field Not Valid for Resource",
        457 => "Invalid Range",
        458 => "Parameter Is Read-Only",
        459 => "Aggregate Operation Not Allowed",
        460 => "Only Aggregate Operation Allowed",
        461 => "Unsupported Transport",
        462 => "Destination Unreachable",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Time-out",
        505 => "RTSP Version Not Supported",
        551 => "Option Not Supported",
        _ => "",
    }
}

fn encode(start_line: &str, headers: &Headers, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + body.len());
    out.extend_from_slice(start_line.as_bytes());
    for (name, value) in headers.iter() {
        http1::write_field(name, value, &mut out);
    }
    if !body.is_empty() && headers.get("Content-Length").is_none() {
        http1::write_field("Content-Length", &body.len().to_string(), &mut out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// A message whose body has not been added yet.
#[derive(Clone, Debug)]
pub(super) enum Head {
    Request(Request),
    Response(Response),
}

impl Head {
    fn headers_mut(&mut self) -> &mut Headers {
        match self {
            Head::Request(request) => &mut request.headers,
            Head::Response(response) => &mut response.headers,
        }
    }
}

/// Error of [`parse_head`].
#[derive(Debug)]
pub(super) enum HeadError {
    /// The head or the announced body exceeds a limit.
    TooLarge(&'static str),
    /// The head is invalid.
    Malformed(Malformed),
}

/// Parses the head of a message, from the start line to the empty line, and returns it with the
/// length of the body. The caller has checked that the start line is plausible.
pub(super) fn parse_head(head: &[u8]) -> Result<(Head, usize), HeadError> {
    let mut lines = http1::lines(head);
    let start_line = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let malformed = |reason, cseq| Err(HeadError::Malformed(malformed(reason, &start_line, cseq)));
    let Some(mut parsed) = parse_start_line(&start_line) else {
        return malformed("start line", None);
    };
    // Lines without a colon are not headers. They are skipped, as every client does.
    let headers = Headers::parse(lines, FieldRules::Lenient, MAX_HEADERS).map_err(|error| {
        HeadError::TooLarge(match error {
            FieldError::TooMany => "too many headers",
            FieldError::Malformed => unreachable!("lenient rules find no line unreadable"),
        })
    })?;
    // A repeated Content-Length is accepted if all values agree. Different values cannot be
    // trusted.
    let mut length = None;
    for value in headers.all("Content-Length") {
        if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
            return malformed("Content-Length is not a number", cseq(&headers));
        }
        // A number that does not fit is still a number: one that is too large.
        let stated = value.parse::<usize>().unwrap_or(usize::MAX);
        if length.is_some_and(|length| length != stated) {
            return malformed("conflicting values of Content-Length", cseq(&headers));
        }
        length = Some(stated);
    }
    let length = length.unwrap_or(0);
    if length > MAX_BODY {
        return Err(HeadError::TooLarge("body too long"));
    }
    *parsed.headers_mut() = headers;
    Ok((parsed, length))
}

fn malformed(reason: &'static str, start_line: &str, cseq: Option<u32>) -> Malformed {
    let mut end = start_line.len().min(200);
    while !start_line.is_char_boundary(end) {
        end -= 1;
    }
    Malformed {
        reason,
        start_line: start_line[..end].to_owned(),
        cseq,
    }
}

/// Parses a Request-Line or Status-Line (RFC 2326, 6.1 and 7.1).
fn parse_start_line(line: &str) -> Option<Head> {
    if line.starts_with("RTSP/") {
        let (_, rest) = line.split_once(' ')?;
        let rest = rest.trim_start();
        let status: u16 = rest.get(..3)?.parse().ok()?;
        if status < 100 {
            return None;
        }
        return Some(Head::Response(Response {
            status,
            reason: rest[3..].trim().to_owned(),
            headers: Headers::new(),
            body: Vec::new(),
        }));
    }
    let (method, rest) = line.split_once(' ')?;
    let (uri, _version) = rest.trim().rsplit_once(' ')?;
    Some(Head::Request(Request::new(
        Method::from_name(method),
        uri.trim(),
    )))
}
