//! Playlists of the server (RFC 8216, draft-pantos-hls-rfc8216bis).

use std::fmt::Write as _;
use std::time::Duration;

use time::OffsetDateTime;

use super::Shared;
use super::faults::is_nth;
use crate::playlist::Place;
use kit::mediagen::segments::Container;

/// Target durations, from the end, beyond which an update may leave out segments (rfc8216bis,
/// 4.4.3.8: at least six).
const SKIP_TARGETS: u32 = 6;

/// Part targets of the hold-back for players of parts (at least two; three are recommended).
const PART_HOLD_BACK: u32 = 3;

/// Target durations, from the end, for which parts are listed (rfc8216bis, 6.2.2).
const PART_TARGETS: u32 = 3;

/// Text that cannot be refused.
const INFALLIBLE: &str = "a text takes everything";

impl Shared {
    /// Suffix of segments.
    pub(super) fn suffix(&self) -> &'static str {
        match self.config.container {
            Container::MpegTs => "ts",
            Container::FragmentedMp4 => "m4s",
        }
    }

    /// Target duration (RFC 8216, 4.3.3.1): that of a segment, rounded to whole seconds.
    pub(super) fn target(&self) -> Duration {
        let segment = self.timeline.duration(&self.timeline.pictures_of(0));
        Duration::from_secs((segment.as_secs_f64().round() as u64).max(1))
    }
}

/// Writes the multivariant playlist.
pub(super) fn multivariant(server: &Shared) -> String {
    let mut text = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n".to_owned();
    for (variant, video) in server.videos.iter().enumerate() {
        let (width, height) = video.size();
        let rate = video.frame_rate();
        let rate = f64::from(rate.numerator()) / f64::from(rate.denominator());
        write!(
            text,
            "#EXT-X-STREAM-INF:BANDWIDTH={},CODECS=\"{}\",RESOLUTION={width}x{height},\
             FRAME-RATE={rate:.3}\n{variant}/index.m3u8\n",
            server.bandwidths[variant],
            video.codec(),
        )
        .expect(INFALLIBLE);
    }
    text
}

/// Writes the playlist of a variant.
pub(super) fn media(
    server: &Shared,
    variant: usize,
    (end, is_over): (Place, bool),
    is_above: bool,
    may_skip: bool,
) -> String {
    let (timeline, config) = (&server.timeline, &server.config);
    let folder = match is_above {
        true => format!("{variant}/"),
        false => String::new(),
    };
    let suffix = server.suffix();
    let target = server.target();
    let first = match config.is_recorded {
        true => 0,
        false => end.sequence.saturating_sub(config.window),
    };
    let mut text = format!(
        "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:{}\n",
        target.as_secs()
    );
    let mut control = Vec::new();
    let skip_until = SKIP_TARGETS * target;
    let part = timeline.part.filter(|_| !config.is_recorded);
    let part_target = part.map(|part| timeline.duration(&(0..part)));
    if let Some(part_target) = part_target {
        control.push("CAN-BLOCK-RELOAD=YES".to_owned());
        control.push(format!("CAN-SKIP-UNTIL={:.3}", skip_until.as_secs_f64()));
        let hold_back = PART_HOLD_BACK * part_target;
        control.push(format!("PART-HOLD-BACK={:.3}", hold_back.as_secs_f64()));
    }
    if !control.is_empty() {
        writeln!(text, "#EXT-X-SERVER-CONTROL:{}", control.join(",")).expect(INFALLIBLE);
    }
    if let Some(part_target) = part_target {
        let target = part_target.as_secs_f64();
        writeln!(text, "#EXT-X-PART-INF:PART-TARGET={target:.5}").expect(INFALLIBLE);
    }
    writeln!(text, "#EXT-X-MEDIA-SEQUENCE:{first}").expect(INFALLIBLE);
    if config.is_recorded {
        text += "#EXT-X-PLAYLIST-TYPE:VOD\n";
    }
    let skipped = match may_skip {
        true => skippable(server, first, end, skip_until),
        false => 0,
    };
    if skipped > 0 {
        writeln!(text, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}").expect(INFALLIBLE);
    } else if server.video(variant).initialization().is_some() {
        writeln!(text, "#EXT-X-MAP:URI=\"{folder}init.mp4\"").expect(INFALLIBLE);
    }
    for sequence in first + skipped..end.sequence + u64::from(end.part > 0) {
        let pictures = timeline.pictures_of(sequence);
        let is_gap = server.is_gap(sequence);
        if is_nth(config.faults.discontinuity, sequence) {
            text += "#EXT-X-DISCONTINUITY\n";
        }
        let date = date(timeline.date(pictures.start));
        writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{date}").expect(INFALLIBLE);
        if is_gap {
            text += "#EXT-X-GAP\n";
        }
        let is_whole = sequence < end.sequence;
        let after = timeline
            .pictures_of(end.sequence)
            .start
            .saturating_sub(pictures.end);
        if part.is_some() && timeline.duration(&(0..after)) < PART_TARGETS * target {
            let count = match is_whole {
                true => timeline.parts_of_segment(),
                false => end.part,
            };
            for part in 0..count {
                let place = Place { sequence, part };
                let pictures = timeline.pictures_of_part(place);
                let duration = timeline.duration(&pictures).as_secs_f64();
                let independent = match server.video(variant).is_key(pictures.start) {
                    true => ",INDEPENDENT=YES",
                    false => "",
                };
                let gap = if is_gap { ",GAP=YES" } else { "" };
                writeln!(
                    text,
                    "#EXT-X-PART:DURATION={duration:.5},\
                     URI=\"{folder}{sequence}.{part}.{suffix}\"{independent}{gap}"
                )
                .expect(INFALLIBLE);
            }
        }
        if is_whole {
            let duration = server.stated_duration(sequence).as_secs_f64();
            writeln!(text, "#EXTINF:{duration:.5},\n{folder}{sequence}.{suffix}")
                .expect(INFALLIBLE);
        }
    }
    if is_over {
        text += "#EXT-X-ENDLIST\n";
    } else if part.is_some() && !server.is_gap(end.sequence) {
        let name = match is_nth(config.faults.wrong_hint, server.number(end)) {
            true => "wrong-",
            false => "",
        };
        let Place { sequence, part } = end;
        writeln!(
            text,
            "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{folder}{name}{sequence}.{part}.{suffix}\""
        )
        .expect(INFALLIBLE);
        if !is_above {
            write_reports(&mut text, server, variant, end);
        }
    }
    text
}

/// Writes what the playlists of the other variants end with: the same as that of this one.
fn write_reports(text: &mut String, server: &Shared, variant: usize, end: Place) {
    let last = match end.part.checked_sub(1) {
        Some(part) => Place { part, ..end },
        None => Place {
            sequence: end.sequence.saturating_sub(1),
            part: server.timeline.parts_of_segment().saturating_sub(1),
        },
    };
    for other in (0..server.videos.len()).filter(|other| *other != variant) {
        let Place { sequence, part } = last;
        writeln!(
            text,
            "#EXT-X-RENDITION-REPORT:URI=\"../{other}/index.m3u8\",LAST-MSN={sequence},\
             LAST-PART={part}"
        )
        .expect(INFALLIBLE);
    }
}

/// Number of segments that an update may leave out: those that end before the skip boundary.
fn skippable(server: &Shared, first: u64, end: Place, until: Duration) -> u64 {
    let timeline = &server.timeline;
    let last = timeline.pictures_of_part(end).start;
    let is_old = |sequence: &u64| {
        let end = timeline.pictures_of(*sequence).end;
        timeline.duration(&(end.min(last)..last)) >= until
    };
    (first..end.sequence).take_while(is_old).count() as u64
}

/// Writes a date (RFC 8216, 4.3.2.6).
fn date(since_1970: Duration) -> String {
    let at = OffsetDateTime::UNIX_EPOCH + since_1970;
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.millisecond()
    )
}
