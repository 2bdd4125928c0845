//! Resources that a server released after its last client had left.

use measure::Unit;
use measure::server::{GivenBack, Held};

use super::Screen;
use crate::human::{count, duration, figure, plural};

impl Screen {
    pub(super) fn given_back(&mut self, given_back: &GivenBack) {
        if let Some(text) = groups(given_back) {
            self.row("groups", &text);
        }
        let held = |held: Held, show: &dyn Fn(f64) -> String| {
            let [before, peak, after] =
                [held.before, held.peak, held.after].map(|n| show(n as f64));
            format!("{before} before, {peak} at most, {after} after")
        };
        let files = given_back.file_descriptors;
        if let Some(files) = files {
            let text = format!("{} (open)", held(files, &count));
            self.row("files", &text);
        }
        if let Some(uss) = given_back.uss {
            let text = format!("USS {}", held(uss, &|bytes| figure(Unit::Bytes, bytes)));
            self.row("given back", &text);
        }
    }
}

/// Describes whether the multicast groups were left. Returns `None` if no groups are known.
fn groups(given_back: &GivenBack) -> Option<String> {
    let held = given_back.groups?;
    let (joined, kept) = (
        held.peak.saturating_sub(held.before),
        given_back.groups_kept,
    );
    let before = match held.before {
        0 => String::new(),
        before => format!(" ({} before the first client)", count(before as f64)),
    };
    Some(match (kept, given_back.groups_left_within) {
        (0, _) if joined == 0 => format!("none were joined for clients{before}"),
        (0, Some(within)) => {
            let when = match within {
                0.0 => "at once".to_owned(),
                within => format!("within {}", figure(Unit::Seconds, within)),
            };
            let joined = count(joined as f64);
            format!("left all {joined} that were joined for clients {when}{before}")
        }
        _ => {
            let mut text = format!(
                "STILL HOLDS {} {} after the last client left{before}: {}",
                plural(kept as f64, "group", "groups"),
                duration(given_back.looked_for),
                given_back.kept.join(", ")
            );
            if given_back.kept.len() as u64 != kept {
                text += ", ...";
            }
            text
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_described_in_one_sentence() {
        let held = |before, peak, after| {
            Some(Held {
                before,
                peak,
                after,
            })
        };
        let left = GivenBack {
            looked_for: 5.02,
            groups: held(0, 8, 0),
            groups_left_within: Some(0.4),
            ..GivenBack::default()
        };
        let text = |given_back: &GivenBack| groups(given_back).expect("groups are known of");
        assert_eq!(
            text(&left),
            "left all 8 that were joined for clients within 400 ms"
        );
        let at_once = GivenBack {
            groups_left_within: Some(0.0),
            ..left.clone()
        };
        assert!(text(&at_once).ends_with("for clients at once"));
        let keeps = GivenBack {
            groups: held(1, 4, 3),
            groups_left_within: None,
            groups_kept: 2,
            kept: vec!["239.81.0.1".to_owned(), "239.81.0.2".to_owned()],
            ..left.clone()
        };
        assert_eq!(
            text(&keeps),
            "STILL HOLDS 2 groups 5 s after the last client left (1 before the first client): 239.81.0.1, 239.81.0.2"
        );
        let many = GivenBack {
            groups_kept: 20,
            ..keeps
        };
        assert!(text(&many).ends_with("239.81.0.2, ..."));
        let none = GivenBack {
            groups: held(8, 8, 8),
            ..left
        };
        assert_eq!(
            text(&none),
            "none were joined for clients (8 before the first client)"
        );
        assert_eq!(groups(&GivenBack::default()), None);
    }
}
