//! Media descriptions of servers, and whether clients that pick URLs at random generate a
//! reproducible load.
//!
//! If each of n clients picks one of k URLs with bit rates r, all with equal probability, the total
//! bit rate has mean n × mean(r) and standard deviation √n × sd(r). The relative standard deviation
//! of the load between seeds is therefore cv / √n, where cv = sd(r) / mean(r) is the coefficient of
//! variation over the URLs. The same holds for play times. If a share p of the URLs has one format,
//! the share of clients that play it has the standard deviation √(p (1 - p) / n). Each of these is
//! compared with [`DEVIATION_MAX`].

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::human::trim_point;

/// Relative standard deviation above which picking at random makes a result uncertain: one run in
/// twenty then differs by more than twice this value.
pub const DEVIATION_MAX: f64 = 0.02;

/// A server's description of the media of one URL, before it is played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MediaDescription {
    /// Duration in seconds; `null` if not stated, as for a live stream.
    pub length: Option<f64>,
    /// Sum of the bit rates of all streams that state one, or the stated bit rate of the whole, in
    /// bit/s; `null` if none is stated.
    pub bitrate: Option<u64>,
    /// The streams.
    pub streams: Vec<StreamDescription>,
}

/// A server's description of one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamDescription {
    /// Type of media: `video`, `audio`, `text`, `application` or `other`.
    pub kind: String,
    /// Name of the encoding; `null` if not stated.
    pub codec: Option<String>,
    /// Clock rate of the timestamps in Hz, which for most audio is the sampling rate; `null` if not
    /// stated.
    pub clock_rate: Option<u32>,
    /// Number of audio channels; `null` if not stated.
    pub channels: Option<u32>,
    /// Width and height of the pictures; `null` if not stated.
    pub resolution: Option<(u32, u32)>,
    /// Bit rate in bit/s; `null` if not stated.
    pub bitrate: Option<u64>,
}

/// A URL of a population with its server's description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DescribedUrl {
    /// Name of the population.
    pub population: String,
    /// The URL, without its password.
    pub url: String,
    /// The description; `null` if it could not be obtained.
    pub description: Option<MediaDescription>,
    /// Reason why there is no description.
    pub failure: Option<String>,
}

/// Property in which the URLs of a population differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Stated bit rate.
    BitRate,
    /// Play time of a client.
    Length,
    /// Codec, resolution or sampling rate.
    Format,
}

/// A difference between the URLs of a population that makes picking at random uncertain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Name of the population.
    pub population: String,
    /// Property in which they differ.
    pub kind: DifferenceKind,
    /// Standard deviation of the load between seeds, relative to the whole.
    pub deviation: f64,
    /// The difference as a sentence, with the underlying figures.
    pub text: String,
}

/// Descriptions of the media of a scenario, obtained before the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Media {
    /// All URLs of all populations, in the scenario's order.
    pub urls: Vec<DescribedUrl>,
    /// Differences that make picking at random uncertain.
    pub differences: Vec<Difference>,
}

/// How the clients of a population pick URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picking {
    /// Maximum number of clients that play at the same time.
    pub clients: u64,
    /// Time after which each client leaves at the latest; `None` if clients leave when their media
    /// ends.
    pub leave: Option<Duration>,
}

impl StreamDescription {
    /// Format in a few words, such as `H264 1280x720` or `MPEG4-GENERIC 48000 Hz`.
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
    /// Formats of all streams in a few words.
    pub fn format(&self) -> String {
        let formats: Vec<String> = self.streams.iter().map(StreamDescription::format).collect();
        formats.join(" + ")
    }

    /// Types of the streams that state no bit rate; empty if the bit rate of the whole is stated.
    pub fn kinds_without_bitrate(&self) -> Vec<&str> {
        let stated: u64 = self.streams.iter().filter_map(|s| s.bitrate).sum();
        if self.bitrate.is_some_and(|whole| whole != stated) {
            return Vec::new();
        }
        let unstated = self.streams.iter().filter(|s| s.bitrate.is_none());
        unstated.map(|stream| stream.kind.as_str()).collect()
    }
}

/// Returns the differences between the described URLs of a population that make picking at random
/// uncertain.
///
/// Values that are not stated are not compared. Each sentence gives the number of URLs with a known
/// value.
pub fn differences(population: &str, urls: &[DescribedUrl], picking: Picking) -> Vec<Difference> {
    let own = urls.iter().filter(|url| url.population == population);
    let all = own.clone().count();
    let described: Vec<&MediaDescription> =
        own.filter_map(|url| url.description.as_ref()).collect();
    if described.len() < 2 || picking.clients == 0 {
        return Vec::new();
    }
    let compare = UrlComparison {
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

struct UrlComparison<'a> {
    population: &'a str,
    /// Number of URLs of the population.
    all: usize,
    clients: u64,
}

impl UrlComparison<'_> {
    fn bit_rates(&self, described: &[&MediaDescription]) -> Option<Difference> {
        // Only descriptions that lack the same bit rates are compared: video alone must not be
        // compared with video and audio.
        let mut groups: BTreeMap<Vec<&str>, Vec<f64>> = BTreeMap::new();
        for media in described {
            if let Some(rate) = media.bitrate {
                let rates = groups.entry(media.kinds_without_bitrate()).or_default();
                rates.push(rate as f64);
            }
        }
        let rates = groups.into_values().max_by_key(Vec::len)?;
        self.spread(
            DifferenceKind::BitRate,
            "bit rate",
            "Mbit/s",
            &rates,
            |rate| trim_point(format!("{:.3}", rate / 1e6)),
        )
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
        self.spread(
            DifferenceKind::Length,
            "play time",
            "s",
            &lengths,
            |seconds| format!("{seconds:.1}").trim_end_matches(".0").to_owned(),
        )
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
        if deviation <= DEVIATION_MAX {
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
            "the formats of the URLs differ: {}{}; of {} clients that pick at random, the share that \
             plays one of them then varies by {:.1} percentage points from seed to seed (standard \
             deviation)",
            shown.join(", "),
            self.known_suffix(described.len()),
            self.clients,
            deviation * 100.0
        );
        Some(self.difference(DifferenceKind::Format, deviation, text))
    }

    /// Compares the figures of `noun` by the relative standard deviation of a sum of one pick per
    /// client; `None` if the deviation is insignificant.
    fn spread(
        &self,
        kind: DifferenceKind,
        noun: &str,
        unit: &str,
        figures: &[f64],
        show: impl Fn(f64) -> String,
    ) -> Option<Difference> {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        if figures.len() < 2 || mean <= 0.0 {
            return None;
        }
        let squares = figures.iter().map(|figure| (figure - mean).powi(2));
        let variation = (squares.sum::<f64>() / count).sqrt() / mean;
        let deviation = variation / (self.clients as f64).sqrt();
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figures.iter().copied().fold(0.0, f64::max);
        if deviation.is_nan() || deviation <= DEVIATION_MAX {
            return None;
        }
        let text = format!(
            "the {noun}s of the URLs differ: {} to {} {unit}, on average {}, coefficient of variation \
             {variation:.2}{}; the total {noun} of {} clients that pick at random then varies by {:.1} % \
             from seed to seed (standard deviation)",
            show(least),
            show(most),
            show(mean),
            self.known_suffix(figures.len()),
            self.clients,
            deviation * 100.0
        );
        Some(self.difference(kind, deviation, text))
    }

    /// States for how many URLs the value is known; empty if for all.
    fn known_suffix(&self, known: usize) -> String {
        if known == self.all {
            return String::new();
        }
        format!(" (known for {known} of {} URLs)", self.all)
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
    fn similar_media_has_no_differences() {
        let urls = vec![url(Some(1_000_000), Some(60.0), "H264"); 10];
        assert_eq!(found(&urls, 10, None), []);
        assert_eq!(found(&urls[..1], 10, None), []);
        assert_eq!(found(&[], 10, None), []);
        // URLs without stated values and URLs of other populations are ignored.
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
    fn differences_depend_on_the_number_of_clients() {
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
    fn deviation_matches_an_enumeration_of_all_picks() {
        // Enumerates all ways in which three clients can pick one of two URLs.
        let (rates, clients) = ([1.0, 3.0], 3u32);
        let sums: Vec<f64> = (0..2u32.pow(clients))
            .map(|picks| {
                (0..clients)
                    .map(|client| rates[(picks >> client & 1) as usize])
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
    fn play_times_are_capped_at_leaving() {
        let urls = [
            url(None, Some(60.0), "H264"),
            url(None, Some(600.0), "H264"),
        ];
        assert_eq!(found(&urls, 100, None)[0].kind, DifferenceKind::Length);
        assert_eq!(found(&urls, 100, Some(60)), []);
        // 60 and 90: cv 0.2, for 25 clients 4 %.
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
    fn unstated_values_are_not_compared() {
        let mut urls = vec![url(Some(1_000_000), None, "H264"); 2];
        urls.extend(vec![url(Some(4_000_000), None, "H264"); 2]);
        urls.push(url(None, None, "H264"));
        urls.push(DescribedUrl {
            description: None,
            failure: Some("404".to_owned()),
            ..urls[0].clone()
        });
        let text = &found(&urls, 10, None)[0].text;
        assert!(text.contains("(known for 4 of 6 URLs)"), "{text}");
        // A video whose audio states no bit rate is not compared with a video without audio.
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
        assert_eq!(media.kinds_without_bitrate(), ["audio"]);
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
