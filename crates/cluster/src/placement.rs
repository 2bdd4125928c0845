//! Where runners run: as processes of this machine, on others by SSH, or wherever they wait.

use std::str::FromStr;

use crate::coordinator::{RUNNERS_MAX, Wanted};
use crate::names::is_name;

/// The runners that a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Runners that wait for work at the NATS server of the user.
    Waiting(usize),
    /// Runners that the coordinator starts and ends.
    Placed(Vec<Place>),
}

/// A runner that the coordinator starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the runner.
    pub name: String,
    /// A runner of weight 2 gets twice as many clients as one of weight 1.
    pub weight: u32,
    pub site: Site,
}

/// Machine of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// This machine.
    Local,
    /// Another machine, by a destination of ssh(1): `HOST`, `USER@HOST`, or a name of its
    /// configuration.
    Ssh(String),
}

impl Placement {
    pub(crate) fn wanted(&self) -> Wanted {
        match self {
            Placement::Waiting(count) => Wanted::Any(*count),
            Placement::Placed(places) => {
                Wanted::Named(places.iter().map(|place| place.name.clone()).collect())
            }
        }
    }

    /// Names and weights, as far as they are known before the runners have come.
    pub fn expected(&self) -> Vec<(String, u32)> {
        match self {
            Placement::Waiting(count) => (1..=*count).map(|one| (one.to_string(), 1)).collect(),
            Placement::Placed(places) => {
                let places = places.iter();
                places
                    .map(|place| (place.name.clone(), place.weight))
                    .collect()
            }
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    /// Reads `4` (runners that wait), or a list of `local:4`, `ssh:HOST` and `ssh:HOST*WEIGHT`.
    fn from_str(text: &str) -> Result<Placement, String> {
        let wrong = |what: &str, why: &str| {
            format!(
                "`{what}`: {why}: write `local:4`, `ssh:HOST1,ssh:HOST2*2`, or a number of runners that wait at `--at`"
            )
        };
        let count_of = |part: &str, count: &str| {
            let count = count.parse().ok();
            let count = count.filter(|count| (1..=RUNNERS_MAX).contains(count));
            count.ok_or_else(|| wrong(part, "1 to 256 runners are possible"))
        };
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Placement::Waiting(count_of(text, text)?));
        }
        let mut places: Vec<Place> = Vec::new();
        for part in text.split(',') {
            if let Some(count) = part.strip_prefix("local:") {
                let begun = places.len();
                places.extend((1..=count_of(part, count)?).map(|number| Place {
                    name: format!("local-{}", begun + number),
                    weight: 1,
                    site: Site::Local,
                }));
            } else if let Some(destination) = part.strip_prefix("ssh:") {
                let (destination, weight) =
                    destination.split_once('*').unwrap_or((destination, "1"));
                let weight: Option<u32> = weight.parse().ok();
                let weight = weight.filter(|weight| (1..=1_000).contains(weight));
                let weight = weight.ok_or_else(|| wrong(part, "a weight is 1 to 1000"))?;
                // ssh(1) takes what begins with a hyphen as an option.
                if destination.is_empty() || destination.starts_with('-') {
                    return Err(wrong(part, "there is no host"));
                }
                places.push(Place {
                    name: name_of(destination, places.len() + 1),
                    weight,
                    site: Site::Ssh(destination.to_owned()),
                });
            } else {
                return Err(wrong(part, "this is no place for a runner"));
            }
        }
        if places.len() > RUNNERS_MAX {
            return Err(wrong(text, "more than 256 runners"));
        }
        for (number, place) in places.iter().enumerate() {
            let mut others = places[..number].iter();
            if others.any(|other| other.name == place.name) {
                return Err(wrong(&place.name, "this runner is named twice"));
            }
        }
        Ok(Placement::Placed(places))
    }
}

/// Name of the runner on a host.
fn name_of(destination: &str, number: usize) -> String {
    let host = destination.rsplit('@').next().unwrap_or_default();
    let word = host.split('.').next().unwrap_or_default();
    match is_name(word) && !word.bytes().all(|byte| byte.is_ascii_digit()) {
        true => word.to_owned(),
        false => format!("ssh-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, u32)> {
        let placement: Placement = text.parse().expect(text);
        placement.expected()
    }

    #[test]
    fn placements_are_read() {
        let own = |name: &str, weight| (name.to_owned(), weight);
        assert_eq!("4".parse(), Ok(Placement::Waiting(4)));
        assert_eq!(names("local:2"), [own("local-1", 1), own("local-2", 1)]);
        assert_eq!(
            names("ssh:load1,ssh:me@load2.example*3,ssh:10.0.0.7,local:1"),
            [
                own("load1", 1),
                own("load2", 3),
                own("ssh-3", 1),
                own("local-4", 1)
            ]
        );
    }

    #[test]
    fn wrong_placements_name_their_fault() {
        for (text, why) in [
            ("0", "1 to 256"),
            ("257", "1 to 256"),
            ("local:", "1 to 256"),
            ("local:300", "1 to 256"),
            ("ssh:", "no host"),
            ("ssh:-oProxyCommand=x", "no host"),
            ("ssh:a*0", "a weight"),
            ("ssh:a,ssh:a", "named twice"),
            ("k8s:4", "no place"),
            ("", "1 to 256"),
        ] {
            let error = text.parse::<Placement>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
