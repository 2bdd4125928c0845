//! `WWW-Authenticate` and `Authorization`: schemes with parameters (RFC 7235, 2.1).

/// One challenge of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Scheme: `Basic`, `Digest`.
    pub scheme: String,
    /// Parameters, unquoted, in order.
    pub params: Vec<(String, String)>,
}

impl Challenge {
    /// Returns the parameter of this name, which is case-insensitive.
    pub fn param(&self, name: &str) -> Option<&str> {
        find_param(&self.params, name)
    }
}

/// Returns the parameter of this name, which is case-insensitive.
pub(super) fn find_param<'a>(params: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut params = params.iter();
    let found = params.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
    Some(&found.1)
}

/// Maximum number of schemes and parameters parsed from one value.
const ITEMS_MAX: usize = 64;

/// Parses all challenges of a header value.
pub fn parse_challenges(value: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = value;
    for _ in 0..ITEMS_MAX {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            break;
        }
        match take_param(rest) {
            Some((name, value, after)) => {
                if let Some(challenge) = challenges.last_mut() {
                    challenge.params.push((name, value));
                }
                rest = after;
            }
            None => {
                let end = rest.find([' ', '\t', ',']).unwrap_or(rest.len());
                challenges.push(Challenge {
                    scheme: rest[..end].to_owned(),
                    params: Vec::new(),
                });
                rest = &rest[end..];
            }
        }
    }
    challenges
}

/// Parses comma-separated `name=value` pairs, as in the Digest form of `Authorization`.
pub fn parse_params(value: &str) -> Vec<(String, String)> {
    let mut params = Vec::new();
    let mut rest = value;
    while params.len() < ITEMS_MAX {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let Some((name, value, after)) = take_param(rest) else {
            break;
        };
        params.push((name, value));
        rest = after;
    }
    params
}

/// Splits the first `name=value` from the rest of the text.
fn take_param(text: &str) -> Option<(String, String, &str)> {
    let equals = text.find(['=', ',', '"', ' ', '\t'])?;
    let name = &text[..equals];
    let rest = text[equals..].trim_start().strip_prefix('=')?.trim_start();
    if name.is_empty() {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
        return Some((name.to_owned(), rest[..end].to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return Some((name.to_owned(), value, &quoted[at + 1..])),
            c => value.push(c),
        }
    }
    // Without a closing quote, the rest is the value.
    Some((name.to_owned(), value, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn challenges_of_real_servers_are_parsed() {
        // Several in one value, as RFC 7235 allows.
        let both = parse_challenges(
            "Digest realm=\"a, \\\"b\\\"\", nonce=\"n=\", algorithm=SHA-256,stale=TRUE, Basic realm=\"x\"",
        );
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].scheme, "Digest");
        assert_eq!(both[0].param("Realm"), Some("a, \"b\""));
        assert_eq!(both[0].param("nonce"), Some("n="));
        assert_eq!(both[0].param("algorithm"), Some("SHA-256"));
        assert_eq!(both[0].param("stale"), Some("TRUE"));
        assert_eq!(both[1].scheme, "Basic");
        // From a camera: spaces around `=`, and no closing quote.
        let camera = parse_challenges("Digest realm = \"IPCAM\",nonce=\"abc");
        assert_eq!(camera[0].param("realm"), Some("IPCAM"));
        assert_eq!(camera[0].param("nonce"), Some("abc"));
        assert_eq!(parse_challenges("Basic")[0].scheme, "Basic");
        assert_eq!(
            parse_params("username=\"u\", response=\"r\""),
            [
                ("username".to_owned(), "u".to_owned()),
                ("response".to_owned(), "r".to_owned())
            ]
        );
    }

    proptest! {
        #[test]
        fn parsers_accept_any_value_without_panic(value in "\\PC{0,60}|(Digest |Basic )?[a-z=;,\" 0-9-]{0,60}") {
            parse_challenges(&value);
            parse_params(&value);
        }
    }
}
