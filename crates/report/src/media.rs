//! Descriptions of the servers' media before the run, in words.

use measure::Unit;
use measure::media::{DescribedUrl, Media, MediaDescription};

use crate::human::{duration, figure};
use crate::sanitize;
use crate::shorten::shorten;

/// Maximum columns of a URL. The description of its media needs space next to it.
const URL_MAX: usize = 48;

/// Returns a line for each URL, and one for each difference between URLs that makes picking at
/// random uncertain.
pub fn lines(media: &Media) -> Vec<String> {
    let of_several = media
        .urls
        .iter()
        .any(|url| url.population != media.urls[0].population);
    let urls = media.urls.iter().map(|url| {
        let text = format!("{}: {}", shorten(&url.url, URL_MAX), of_url(url));
        match of_several {
            true => format!("{}: {text}", url.population),
            false => text,
        }
    });
    urls.chain(warnings(media))
        .map(|line| sanitize::single_line(&line).into_owned())
        .collect()
}

/// Returns a line for each difference that makes picking at random uncertain.
pub fn warnings(media: &Media) -> Vec<String> {
    let warnings = media.differences.iter();
    warnings
        .map(|difference| format!("warning: {}: {}", difference.population, difference.text))
        .collect()
}

fn of_url(url: &DescribedUrl) -> String {
    match (&url.description, &url.failure) {
        (Some(description), _) => of_description(description),
        (None, Some(failure)) => format!("not known: {failure}"),
        (None, None) => "not known".to_owned(),
    }
}

/// Describes formats, bit rate and length. What the server did not state is called unknown.
pub fn of_description(description: &MediaDescription) -> String {
    let rate = match (description.bitrate, description.kinds_without_bitrate()) {
        (None, _) => "bit rate unknown".to_owned(),
        (Some(rate), unstated) => {
            let rate = figure(Unit::BitsPerSecond, rate as f64);
            match unstated.is_empty() {
                true => rate,
                false => format!("{rate} without {}", unstated.join(" and ")),
            }
        }
    };
    let length = match description.length {
        Some(length) => duration(length),
        None => "length unknown".to_owned(),
    };
    format!("{}, {rate}, {length}", description.format())
}

#[cfg(test)]
mod tests {
    use measure::media::{Difference, DifferenceKind, StreamDescription};

    use super::*;

    #[test]
    fn known_and_unknown_properties_are_stated() {
        let stream = |kind: &str, bitrate| StreamDescription {
            kind: kind.to_owned(),
            codec: Some(kind.to_uppercase()),
            clock_rate: None,
            channels: None,
            resolution: None,
            bitrate,
        };
        let url = |description, failure: Option<&str>| DescribedUrl {
            population: "viewers".to_owned(),
            url: "rtsp://h/a".to_owned(),
            description,
            failure: failure.map(str::to_owned),
        };
        let known = MediaDescription {
            length: Some(60.0),
            bitrate: Some(1_000_000),
            streams: vec![stream("video", Some(1_000_000)), stream("audio", None)],
        };
        let unknown = MediaDescription {
            streams: vec![stream("video", None)],
            ..MediaDescription::default()
        };
        let media = Media {
            urls: vec![
                url(Some(known), None),
                url(Some(unknown), None),
                url(None, Some("status_404: no")),
            ],
            differences: vec![Difference {
                population: "viewers".to_owned(),
                kind: DifferenceKind::BitRate,
                deviation: 0.1,
                text: "they differ".to_owned(),
            }],
        };
        assert_eq!(
            lines(&media),
            [
                "rtsp://h/a: VIDEO + AUDIO, 1 Mbit/s without audio, 1 min",
                "rtsp://h/a: VIDEO, bit rate unknown, length unknown",
                "rtsp://h/a: not known: status_404: no",
                "warning: viewers: they differ",
            ]
        );
        assert_eq!(lines(&Media::default()), [] as [&str; 0]);
    }
}
