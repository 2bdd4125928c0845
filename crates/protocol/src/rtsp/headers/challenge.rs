//! `WWW-Authenticate` and `Authorization`: schemes with parameters (RFC 7235, 2.1).

/// One scheme that a server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The scheme: `Basic`, `Digest`.
    pub scheme: String,
    /// Its parameters, unquoted, in order.
    pub params: Vec<(String, String)>,
}

impl Challenge {
    /// The parameter of that name, which is case-insensitive.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The most schemes and parameters taken of one value.
const MOST: usize = 64;

/// Every challenge of a header value, which may hold several.
pub fn parse_challenges(value: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = value;
    for _ in 0..MOST {
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

/// `name=value` pairs between commas, as in the `Digest` form of `Authorization`.
pub fn parse_params(value: &str) -> Vec<(String, String)> {
    let mut params = Vec::new();
    let mut rest = value;
    while params.len() < MOST {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let Some((name, value, after)) = take_param(rest) else {
            break;
        };
        params.push((name, value));
        rest = after;
    }
    params
}

/// One `name=value` from the beginning, and what is behind it.
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
    // No closing mark: the rest is the value.
    Some((name.to_owned(), value, ""))
}
