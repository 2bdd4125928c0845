//! Requests to the reference server, and their answers (RFC 2326, 10 and A.2).

use std::net::IpAddr;

use super::sdp;
use super::session::{RtspSession, ServerSession};
use crate::codec::{self, Method, Request, Response};
use crate::describe::track_name;
use crate::headers::{SessionHeader, write_methods};
use kit::auth::Verdict;
use session::Context;

/// Methods that the server supports.
pub(super) const METHODS: [Method; 10] = [
    Method::Options,
    Method::Describe,
    Method::Announce,
    Method::Setup,
    Method::Play,
    Method::Record,
    Method::Pause,
    Method::GetParameter,
    Method::SetParameter,
    Method::Teardown,
];

/// Stream and track that a request's URL names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// URL of the stream, without the segment of the track and a trailing slash.
    pub(super) base: &'a str,
    /// Path of the stream, beginning with a slash.
    pub(super) path: &'a str,
    /// Index of the track; `None` for all tracks of the stream.
    pub(super) media: Option<usize>,
}

impl<'a> Target<'a> {
    /// Parses a URL. A last segment that looks like that of a track belongs to a track, which need
    /// not exist.
    pub(super) fn parse(url: &'a str) -> Option<Target<'a>> {
        let host = url.find("://").map(|offset| offset + 3)?;
        let url = url.split('?').next().unwrap_or(url);
        let start = url[host.min(url.len())..]
            .find('/')
            .map(|offset| host + offset);
        let mut base = url.trim_end_matches('/');
        let mut media = None;
        if let Some(offset) = base.rfind("/track")
            && start.is_some_and(|start| offset >= start)
            && let Ok(number) = base[offset + 6..].parse::<usize>()
        {
            media = Some(number.wrapping_sub(1));
            base = base[..offset].trim_end_matches('/');
        }
        let path = match start {
            Some(start) if start < base.len() => &base[start..],
            _ => "/",
        };
        Some(Target { base, path, media })
    }

    pub(super) fn control_url(&self, media: usize) -> String {
        format!("{}/{}", self.base, track_name(media))
    }

    /// Returns the answer to DESCRIBE with this description.
    pub(super) fn describe(&self, sdp: String) -> Response {
        let response = Response::new(200)
            .with("Content-Base", format!("{}/", self.base))
            .with("Content-Type", "application/sdp");
        Response {
            body: sdp.into_bytes(),
            ..response
        }
    }
}

/// Returns the answer to a refused request.
fn refusal(status: u16) -> Response {
    match status {
        405 => Response::new(405).with("Allow", write_methods(&METHODS)),
        _ => Response::new(status),
    }
}

impl ServerSession {
    /// Returns the answer to a request, or `None` if it follows later.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, request: &Request) -> Option<Response> {
        if codec::cseq(&request.headers).is_none() {
            return Some(Response::new(400));
        }
        if let Some(required) = request.headers.get("Require") {
            // RFC 2326, 12.32: the server supports nothing that could be required.
            return Some(Response::new(551).with("Unsupported", required));
        }
        if let Some(refusal) = self.unauthorized(request) {
            return Some(refusal);
        }
        if let Some(result) = self.handle_published(cx, request) {
            return result.unwrap_or_else(|status| Some(refusal(status)));
        }
        let result = match request.method {
            Method::Options => self.options(request),
            Method::Describe => self.describe(request),
            Method::Setup => self.setup(cx, request).transpose()?,
            Method::Play => self.play(cx, request),
            Method::Pause => self.pause(cx, request),
            Method::GetParameter | Method::SetParameter => self.parameter(request),
            Method::Teardown => self.teardown(cx, request),
            Method::Announce | Method::Record | Method::Redirect => Err(405),
            Method::Other(_) => Err(501),
        };
        Some(result.unwrap_or_else(refusal))
    }

    /// Returns the refusal of an unauthorized request. OPTIONS needs no authorization.
    fn unauthorized(&mut self, request: &Request) -> Option<Response> {
        let verifier = self.shared.verifier.as_ref()?;
        if request.method == Method::Options {
            return None;
        }
        let verdict = verifier.verify(
            request.headers.get("Authorization"),
            request.method.name(),
            &request.uri,
            &self.nonce,
        );
        if verdict == Verdict::Granted {
            return None;
        }
        let mut response = Response::new(401);
        for challenge in verifier.challenges(&self.nonce, verdict == Verdict::Stale) {
            response.headers.push("WWW-Authenticate", challenge);
        }
        Some(response)
    }

    pub(super) fn target<'a>(&self, request: &'a Request) -> Result<Target<'a>, u16> {
        let target = Target::parse(&request.uri).ok_or(400u16)?;
        if let Some(streams) = self.shared.config.streams {
            let number = target.path.strip_prefix("/stream");
            let number = number.filter(|digits| !digits.starts_with(['0', '+']));
            let number: Option<u32> = number.and_then(|digits| digits.parse().ok());
            if !number.is_some_and(|number| (1..=streams).contains(&number)) {
                return Err(404);
            }
        }
        match target.media {
            Some(media) if media >= self.shared.clips.len() => Err(404),
            _ => Ok(target),
        }
    }

    /// Returns whether a request names the current session. Fails if it names another one.
    pub(super) fn names_session(&self, request: &Request) -> Result<bool, u16> {
        let Some(header) = request.headers.get("Session") else {
            return Ok(false);
        };
        let named = SessionHeader::parse(header).ok_or(454u16)?;
        match &self.rtsp_session {
            Some(rtsp_session) if rtsp_session.id == named.id => Ok(true),
            _ => Err(454),
        }
    }

    /// Returns the session that a request must name.
    pub(super) fn rtsp_session(&mut self, request: &Request) -> Result<&mut RtspSession, u16> {
        match (self.names_session(request)?, &mut self.rtsp_session) {
            (true, Some(rtsp_session)) => Ok(rtsp_session),
            // Without a setup, the order is wrong. After one, the session must be named.
            (_, None) => Err(455),
            (false, Some(_)) => Err(454),
        }
    }

    fn options(&mut self, request: &Request) -> Result<Response, u16> {
        self.names_session(request)?;
        Ok(Response::new(200).with("Public", write_methods(&METHODS)))
    }

    fn describe(&mut self, request: &Request) -> Result<Response, u16> {
        let target = self.target(request)?;
        let accepts = |accept: &str| {
            let accept = accept.to_ascii_lowercase();
            ["application/sdp", "application/*", "*/*"]
                .iter()
                .any(|kind| accept.contains(kind))
        };
        if !request.headers.get("Accept").is_none_or(accepts) {
            return Err(406);
        }
        let local = self
            .local
            .map_or(IpAddr::from([0, 0, 0, 0]), |local| local.ip());
        Ok(target.describe(sdp::describe(&self.shared, local)))
    }

    /// Returns the indexes of the session's streams that a request is about.
    pub(super) fn selected_streams(&mut self, request: &Request) -> Result<Vec<usize>, u16> {
        let target = self.target(request)?;
        let rtsp_session = self.rtsp_session(request)?;
        if rtsp_session.path != target.path {
            return Err(404);
        }
        let selected: Vec<usize> = (0..rtsp_session.streams.len())
            .filter(|&index| {
                let media = rtsp_session.streams[index].media;
                target.media.is_none_or(|wanted| wanted == media)
            })
            .collect();
        if selected.is_empty() {
            return Err(455);
        }
        Ok(selected)
    }

    /// Handles GET_PARAMETER and SET_PARAMETER. Without a body, they are keep-alives; the server
    /// has no parameters.
    fn parameter(&mut self, request: &Request) -> Result<Response, u16> {
        let named = self.names_session(request)?;
        if request.body.iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Err(451);
        }
        Ok(match self.rtsp_session.as_ref().filter(|_| named) {
            Some(rtsp_session) => Response::new(200).with("Session", &rtsp_session.id),
            None => Response::new(200),
        })
    }

    fn teardown(&mut self, cx: &mut Context<'_>, request: &Request) -> Result<Response, u16> {
        let mut selected = self.selected_streams(request)?;
        let rtsp_session = self.rtsp_session(request)?;
        let id = rtsp_session.id.clone();
        selected.reverse();
        for index in selected {
            rtsp_session.streams.remove(index).finish(cx, &id);
        }
        if rtsp_session.streams.is_empty() {
            self.end_rtsp_session(cx);
            self.played = false;
        }
        Ok(Response::new(200).with("Session", id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_urls_are_parsed() {
        let target = |url| Target::parse(url).unwrap();
        let streams = [
            ("rtsp://h:1/a", "rtsp://h:1/a", "/a", None),
            ("rtsp://h/a/b/", "rtsp://h/a/b", "/a/b", None),
            ("rtsp://h/a/track2", "rtsp://h/a", "/a", Some(1)),
            ("rtsp://h/a/?x=/track1", "rtsp://h/a", "/a", None),
            ("rtsp://h/track1", "rtsp://h", "/", Some(0)),
            ("rtsp://h/", "rtsp://h", "/", None),
            ("rtsp://h", "rtsp://h", "/", None),
            ("rtsp://track1", "rtsp://track1", "/", None),
            (
                "rtsp://h/trackless",
                "rtsp://h/trackless",
                "/trackless",
                None,
            ),
        ];
        for (url, base, path, media) in streams {
            assert_eq!(target(url), Target { base, path, media }, "{url}");
        }
        assert_eq!(Target::parse("*"), None);
        assert_eq!(Target::parse("/a"), None);
        assert_eq!(target("rtsp://h/a").control_url(0), "rtsp://h/a/track1");
    }
}
