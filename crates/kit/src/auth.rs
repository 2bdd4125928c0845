//! Basic and Digest authentication (RFC 7617; RFC 2617 and RFC 7616) for HTTP and RTSP, client and
//! server side.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::{Digest as _, Md5};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::Sha256;

use crate::http1::Headers;
use crate::url::Credentials;

mod challenge;

pub use challenge::{Challenge, parse_challenges, parse_params};

/// Hash algorithm of Digest authentication (RFC 7616, 6.1), the stronger one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// `MD5`, the default if the challenge names none.
    Md5,
    /// `SHA-256`.
    Sha256,
}

impl Algorithm {
    /// Name in header fields.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "MD5",
            Algorithm::Sha256 => "SHA-256",
        }
    }

    /// Reads the value of `algorithm`, and whether it names a variant that is bound to the nonces.
    fn parse(name: &str) -> Option<(Algorithm, bool)> {
        match name.to_ascii_uppercase().as_str() {
            "MD5" => Some((Algorithm::Md5, false)),
            "MD5-SESS" => Some((Algorithm::Md5, true)),
            "SHA-256" => Some((Algorithm::Sha256, false)),
            "SHA-256-SESS" => Some((Algorithm::Sha256, true)),
            _ => None,
        }
    }

    fn hash(self, text: &str) -> String {
        match self {
            Algorithm::Md5 => hex(&Md5::digest(text)),
            Algorithm::Sha256 => hex(&Sha256::digest(text)),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the value of `Authorization` for `user:password` (RFC 7617, 2).
pub fn basic(user_info: &str) -> String {
    format!("Basic {}", BASE64.encode(user_info))
}

/// Inputs of a Digest response.
struct DigestInputs<'a> {
    algorithm: Algorithm,
    /// `true` if the hash of the password is bound to the nonces (`MD5-sess`).
    session: bool,
    realm: &'a str,
    nonce: &'a str,
    /// Nonce count and client nonce; `None` if the server does not support `qop=auth`.
    qop: Option<(&'a str, &'a str)>,
    cnonce: &'a str,
    method: &'a str,
    uri: &'a str,
}

impl DigestInputs<'_> {
    /// Computes the response (RFC 7616, 3.4.1; RFC 2617, 3.2.2.1).
    fn response(&self, credentials: &Credentials) -> String {
        let hash = |text: &str| self.algorithm.hash(text);
        let Credentials { user, password } = credentials;
        let mut secret = hash(&format!("{user}:{}:{password}", self.realm));
        if self.session {
            secret = hash(&format!("{secret}:{}:{}", self.nonce, self.cnonce));
        }
        let asked = hash(&format!("{}:{}", self.method, self.uri));
        hash(&match self.qop {
            Some((count, cnonce)) => {
                format!("{secret}:{}:{count}:{cnonce}:auth:{asked}", self.nonce)
            }
            None => format!("{secret}:{}:{asked}", self.nonce),
        })
    }
}

/// Scheme with which a client answers challenges.
#[derive(Clone, Debug)]
enum Scheme {
    Basic,
    Digest {
        algorithm: Algorithm,
        session: bool,
        /// `true` if the challenge named an algorithm. Old servers that did not may reject the
        /// parameter.
        algorithm_named: bool,
        realm: String,
        nonce: String,
        opaque: Option<String>,
        qop: bool,
    },
}

impl Scheme {
    /// Rank of the scheme; a higher one is preferred.
    fn strength(&self) -> u8 {
        match self {
            Scheme::Basic => 0,
            Scheme::Digest { algorithm, .. } => 1 + *algorithm as u8,
        }
    }

    /// Returns `true` if both are Digest with different nonces.
    fn has_other_nonce(&self, other: &Scheme) -> bool {
        match (self, other) {
            (Scheme::Digest { nonce, .. }, Scheme::Digest { nonce: other, .. }) => nonce != other,
            _ => false,
        }
    }

    /// Parses a challenge. Returns `None` for an unsupported scheme.
    fn from_challenge(challenge: &Challenge) -> Option<Scheme> {
        if challenge.scheme.eq_ignore_ascii_case("Basic") {
            return Some(Scheme::Basic);
        }
        if !challenge.scheme.eq_ignore_ascii_case("Digest") {
            return None;
        }
        let named = challenge.param("algorithm");
        let (algorithm, session) = match named {
            None | Some("") => (Algorithm::Md5, false),
            Some(name) => Algorithm::parse(name)?,
        };
        let qop = match challenge.param("qop").filter(|qop| !qop.is_empty()) {
            None => false,
            Some(qop) => {
                // Only `auth-int` is offered, which is not supported.
                if !qop
                    .split(',')
                    .any(|q| q.trim().eq_ignore_ascii_case("auth"))
                {
                    return None;
                }
                true
            }
        };
        Some(Scheme::Digest {
            algorithm,
            session,
            algorithm_named: named.is_some(),
            realm: challenge.param("realm").unwrap_or_default().to_owned(),
            nonce: challenge.param("nonce")?.to_owned(),
            opaque: challenge.param("opaque").map(str::to_owned),
            qop,
        })
    }
}

/// Client side: answers challenges with the credentials of the URL.
#[derive(Debug)]
pub struct Authenticator {
    credentials: Option<Credentials>,
    scheme: Option<Scheme>,
    /// Nonce count: number of requests sent with the current nonce.
    count: u32,
    random: Pcg64Mcg,
}

/// Reaction to a 401 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeOutcome {
    /// Repeat the request with the value of [`Authenticator::authorize`].
    Retry,
    /// Fail: the URL has no credentials.
    NoCredentials,
    /// Fail: the server offers no supported scheme.
    NoScheme,
    /// Fail: the server rejected the credentials.
    Refused,
}

impl Authenticator {
    /// Creates an authenticator that has seen no challenge.
    pub fn new(credentials: Option<Credentials>, seed: u64) -> Authenticator {
        Authenticator {
            credentials,
            scheme: None,
            count: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// Handles the challenges of a 401 response.
    ///
    /// `sent` is `true` if the request carried an authorization, `again` if it was already the
    /// second one to do so: a server may replace its nonce once.
    pub fn handle_challenges(
        &mut self,
        headers: &Headers,
        sent: bool,
        again: bool,
    ) -> ChallengeOutcome {
        if self.credentials.is_none() {
            return ChallengeOutcome::NoCredentials;
        }
        let strongest = headers
            .all("WWW-Authenticate")
            .flat_map(parse_challenges)
            .filter_map(|challenge| {
                let stale = challenge
                    .param("stale")
                    .is_some_and(|stale| stale.eq_ignore_ascii_case("true"));
                Some((Scheme::from_challenge(&challenge)?, stale))
            })
            // Of equally strong ones the first: the order is the server's preference.
            .reduce(|best, next| match next.0.strength() > best.0.strength() {
                true => next,
                false => best,
            });
        let Some((scheme, stale)) = strongest else {
            // MediaMTX answers a wrong password without a challenge.
            return match sent {
                true => ChallengeOutcome::Refused,
                false => ChallengeOutcome::NoScheme,
            };
        };
        // A nonce other than the one just answered is a new challenge, with or without `stale`.
        let is_fresh = stale
            || self
                .scheme
                .as_ref()
                .is_some_and(|own| scheme.has_other_nonce(own));
        if sent && (again || !is_fresh) {
            return ChallengeOutcome::Refused;
        }
        self.scheme = Some(scheme);
        self.count = 0;
        ChallengeOutcome::Retry
    }

    /// Returns the value of `Authorization` for a request; `None` without credentials or before the
    /// first challenge.
    pub fn authorize(&mut self, method: &str, uri: &str) -> Option<String> {
        let credentials = self.credentials.as_ref()?;
        match self.scheme.as_ref()? {
            Scheme::Basic => {
                let Credentials { user, password } = credentials;
                Some(basic(&format!("{user}:{password}")))
            }
            Scheme::Digest {
                algorithm,
                session,
                algorithm_named: named,
                realm,
                nonce,
                opaque,
                qop,
            } => {
                self.count = self.count.wrapping_add(1);
                let count = format!("{:08x}", self.count);
                let cnonce = format!("{:016x}", self.random.next_u64());
                let response = DigestInputs {
                    algorithm: *algorithm,
                    session: *session,
                    realm,
                    nonce,
                    qop: qop.then_some((&*count, &*cnonce)),
                    cnonce: &cnonce,
                    method,
                    uri,
                }
                .response(credentials);
                let mut value = format!(
                    "Digest username=\"{}\", realm=\"{}\", nonce=\"{}\", uri=\"{uri}\", response=\"{response}\"",
                    escape_quotes(&credentials.user),
                    escape_quotes(realm),
                    escape_quotes(nonce),
                );
                if *named {
                    let suffix = if *session { "-sess" } else { "" };
                    value += &format!(", algorithm={}{suffix}", algorithm.name());
                }
                if let Some(opaque) = opaque {
                    value += &format!(", opaque=\"{}\"", escape_quotes(opaque));
                }
                if *qop {
                    value += &format!(", qop=auth, nc={count}, cnonce=\"{cnonce}\"");
                } else if *session {
                    value += &format!(", cnonce=\"{cnonce}\"");
                }
                Some(value)
            }
        }
    }
}

fn escape_quotes(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Scheme that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedScheme {
    Basic,
    /// Digest with this algorithm and `qop=auth`.
    Digest(Algorithm),
}

/// Server side: issues challenges and verifies authorizations.
#[derive(Clone, Debug)]
pub struct Verifier {
    realm: String,
    credentials: Credentials,
    accepts: Vec<AcceptedScheme>,
}

/// Result of verifying a request's authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The authorization is valid.
    Granted,
    /// The request has no authorization.
    Missing,
    /// The authorization is valid for an old nonce.
    Stale,
    /// The authorization is invalid.
    Denied,
}

impl Verifier {
    /// Creates a verifier that accepts one pair of credentials by any of these schemes.
    pub fn new(
        realm: impl Into<String>,
        credentials: Credentials,
        accepts: Vec<AcceptedScheme>,
    ) -> Verifier {
        Verifier {
            realm: realm.into(),
            credentials,
            accepts,
        }
    }

    /// Returns the values of `WWW-Authenticate`, one for each header field.
    pub fn challenges(&self, nonce: &str, stale: bool) -> Vec<String> {
        let realm = escape_quotes(&self.realm);
        self.accepts
            .iter()
            .map(|accepts| match accepts {
                AcceptedScheme::Basic => format!("Basic realm=\"{realm}\""),
                AcceptedScheme::Digest(algorithm) => format!(
                    "Digest realm=\"{realm}\", nonce=\"{nonce}\", algorithm={}, qop=\"auth\"{}",
                    algorithm.name(),
                    if stale { ", stale=true" } else { "" }
                ),
            })
            .collect()
    }

    /// Verifies the `Authorization` value of a request. A valid authorization with a nonce other
    /// than `nonce` is stale.
    pub fn verify(
        &self,
        authorization: Option<&str>,
        method: &str,
        uri: &str,
        nonce: &str,
    ) -> Verdict {
        let Some((scheme, rest)) = authorization.and_then(|value| value.trim().split_once(' '))
        else {
            return Verdict::Missing;
        };
        if scheme.eq_ignore_ascii_case("Basic") {
            let pair = format!("{}:{}", self.credentials.user, self.credentials.password);
            let right = self.accepts.contains(&AcceptedScheme::Basic)
                && BASE64
                    .decode(rest.trim())
                    .is_ok_and(|got| got == pair.as_bytes());
            return match right {
                true => Verdict::Granted,
                false => Verdict::Denied,
            };
        }
        if scheme.eq_ignore_ascii_case("Digest") {
            return self.verify_digest(rest, method, uri, nonce);
        }
        Verdict::Denied
    }

    fn verify_digest(&self, params: &str, method: &str, uri: &str, nonce: &str) -> Verdict {
        let params = parse_params(params);
        let param = |name: &str| challenge::find_param(&params, name);
        let named = param("algorithm").unwrap_or("MD5");
        let Some((algorithm, session)) = Algorithm::parse(named) else {
            return Verdict::Denied;
        };
        let cnonce = param("cnonce").unwrap_or_default();
        let qop = match param("qop") {
            None => None,
            Some("auth") => Some((param("nc").unwrap_or_default(), cnonce)),
            Some(_) => return Verdict::Denied,
        };
        let stated_nonce = param("nonce").unwrap_or_default();
        let response = DigestInputs {
            algorithm,
            session,
            realm: &self.realm,
            nonce: stated_nonce,
            qop,
            cnonce,
            method,
            uri,
        }
        .response(&self.credentials);
        let right = self.accepts.contains(&AcceptedScheme::Digest(algorithm))
            && param("username") == Some(&self.credentials.user)
            && param("realm") == Some(&self.realm)
            && param("uri") == Some(uri)
            && param("response").is_some_and(|got| got.eq_ignore_ascii_case(&response));
        match right {
            true if stated_nonce == nonce => Verdict::Granted,
            true => Verdict::Stale,
            false => Verdict::Denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    fn unauthorized(challenges: &[&str]) -> Headers {
        let mut headers = Headers::new();
        for challenge in challenges {
            headers.push("WWW-Authenticate", *challenge);
        }
        headers
    }

    #[test]
    fn digest_matches_the_rfc_2617_example() {
        let mut inputs = DigestInputs {
            algorithm: Algorithm::Md5,
            session: false,
            realm: "testrealm@host.com",
            nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093",
            qop: Some(("00000001", "0a4f113b")),
            cnonce: "0a4f113b",
            method: "GET",
            uri: "/dir/index.html",
        };
        let mufasa = credentials("Mufasa", "Circle Of Life");
        assert_eq!(inputs.response(&mufasa), "6629fae49393a05397450978507c4ef1");
        // The same request without qop, as in RFC 2069.
        inputs.qop = None;
        assert_eq!(inputs.response(&mufasa), "670fd8c2df070c60b045671b8b24ff02");
    }

    #[test]
    fn digest_matches_the_rfc_7616_examples() {
        for (algorithm, response) in [
            (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
            (
                Algorithm::Sha256,
                "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
            ),
        ] {
            let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
            let inputs = DigestInputs {
                algorithm,
                session: false,
                realm: "http-auth@example.org",
                nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
                qop: Some(("00000001", cnonce)),
                cnonce,
                method: "GET",
                uri: "/dir/index.html",
            };
            assert_eq!(
                inputs.response(&credentials("Mufasa", "Circle of Life")),
                response
            );
        }
    }

    #[test]
    fn basic_encodes_the_credentials_in_base64() {
        let mut auth = Authenticator::new(Some(credentials("Aladdin", "open sesame")), 1);
        assert_eq!(auth.authorize("OPTIONS", "*"), None, "no challenge yet");
        let headers = unauthorized(&["Basic realm=\"WallyWorld\""]);
        assert_eq!(
            auth.handle_challenges(&headers, false, false),
            ChallengeOutcome::Retry
        );
        assert_eq!(
            auth.authorize("OPTIONS", "*").as_deref(),
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
    }

    #[test]
    fn strongest_supported_scheme_is_chosen() {
        let mut auth = Authenticator::new(Some(credentials("u", "p")), 1);
        let headers = unauthorized(&[
            "Basic realm=\"r\", Digest realm=\"r\", nonce=\"1\"",
            "Digest realm=\"r\", nonce=\"2\", algorithm=SHA-256",
            "Digest realm=\"r\", nonce=\"3\", algorithm=SHA-512-256",
            "Digest realm=\"r\", nonce=\"4\", algorithm=SHA-256, qop=\"auth-int\"",
            "Negotiate",
        ]);
        assert_eq!(
            auth.handle_challenges(&headers, false, false),
            ChallengeOutcome::Retry
        );
        let value = auth.authorize("DESCRIBE", "rtsp://h/a").expect("challenge");
        assert!(
            value.contains("nonce=\"2\"") && value.contains("algorithm=SHA-256"),
            "{value}"
        );
    }

    #[test]
    fn unanswerable_challenges_are_reported() {
        let headers = unauthorized(&["Digest realm=\"r\", nonce=\"1\""]);
        let mut nobody = Authenticator::new(None, 1);
        assert_eq!(
            nobody.handle_challenges(&headers, false, false),
            ChallengeOutcome::NoCredentials
        );
        let mut auth = Authenticator::new(Some(credentials("u", "p")), 1);
        assert_eq!(
            auth.handle_challenges(&unauthorized(&["Negotiate"]), false, false),
            ChallengeOutcome::NoScheme
        );
        assert_eq!(
            auth.handle_challenges(&unauthorized(&[]), false, false),
            ChallengeOutcome::NoScheme
        );
        assert_eq!(
            auth.handle_challenges(&unauthorized(&[]), true, false),
            ChallengeOutcome::Refused
        );
        assert_eq!(
            auth.handle_challenges(&headers, true, false),
            ChallengeOutcome::Refused
        );
        let stale = unauthorized(&["Digest realm=\"r\", nonce=\"2\", stale=TRUE"]);
        assert_eq!(
            auth.handle_challenges(&stale, true, false),
            ChallengeOutcome::Retry
        );
        assert_eq!(
            auth.handle_challenges(&stale, true, true),
            ChallengeOutcome::Refused
        );
        // Another nonce is a new challenge, also without `stale`.
        assert_eq!(
            auth.handle_challenges(&headers, true, false),
            ChallengeOutcome::Retry
        );
        assert_eq!(
            auth.handle_challenges(&headers, true, false),
            ChallengeOutcome::Refused
        );
        assert_eq!(
            auth.handle_challenges(&stale, true, true),
            ChallengeOutcome::Refused
        );
    }

    #[test]
    fn client_and_server_agree_on_each_scheme() {
        let right = credentials("us\"er", "p:w");
        for accepts in [
            AcceptedScheme::Basic,
            AcceptedScheme::Digest(Algorithm::Md5),
            AcceptedScheme::Digest(Algorithm::Sha256),
        ] {
            let verifier = Verifier::new("a \"realm\"", right.clone(), vec![accepts]);
            for (used, verdict) in [
                (right.clone(), Verdict::Granted),
                (credentials("us\"er", "wrong"), Verdict::Denied),
            ] {
                let mut auth = Authenticator::new(Some(used), 7);
                assert_eq!(
                    verifier.verify(None, "PLAY", "rtsp://h/", "n1"),
                    Verdict::Missing
                );
                let challenges = verifier.challenges("n1", false);
                let challenges: Vec<&str> = challenges.iter().map(String::as_str).collect();
                auth.handle_challenges(&unauthorized(&challenges), false, false);
                let value = auth.authorize("PLAY", "rtsp://h/");
                let verify =
                    |method, uri, nonce| verifier.verify(value.as_deref(), method, uri, nonce);
                assert_eq!(verify("PLAY", "rtsp://h/", "n1"), verdict, "{value:?}");
                if let (AcceptedScheme::Digest(_), Verdict::Granted) = (accepts, verdict) {
                    assert_eq!(verify("PLAY", "rtsp://h/", "n2"), Verdict::Stale);
                    assert_eq!(verify("PAUSE", "rtsp://h/", "n1"), Verdict::Denied);
                    assert_eq!(verify("PLAY", "rtsp://x/", "n1"), Verdict::Denied);
                    let next = auth.authorize("PLAY", "rtsp://h/").expect("challenge");
                    assert!(next.contains("nc=00000002"), "{next}");
                }
            }
        }
    }
}
