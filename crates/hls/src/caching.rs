//! Statements of a response about the caches that it came through.

use std::time::Duration;

use kit::http1::Headers;

/// Fields in which caches say whether they had a resource, besides `Cache-Status` (RFC 9211). They
/// are not standardised: those of Squid, Varnish, CloudFront and Fastly, of nginx's documentation,
/// and of Cloudflare.
const OTHER_FIELDS: [&str; 3] = ["X-Cache", "X-Cache-Status", "CF-Cache-Status"];

/// First words of their values, besides those that begin or end with `hit`, if the cache had the
/// resource.
const HITS: [&str; 3] = ["stale", "updating", "revalidated"];

/// Largest age (RFC 9111, 1.2.2).
const AGE_MAX: u64 = 1 << 31;

/// Statements of a response about caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caching {
    /// True if a cache had the resource; `None` if no cache says anything.
    pub(crate) is_hit: Option<bool>,
    /// Time that the response was in caches (RFC 9111, 5.1).
    pub(crate) age: Option<Duration>,
}

impl Caching {
    pub(crate) fn read(headers: &Headers) -> Caching {
        let age = headers.get("Age").and_then(|age| age.trim().parse().ok());
        let age = age.map(|age: u64| age.min(AGE_MAX));
        let by_age = age.filter(|age| *age > 0).map(|_| true);
        let standard = headers.list("Cache-Status").map(|member| {
            let mut parameters = member.split(';').skip(1).map(str::trim);
            parameters.any(|own| own.eq_ignore_ascii_case("hit"))
        });
        let others = OTHER_FIELDS.iter().flat_map(|name| headers.list(name));
        let others = others.map(|value| {
            let word = value.split(' ').next().unwrap_or_default();
            let word = word.to_ascii_lowercase();
            word.starts_with("hit") || word.ends_with("hit") || HITS.contains(&word.as_str())
        });
        // One of several caches is enough.
        let is_hit = standard
            .chain(others)
            .chain(by_age)
            .reduce(|one, other| one | other);
        Caching {
            is_hit,
            age: age.map(Duration::from_secs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> (Option<bool>, Option<u64>) {
        let mut headers = Headers::default();
        for (name, value) in fields {
            headers.push(*name, *value);
        }
        let found = Caching::read(&headers);
        (found.is_hit, found.age.map(|age| age.as_secs()))
    }

    #[test]
    fn caches_are_understood() {
        let (hit, miss) = (Some(true), Some(false));
        for (fields, expected) in [
            (&[][..], (None, None)),
            (&[("Age", "0")], (None, Some(0))),
            (&[("Age", " 7 ")], (hit, Some(7))),
            (&[("Age", "99999999999")], (hit, Some(AGE_MAX))),
            (&[("X-Cache", "TCP_MEM_HIT from a23-1-2-3")], (hit, None)),
            (&[("X-Cache", "RefreshHit from cloudfront")], (hit, None)),
            (&[("X-Cache", "HitStale")], (hit, None)),
            (&[("X-Cache", "")], (None, None)),
            (&[("Age", "-1"), ("Content-Type", "x")], (None, None)),
            (&[("Cache-Status", "Edge; hit; ttl=30")], (hit, None)),
            (&[("Cache-Status", "Edge; fwd=miss; stored")], (miss, None)),
            (
                &[("cache-status", "Origin; hit, Edge; fwd=uri-miss")],
                (hit, None),
            ),
            (
                &[("X-Cache", "Hit from cloudfront"), ("Age", "3")],
                (hit, Some(3)),
            ),
            (&[("X-Cache", "MISS, HIT")], (hit, None)),
            (&[("X-Cache", "TCP_HIT from cache.example")], (hit, None)),
            (
                &[("X-Cache", "TCP_MISS"), ("X-Cache", "Miss from cloudfront")],
                (miss, None),
            ),
            (&[("X-Cache-Status", "STALE")], (hit, None)),
            (&[("X-Cache-Status", "EXPIRED")], (miss, None)),
            (&[("CF-Cache-Status", "DYNAMIC")], (miss, None)),
        ] {
            assert_eq!(read(fields), expected, "{fields:?}");
        }
    }
}
