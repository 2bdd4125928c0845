//! Header fields that a scenario adds to the requests of its clients.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{is_token, is_value};

/// Fields that prove who the client is. As in browsers, they are sent only to the server that the
/// user named.
const CREDENTIALS: [&str; 3] = ["Authorization", "Cookie", "Proxy-Authorization"];

/// Maximum number of additional fields.
const MAX_FIELDS: usize = 64;

/// Maximum length of an additional field, in bytes. Most servers limit a head to 8 KiB.
const MAX_FIELD_LENGTH: usize = 4 * 1024;

/// Additional header fields of requests, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct AdditionalFields(BTreeMap<String, String>);

impl AdditionalFields {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if there is a field of that name.
    pub fn contains(&self, wanted: &str) -> bool {
        self.0.keys().any(|name| name.eq_ignore_ascii_case(wanted))
    }

    /// Returns the fields of a request. `is_named_server` is true if it goes to the server of a URL
    /// that the user wrote. Otherwise the fields with credentials are left out.
    pub fn of_request(&self, is_named_server: bool) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0.iter().filter(move |(name, _)| {
            is_named_server || !CREDENTIALS.iter().any(|own| own.eq_ignore_ascii_case(name))
        });
        fields.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Checks the fields. `own` are the names of fields that the client sets itself; `instead` may
    /// return an alternative for one of them.
    ///
    /// # Errors
    /// The problem and its fix.
    pub fn check(
        &self,
        own: &[&str],
        instead: impl Fn(&str) -> Option<&'static str>,
    ) -> Result<(), String> {
        if self.0.len() > MAX_FIELDS {
            return Err(format!("at most {MAX_FIELDS} header fields are allowed"));
        }
        let mut before: Vec<&String> = Vec::new();
        for (name, value) in &self.0 {
            if !is_token(name) {
                return Err(format!("`{name}` cannot be the name of a header field"));
            }
            if !is_value(value) {
                return Err(format!(
                    "the value of `{name}` must be one line of printable characters"
                ));
            }
            if name.len() + value.len() > MAX_FIELD_LENGTH {
                return Err(format!(
                    "`{name}` has more than {MAX_FIELD_LENGTH} bytes with its value"
                ));
            }
            if let Some(own) = own.iter().find(|own| own.eq_ignore_ascii_case(name)) {
                let help = instead(own).unwrap_or("remove it");
                return Err(format!("the client sets `{name}` itself; {help}"));
            }
            if let Some(other) = before.iter().find(|other| other.eq_ignore_ascii_case(name)) {
                return Err(format!(
                    "`{other}` and `{name}` are the same header field; remove one of them"
                ));
            }
            before.push(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> AdditionalFields {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn wrong_fields_are_refused_with_their_name() {
        let refusal = |text: &str| {
            let instead = |own: &str| (own == "User-Agent").then_some("write `user_agent`");
            let checked = fields(text).check(&["Host", "User-Agent"], instead);
            checked.err().unwrap_or_default()
        };
        assert_eq!(refusal(r#"{"X-A":"b","Cookie":"c=d; e"}"#), "");
        for (wrong, reason) in [
            (r#"{"a b":"c"}"#, "`a b` cannot be the name"),
            (r#"{"":"c"}"#, "`` cannot be the name"),
            (r#"{"a":"c\r\nd: e"}"#, "the value of `a` must be one line"),
            (r#"{"a":"c\u0000"}"#, "the value of `a` must be one line"),
            (
                r#"{"hOST":"c"}"#,
                "the client sets `hOST` itself; remove it",
            ),
            (r#"{"user-agent":"c"}"#, "itself; write `user_agent`"),
            (r#"{"A":"1","a":"2"}"#, "`A` and `a` are the same"),
        ] {
            let refusal = refusal(wrong);
            assert!(refusal.contains(reason), "{wrong}: {refusal}");
        }
        let long = format!(r#"{{"a":"{}"}}"#, "b".repeat(MAX_FIELD_LENGTH));
        assert!(refusal(&long).contains("more than 4096 bytes"));
        let many: BTreeMap<_, _> = (0..=MAX_FIELDS)
            .map(|n| (n.to_string(), n.to_string()))
            .collect();
        let many = serde_json::to_string(&many).expect("plain data");
        assert!(refusal(&many).contains("at most 64"));
    }

    #[test]
    fn credentials_go_to_the_named_server_only() {
        let fields = fields(r#"{"X-A":"b","cookie":"c","AUTHORIZATION":"d"}"#);
        let names = |is_named| -> Vec<&str> {
            let all = fields.of_request(is_named);
            all.map(|(name, _)| name).collect()
        };
        assert_eq!(names(true), ["AUTHORIZATION", "X-A", "cookie"]);
        assert_eq!(names(false), ["X-A"]);
        assert!(fields.contains("authorization") && !fields.contains("x-b"));
    }
}
