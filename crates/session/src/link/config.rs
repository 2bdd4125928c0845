//! Configuration of a link in both directions and over time, and the resulting settings of each
//! direction.

use std::time::Duration;

use measure::Time;
use measure::units::{BitRate, Ratio, TimeSpan};
use serde::Serialize;

use super::settings::{Jitter, Loss, Outage, Queue, Settings};
use super::text::HeldBack;

/// Maximum one-way delay. Clients that wait longer do not measure the server any more.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Maximum number of changes over time.
const CHANGES_MAX: usize = 100_000;

/// Settings of a link, all optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartialSettings {
    /// One-way delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<TimeSpan>,
    /// Variation of the delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// Packet loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Bit rate, counted over packets with their IP headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Queue in front of the rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Share of packets that arrive twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Ratio>,
    /// Share of packets that are held back, and for how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<HeldBack>,
    /// Share of packets that arrive with a wrong bit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Ratio>,
    /// Periods in which no packet passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outages: Option<Vec<Outage>>,
}

/// Configuration of a link from some time on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PhaseConfig {
    /// Round-trip time; half of it is the delay of each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<TimeSpan>,
    /// Settings of both directions.
    #[serde(flatten)]
    pub both: PartialSettings,
    /// Settings from the clients to the server. They override those of both directions.
    #[serde(skip_serializing_if = "is_default")]
    pub up: PartialSettings,
    /// Settings from the server to the clients. They override those of both directions.
    #[serde(skip_serializing_if = "is_default")]
    pub down: PartialSettings,
}

/// Configuration of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkConfig {
    /// Initial settings.
    #[serde(flatten)]
    pub first: PhaseConfig,
    /// Maximum length of packets in both directions, in bytes with the IP header. Default 1,500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Changes over time. Settings that a stage omits stay as they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageConfig>,
}

/// Change of a link's settings at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StageConfig {
    /// Time since the start of the run.
    pub at: TimeSpan,
    /// Settings that change.
    #[serde(flatten)]
    pub phase: PhaseConfig,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Settings of one direction over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsTimeline {
    /// Initial settings.
    pub settings: Settings,
    /// Changes, with their time since the start of the run; in order.
    pub changes: Vec<(Time, Settings)>,
}

impl PartialSettings {
    /// Overrides settings by those that `other` has.
    pub fn overlay(&mut self, other: &PartialSettings) {
        fn put<T: Clone>(own: &mut Option<T>, other: &Option<T>) {
            if other.is_some() {
                own.clone_from(other);
            }
        }
        put(&mut self.delay, &other.delay);
        put(&mut self.jitter, &other.jitter);
        put(&mut self.loss, &other.loss);
        put(&mut self.rate, &other.rate);
        put(&mut self.queue, &other.queue);
        put(&mut self.duplicate, &other.duplicate);
        put(&mut self.reorder, &other.reorder);
        put(&mut self.corrupt, &other.corrupt);
        put(&mut self.outages, &other.outages);
    }

    fn settings(&self) -> Result<Settings, String> {
        let delay = self.delay.unwrap_or_default().0;
        if delay > DELAY_MAX {
            return Err(format!(
                "a delay of {} is more than {} one way",
                TimeSpan(delay),
                TimeSpan(DELAY_MAX)
            ));
        }
        if self.queue.is_some() && self.rate.is_none() {
            return Err("a queue has no effect without a rate: add `rate`".to_owned());
        }
        if self.rate == Some(BitRate(0)) {
            return Err("a rate of 0 is not possible: write an outage instead".to_owned());
        }
        let mut outages = self.outages.clone().unwrap_or_default();
        outages.sort_by_key(|outage| outage.from);
        let held_back = self.reorder.unwrap_or_default();
        Ok(Settings {
            delay,
            jitter: self.jitter.unwrap_or_default(),
            loss: self.loss.clone().unwrap_or_default(),
            rate: self.rate.map(|rate| rate.0),
            queue: self.queue.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default().0,
            reorder: held_back.share,
            held_back: held_back.by,
            corrupt: self.corrupt.unwrap_or_default().0,
            outages,
            // The MTU is set on the interfaces.
            mtu: None,
        })
    }
}

impl PhaseConfig {
    /// Applies this phase to the settings of both directions.
    fn apply_to(&self, [up, down]: &mut [PartialSettings; 2]) -> Result<(), String> {
        if self.rtt.is_some() && self.both.delay.is_some() {
            return Err("`rtt` is twice the `delay`: write one of them".to_owned());
        }
        let half = self.rtt.map(|rtt| TimeSpan(rtt.0 / 2));
        for (keys, own) in [(up, &self.up), (down, &self.down)] {
            keys.delay = half.or(keys.delay);
            keys.overlay(&self.both);
            keys.overlay(own);
        }
        Ok(())
    }
}

impl LinkConfig {
    /// Settings of each direction: from the clients to the server, and back.
    ///
    /// # Errors
    /// The configuration is contradictory or out of range; the text says why.
    pub fn timelines(&self) -> Result<[SettingsTimeline; 2], String> {
        let mut keys = <[PartialSettings; 2]>::default();
        self.first.apply_to(&mut keys)?;
        let first = [keys[0].settings()?, keys[1].settings()?];
        let mut courses = first.map(|settings| SettingsTimeline {
            settings,
            changes: Vec::new(),
        });
        if self.stages.len() > CHANGES_MAX {
            return Err(format!("a link has at most {CHANGES_MAX} stages"));
        }
        let mut before = None;
        for stage in &self.stages {
            if before.is_some_and(|before| before >= stage.at) {
                return Err(format!(
                    "stages must be in order of time: {} is not after the one before",
                    stage.at
                ));
            }
            before = Some(stage.at);
            let at = Time::from_start(stage.at.0);
            let said = stage.phase.apply_to(&mut keys);
            said.map_err(|error| format!("at {}: {error}", stage.at))?;
            for (course, keys) in courses.iter_mut().zip(&keys) {
                let settings = keys.settings();
                let settings = settings.map_err(|error| format!("at {}: {error}", stage.at))?;
                course.changes.push((at, settings));
            }
        }
        Ok(courses)
    }

    /// Parses stages from a trace: lines of `time,rate,delay,loss`, in seconds, bit/s, seconds one
    /// way, and a share from 0 to 1. An empty field leaves the setting unchanged. A header line is
    /// skipped, and so are lines that begin with `#`.
    ///
    /// # Errors
    /// A line cannot be parsed; the text has its number.
    pub fn stages_of_trace(text: &str) -> Result<Vec<StageConfig>, String> {
        let mut stages = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let is_heading = index == 0 && line.starts_with(|first: char| first.is_alphabetic());
            if line.is_empty() || line.starts_with('#') || is_heading {
                continue;
            }
            let stage = stage(line).map_err(|error| format!("line {}: {error}", index + 1))?;
            stages.push(stage);
            if stages.len() > CHANGES_MAX {
                return Err(format!("a trace has at most {CHANGES_MAX} lines"));
            }
        }
        Ok(stages)
    }

    /// Summary of the configuration in one line.
    pub fn summary(&self) -> String {
        let mut words = Vec::new();
        if let Some(rtt) = self.first.rtt {
            words.push(format!("RTT {rtt}"));
        }
        words.extend(self.first.both.words());
        for (name, keys) in [("up", &self.first.up), ("down", &self.first.down)] {
            let own = keys.words();
            if !own.is_empty() {
                words.push(format!("{name}: {}", own.join(" ")));
            }
        }
        if let Some(mtu) = self.mtu {
            words.push(format!("MTU {mtu}"));
        }
        if !self.stages.is_empty() {
            words.push(format!("{} changes", self.stages.len()));
        }
        match words.is_empty() {
            true => "no delay, no loss".to_owned(),
            false => words.join(", "),
        }
    }
}

impl PartialSettings {
    fn words(&self) -> Vec<String> {
        let outages = self.outages.iter().flatten();
        let outages: Vec<String> = outages.map(Outage::to_string).collect();
        let words = [
            self.delay.map(|delay| format!("delay {delay}")),
            self.jitter.map(|jitter| format!("jitter {jitter}")),
            self.loss.as_ref().map(|loss| match loss {
                Loss::List(list) => format!("loss of {} listed packets", list.len()),
                loss => format!("loss {loss}"),
            }),
            self.rate.map(|rate| format!("rate {rate}")),
            self.queue.map(|queue| format!("queue {queue}")),
            self.duplicate.map(|share| format!("duplicate {share}")),
            self.reorder.map(|held| format!("reorder {held}")),
            self.corrupt.map(|share| format!("corrupt {share}")),
            (!outages.is_empty()).then(|| format!("outages {}", outages.join(" "))),
        ];
        words.into_iter().flatten().collect()
    }
}

fn stage(line: &str) -> Result<StageConfig, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, rate, delay, loss] = fields[..] else {
        return Err("a line must have four fields: `time,rate,delay,loss`".to_owned());
    };
    let number = |name: &str, text: &str| match text {
        "" => Ok(None),
        _ => match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
            _ => Err(format!(
                "`{text}` is not a {name}: write a number of at least 0"
            )),
        },
    };
    let span = |seconds: f64| Duration::try_from_secs_f64(seconds).map(TimeSpan);
    let at = number("time", time)?.ok_or("the time is missing")?;
    let share = number("loss", loss)?;
    if share.is_some_and(|share| share > 1.0) {
        return Err("a loss is a share from 0 to 1".to_owned());
    }
    let delay = number("delay", delay)?.map(span).transpose();
    Ok(StageConfig {
        at: span(at).map_err(|error| error.to_string())?,
        phase: PhaseConfig {
            both: PartialSettings {
                delay: delay.map_err(|error| error.to_string())?,
                rate: number("rate", rate)?.map(|rate| BitRate(rate as u64)),
                loss: share.map(|share| match share {
                    0.0 => Loss::None,
                    share => Loss::Random(share),
                }),
                ..PartialSettings::default()
            },
            ..PhaseConfig::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> TimeSpan {
        TimeSpan(Duration::from_millis(ms))
    }

    #[test]
    fn direction_overrides_both_and_stage_overrides_earlier_ones() {
        let config = LinkConfig {
            first: PhaseConfig {
                rtt: Some(ms(100)),
                both: PartialSettings {
                    loss: Some(Loss::Random(0.5)),
                    ..PartialSettings::default()
                },
                down: PartialSettings {
                    delay: Some(ms(70)),
                    ..PartialSettings::default()
                },
                ..PhaseConfig::default()
            },
            stages: vec![StageConfig {
                at: ms(2000),
                phase: PhaseConfig {
                    up: PartialSettings {
                        loss: Some(Loss::None),
                        ..PartialSettings::default()
                    },
                    ..PhaseConfig::default()
                },
            }],
            ..LinkConfig::default()
        };
        let [up, down] = config.timelines().expect("it can be");
        assert_eq!(up.settings.delay, ms(50).0);
        assert_eq!(down.settings.delay, ms(70).0);
        assert_eq!(up.settings.loss, Loss::Random(0.5));
        let [(at, up)] = &up.changes[..] else {
            panic!("one change")
        };
        assert_eq!(*at, Time::from_start(Duration::from_secs(2)));
        assert_eq!((&up.loss, up.delay), (&Loss::None, ms(50).0));
        assert_eq!(down.changes[0].1.loss, Loss::Random(0.5));
    }

    #[test]
    fn contradictory_settings_are_refused() {
        let refused = |keys: PartialSettings, rtt: Option<TimeSpan>| {
            let first = PhaseConfig {
                rtt,
                both: keys,
                ..PhaseConfig::default()
            };
            let config = LinkConfig {
                first,
                ..LinkConfig::default()
            };
            config.timelines().expect_err("it cannot be")
        };
        let delay = PartialSettings {
            delay: Some(ms(1)),
            ..PartialSettings::default()
        };
        assert!(refused(delay, Some(ms(2))).contains("write one"));
        let queue = PartialSettings {
            queue: Some(Queue::default()),
            ..PartialSettings::default()
        };
        assert!(refused(queue, None).contains("`rate`"));
        assert!(refused(PartialSettings::default(), Some(ms(200_000))).contains("60s"));
        let stage = |at| StageConfig {
            at: ms(at),
            ..StageConfig::default()
        };
        let config = LinkConfig {
            stages: vec![stage(2), stage(1)],
            ..LinkConfig::default()
        };
        assert!(config.timelines().expect_err("no").contains("in order"));
    }

    #[test]
    fn trace_is_parsed_line_by_line() {
        let text = "time,rate,delay,loss\n# a comment\n0,2000000,0.05,0\n1.5,,,0.02\n";
        let stages = LinkConfig::stages_of_trace(text).expect("it can be read");
        assert_eq!(stages.len(), 2);
        assert_eq!(stages[0].phase.both.rate, Some(BitRate(2_000_000)));
        assert_eq!(stages[1].at, ms(1500));
        assert_eq!(stages[1].phase.both.loss, Some(Loss::Random(0.02)));
        assert_eq!(stages[1].phase.both.rate, None);
        for (text, said) in [
            ("0,1,2", "line 1: a line must have four fields"),
            ("0,x,,", "`x` is not a rate"),
            ("\n,1,,", "line 2: the time is missing"),
            ("0,,,1.5", "from 0 to 1"),
            ("-1,,,", "`-1` is not a time"),
            ("1e300,,,", "line 1"),
        ] {
            let error = LinkConfig::stages_of_trace(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_trace_is_read_or_refused(
            text in prop_oneof![
                any::<String>(),
                "(time,rate,delay,loss\n)?([0-9.e]{0,5},[0-9.e-]{0,9},[0-9.e]{0,5},[0-9.]{0,4}\n){0,9}",
            ],
        ) {
            if let Ok(stages) = LinkConfig::stages_of_trace(&text) {
                // Their order, and settings that contradict each other, may still be refused.
                let _ = LinkConfig { stages, ..LinkConfig::default() }.timelines();
            }
        }
    }
}
