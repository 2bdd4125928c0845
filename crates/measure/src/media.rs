//! What servers say of their media, and whether clients that pick among it at random are dealt
//! alike.
//!
//! With k URLs of bit rates r of which each of n clients picks one, all as likely, what they ask
//! for together has the mean n × mean(r) and the standard deviation √n × sd(r). So the relative
//! standard deviation, by which another seed gives another load, is cv / √n, where cv = sd(r) /
//! mean(r) is the coefficient of variation over the URLs. The same holds for how long clients play.
//! Of a share p of the URLs that have one format, the share of clients that play it has the
//! standard deviation √(p (1 - p) / n). Each of these is held against [`UNCERTAIN`].

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From this standard deviation on, relative to the whole, picking at random is said to make a
/// result uncertain: one run in twenty then differs by more than twice of it.
pub const UNCERTAIN: f64 = 0.02;

/// What a server says of the media of one URL, before any of it is played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MediaDescription {
    /// How long it is, in seconds; null where that is not said, as of a live stream.
    pub length: Option<f64>,
    /// The bit rate of all its streams that state one, or of the whole where that is stated, in
    /// bit/s; null where none is.
    pub bitrate: Option<u64>,
    /// What each stream carries.
    pub streams: Vec<StreamDescription>,
}

/// What a server says of one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamDescription {
    /// What it carries: `video`, `audio`, `text`, `application` or `other`.
    pub kind: String,
    /// The encoding's name; null where it is not said.
    pub codec: Option<String>,
    /// The clock of its timestamps in Hz, which of most sound is the sampling rate; null where it
    /// is not said.
    pub clock_rate: Option<u32>,
    /// Channels of sound; null where they are not said.
    pub channels: Option<u32>,
    /// Width and height of pictures; null where they are not said.
    pub resolution: Option<(u32, u32)>,
    /// Its bit rate in bit/s; null where it is not said.
    pub bitrate: Option<u64>,
}

/// A URL of a population, and what its server said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DescribedUrl {
    /// The population.
    pub population: String,
    /// The URL, without its password.
    pub url: String,
    /// What was said; null where nothing could be learnt.
    pub description: Option<MediaDescription>,
    /// Why nothing could be learnt.
    pub failure: Option<String>,
}

/// In what the URLs of a population differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// In their stated bit rates.
    BitRate,
    /// In how long a client plays.
    Length,
    /// In codec, resolution or sampling rate.
    Format,
}

/// A difference among the URLs of a population that makes picking at random uncertain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The population.
    pub population: String,
    /// In what they differ.
    pub kind: DifferenceKind,
    /// By how much the load differs from seed to seed: its standard deviation, relative to the
    /// whole.
    pub deviation: f64,
    /// The same in a sentence, with the figures that it comes from.
    pub text: String,
}

/// What was learnt of the media of a scenario, before the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Media {
    /// Each URL of each population, in the scenario's order.
    pub urls: Vec<DescribedUrl>,
    /// What makes picking among them at random uncertain.
    pub differences: Vec<Difference>,
}

/// How the clients of a population pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picking {
    /// How many clients play at a time, at most.
    pub clients: u64,
    /// When each leaves at the latest; none where that is when its media ends.
    pub leave: Option<Duration>,
}

impl StreamDescription {
    /// Its format in a few words, such as `H264 1280x720` or `MPEG4-GENERIC 48000 Hz`.
    pub fn format(&self) -> String {
        let mut text = self
            .codec
            .clone()
            .unwrap_or_else(|| format!("unknown {}", self.kind));
        if let Some((width, height)) = self.resolution {
            text += &format!(" {width}x{height}");
        }
        if self.kind == "audio" {
            if let Some(rate) = self.clock_rate {
                text += &format!(" {rate} Hz");
            }
            if let Some(channels) = self.channels.filter(|&channels| channels > 1) {
                text += &format!(" x{channels}");
            }
        }
        text
    }
}

impl MediaDescription {
    /// The formats of all its streams in a few words.
    pub fn format(&self) -> String {
        let formats: Vec<String> = self.streams.iter().map(StreamDescription::format).collect();
        formats.join(" + ")
    }

    /// The kinds of its streams whose bit rate is not stated; none where that of the whole is.
    pub fn unstated(&self) -> Vec<&str> {
        let stated: u64 = self.streams.iter().filter_map(|s| s.bitrate).sum();
        if self.bitrate.is_some_and(|whole| whole != stated) {
            return Vec::new();
        }
        let unstated = self.streams.iter().filter(|s| s.bitrate.is_none());
        unstated.map(|stream| stream.kind.as_str()).collect()
    }
}

/// What differs so much among what was described of one population that picking at random makes a
/// result uncertain.
///
/// What is not stated is not compared; each sentence says of how many URLs that is.
pub fn differences(population: &str, urls: &[DescribedUrl], picking: Picking) -> Vec<Difference> {
    let described: Vec<&MediaDescription> = urls
        .iter()
        .filter(|url| url.population == population)
        .filter_map(|url| url.description.as_ref())
        .collect();
    let all = urls
        .iter()
        .filter(|url| url.population == population)
        .count();
    if described.len() < 2 || picking.clients == 0 {
        return Vec::new();
    }
    let compare = Compare {
        population,
        all,
        clients: picking.clients,
    };
    [
        compare.bit_rates(&described),
        compare.lengths(&described, picking.leave),
        compare.formats(&described),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct Compare<'a> {
    population: &'a str,
    /// How many URLs there are.
    all: usize,
    clients: u64,
}

impl Compare<'_> {
    fn bit_rates(&self, described: &[&MediaDescription]) -> Option<Difference> {
        // A picture alone is not to be held against a picture with its sound.
        let mut alike: BTreeMap<Vec<&str>, Vec<f64>> = BTreeMap::new();
        for media in described {
            if let Some(rate) = media.bitrate {
                let rates = alike.entry(media.unstated()).or_default();
                rates.push(rate as f64);
            }
        }
        let rates = alike.into_values().max_by_key(Vec::len)?;
        let (deviation, figures) = self.spread(&rates, "Mbit/s", |rate| {
            format!("{:.3}", rate / 1e6)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        })?;
        let text = format!(
            "the bit rates of the URLs differ: {figures}{}; what {} clients that pick at random ask for \
             together then differs by {:.1} % from seed to seed (standard deviation)",
            self.of(rates.len()),
            self.clients,
            deviation * 100.0
        );
        Some(self.difference(DifferenceKind::BitRate, deviation, text))
    }

    fn lengths(
        &self,
        described: &[&MediaDescription],
        leave: Option<Duration>,
    ) -> Option<Difference> {
        let latest = leave.map_or(f64::INFINITY, |leave| leave.as_secs_f64());
        let lengths: Vec<f64> = described
            .iter()
            .filter_map(|media| Some(media.length?.min(latest)))
            .collect();
        let (deviation, figures) = self.spread(&lengths, "s", |seconds| {
            format!("{seconds:.1}").trim_end_matches(".0").to_owned()
        })?;
        let text = format!(
            "clients play for times that differ with the URL: {figures}{}; how long {} clients that pick at random \
             play together then differs by {:.1} % from seed to seed (standard deviation)",
            self.of(lengths.len()),
            self.clients,
            deviation * 100.0
        );
        Some(self.difference(DifferenceKind::Length, deviation, text))
    }

    fn formats(&self, described: &[&MediaDescription]) -> Option<Difference> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for media in described {
            *counts.entry(media.format()).or_default() += 1;
        }
        if counts.len() < 2 {
            return None;
        }
        let all = described.len() as f64;
        let deviation_of = |count: usize| {
            let share = count as f64 / all;
            (share * (1.0 - share) / self.clients as f64).sqrt()
        };
        let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let deviation = counts
            .iter()
            .map(|&(_, count)| deviation_of(count))
            .fold(0.0, f64::max);
        if deviation <= UNCERTAIN {
            return None;
        }
        let mut shown: Vec<String> = counts
            .iter()
            .take(4)
            .map(|(format, count)| format!("{count} of {format}"))
            .collect();
        if counts.len() > shown.len() {
            shown.push(format!("{} more formats", counts.len() - shown.len()));
        }
        let text = format!(
            "the formats of the URLs differ: {}{}; which share of {} clients that pick at random plays one of them differs by \
             {:.1} percentage points from seed to seed (standard deviation)",
            shown.join(", "),
            self.of(described.len()),
            self.clients,
            deviation * 100.0
        );
        Some(self.difference(DifferenceKind::Format, deviation, text))
    }

    /// The relative standard deviation of a sum of as many picks as there are clients, and the
    /// figures in words; none where it is not worth a word.
    fn spread(
        &self,
        figures: &[f64],
        unit: &str,
        show: impl Fn(f64) -> String,
    ) -> Option<(f64, String)> {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        if figures.len() < 2 || mean <= 0.0 {
            return None;
        }
        let variance = figures
            .iter()
            .map(|figure| (figure - mean).powi(2))
            .sum::<f64>()
            / count;
        let variation = variance.sqrt() / mean;
        let deviation = variation / (self.clients as f64).sqrt();
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figures.iter().copied().fold(0.0, f64::max);
        (deviation > UNCERTAIN).then(|| {
            let text = format!(
                "{} to {} {unit}, on average {}, coefficient of variation {variation:.2}",
                show(least),
                show(most),
                show(mean)
            );
            (deviation, text)
        })
    }

    /// Of how many URLs something is known, where that is not of all.
    fn of(&self, known: usize) -> String {
        if known == self.all {
            return String::new();
        }
        format!(" (known of {known} of {} URLs)", self.all)
    }

    fn difference(&self, kind: DifferenceKind, deviation: f64, text: String) -> Difference {
        Difference {
            population: self.population.to_owned(),
            kind,
            deviation,
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(bitrate: Option<u64>, length: Option<f64>, codec: &str) -> DescribedUrl {
        DescribedUrl {
            population: "viewers".to_owned(),
            url: "x://h/a".to_owned(),
            description: Some(MediaDescription {
                length,
                bitrate,
                streams: vec![StreamDescription {
                    kind: "video".to_owned(),
                    codec: Some(codec.to_owned()),
                    clock_rate: Some(90_000),
                    channels: None,
                    resolution: Some((1280, 720)),
                    bitrate,
                }],
            }),
            failure: None,
        }
    }

    fn found(urls: &[DescribedUrl], clients: u64, leave: Option<u64>) -> Vec<Difference> {
        let leave = leave.map(Duration::from_secs);
        differences("viewers", urls, Picking { clients, leave })
    }

    #[test]
    fn alike_media_is_not_worth_a_word() {
        let urls = vec![url(Some(1_000_000), Some(60.0), "H264"); 10];
        assert_eq!(found(&urls, 10, None), []);
        assert_eq!(found(&urls[..1], 10, None), []);
        assert_eq!(found(&[], 10, None), []);
        // Nor is what nothing is said of, or what others have.
        let blind = vec![url(None, None, "H264"); 10];
        assert_eq!(found(&blind, 10, None), []);
        let mut others = vec![
            url(Some(1), None, "H264"),
            url(Some(1_000_000), None, "H264"),
        ];
        others[0].population = "more".to_owned();
        assert_eq!(found(&others, 10, None), []);
    }

    #[test]
    fn what_differs_is_judged_by_how_many_pick() {
        let urls = [
            url(Some(1_000_000), Some(60.0), "H264"),
            url(Some(3_000_000), Some(60.0), "H264"),
        ];
        // sd / mean is 0.5.
        let differences = found(&urls, 100, None);
        assert_eq!(differences.len(), 1);
        assert_eq!(differences[0].kind, DifferenceKind::BitRate);
        assert!((differences[0].deviation - 0.05).abs() < 1e-12);
        let text = &differences[0].text;
        assert!(
            text.contains("1 to 3 Mbit/s, on average 2, coefficient of variation 0.50"),
            "{text}"
        );
        assert!(
            text.contains("100 clients") && text.contains("5.0 %"),
            "{text}"
        );
        assert_eq!(found(&urls, 1000, None), []);
    }

    #[test]
    fn the_deviation_is_that_of_picks() {
        // By going through every way in which three clients can pick of two.
        let (rates, clients) = ([1.0, 3.0], 3u32);
        let sums: Vec<f64> = (0..2u32.pow(clients))
            .map(|ways| {
                (0..clients)
                    .map(|client| rates[(ways >> client & 1) as usize])
                    .sum()
            })
            .collect();
        let mean = sums.iter().sum::<f64>() / sums.len() as f64;
        let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / sums.len() as f64;
        let urls = rates.map(|rate| url(Some((rate * 1e6) as u64), None, "H264"));
        let differences = found(&urls, clients.into(), None);
        assert!((differences[0].deviation - variance.sqrt() / mean).abs() < 1e-12);
    }

    #[test]
    fn lengths_count_up_to_when_clients_leave() {
        let urls = [
            url(None, Some(60.0), "H264"),
            url(None, Some(600.0), "H264"),
        ];
        assert_eq!(found(&urls, 100, None)[0].kind, DifferenceKind::Length);
        assert_eq!(found(&urls, 100, Some(60)), []);
        // 60 and 90: cv 0.2, of 25 clients 4 %.
        let differences = found(&urls, 25, Some(90));
        assert!((differences[0].deviation - 0.04).abs() < 1e-12);
    }

    #[test]
    fn formats_count_by_their_share() {
        let mut urls = vec![url(None, None, "H264"); 8];
        urls.extend(vec![url(None, None, "H265"); 2]);
        let differences = found(&urls, 100, None);
        assert_eq!(differences.len(), 1);
        // √(0.2 × 0.8 / 100)
        assert!((differences[0].deviation - 0.04).abs() < 1e-12);
        let text = &differences[0].text;
        assert!(
            text.contains("8 of H264 1280x720, 2 of H265 1280x720"),
            "{text}"
        );
        assert_eq!(found(&urls, 1000, None), []);
    }

    #[test]
    fn what_is_not_stated_is_not_compared_and_said() {
        let mut urls = vec![url(Some(1_000_000), None, "H264"); 2];
        urls.extend(vec![url(Some(4_000_000), None, "H264"); 2]);
        urls.push(url(None, None, "H264"));
        urls.push(DescribedUrl {
            description: None,
            failure: Some("404".to_owned()),
            ..urls[0].clone()
        });
        let text = &found(&urls, 10, None)[0].text;
        assert!(text.contains("(known of 4 of 6 URLs)"), "{text}");
        // A picture whose sound states none, beside one that has none.
        let mut with_sound = url(Some(9_000_000), None, "H264");
        let media = with_sound.description.as_mut().expect("it is described");
        media.streams.push(StreamDescription {
            kind: "audio".to_owned(),
            codec: Some("PCMU".to_owned()),
            clock_rate: Some(8000),
            channels: Some(2),
            resolution: None,
            bitrate: None,
        });
        assert_eq!(media.unstated(), ["audio"]);
        assert_eq!(media.format(), "H264 1280x720 + PCMU 8000 Hz x2");
        let urls = [
            url(Some(1_000_000), None, "H264"),
            url(Some(1_000_000), None, "H264"),
            with_sound,
        ];
        let kinds: Vec<DifferenceKind> = found(&urls, 10, None).iter().map(|d| d.kind).collect();
        assert_eq!(kinds, [DifferenceKind::Format]);
    }
}
