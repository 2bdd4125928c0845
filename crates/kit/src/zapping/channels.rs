//! Schedule of channel changes, and the channels.

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64Mcg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration_range::DurationRange;
use crate::keys::KeyError;

/// Channel changes of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zap {
    /// Time that a client stays on a channel: `5s`, or `2s..10s` for times drawn from the seed. At
    /// least 100ms.
    pub every: DurationRange,
    /// Number of changes. The client leaves when the next change would be due. Default: unlimited,
    /// for as long as the client stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// Minimum time on a channel.
const STAY_MIN: Duration = Duration::from_millis(100);

impl Zap {
    /// Checks the values. Returns the problem and its fix.
    pub fn check(&self) -> Result<(), String> {
        if self.every.min < STAY_MIN {
            let text = "clients cannot change channel that fast; write `zap: {every: 100ms}` or a \
                        longer time";
            return Err(text.to_owned());
        }
        if self.count == Some(0) {
            return Err("`zap` with a `count` of 0 has no effect; remove it".to_owned());
        }
        Ok(())
    }

    /// Checks the values, and that none of the keys that exclude `zap` is written. Returns the key
    /// and the reason.
    pub fn check_with(&self, others: &[(&'static str, bool)]) -> Result<(), KeyError> {
        self.check().map_err(|text| ("zap", text))?;
        match others.iter().find(|(_, is_written)| *is_written) {
            Some((key, _)) => {
                let text = format!("`zap` cannot be combined with `{key}`; remove one of them");
                Err(("zap", text))
            }
            None => Ok(()),
        }
    }

    /// Describes the channel changes in words.
    pub fn describe(&self) -> String {
        match self.count {
            None => format!("changes channel every {}", self.every),
            Some(1) => format!("changes channel once, after {}, and leaves", self.every),
            Some(count) => format!(
                "changes channel every {}, {count} times, and leaves",
                self.every
            ),
        }
    }
}

/// Channels between which the clients of a population change, as URLs of the protocol.
#[derive(Debug)]
pub struct Channels<U> {
    pub urls: Vec<U>,
    in_turn: bool,
}

impl<U: PartialEq> Channels<U> {
    /// Creates a list, which must have at least two different channels. If `in_turn`, each is
    /// followed by the next, otherwise by any other.
    pub fn new(urls: Vec<U>, in_turn: bool) -> Channels<U> {
        Channels { urls, in_turn }
    }

    /// Returns the index of the channel after `index`.
    pub fn next_index(&self, index: usize, random: &mut Pcg64Mcg) -> usize {
        let count = self.urls.len().max(2);
        let drawn = random.next_u64() % (count as u64 - 1);
        let step = 1 + if self.in_turn { 0 } else { drawn as usize };
        let others = (0..count).map(|more| (index + step + more) % count);
        // A channel that is listed twice does not follow itself.
        let differs = |&other: &usize| self.urls.get(other) != self.urls.get(index);
        others.into_iter().find(differs).unwrap_or(index)
    }
}
