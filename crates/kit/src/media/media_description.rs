//! Summary of the media in a description, for comparisons: bit rate, length, formats.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use measure::media::{MediaDescription, StreamDescription};

use super::sdp::{Description, Format, MediaSection};
use crate::mediagen::h264::sps;

/// Maximum length of a codec name. Text from servers appears in reports and on terminals.
const NAME_MAX: usize = 32;

/// Maximum length of the parameter sets, in bytes of base64.
const PARAMETER_SETS_MAX: usize = 4096;

/// Base64 as servers write it: with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Summarises a description. Fields that the description does not state are `None`.
pub fn describe(description: &Description) -> MediaDescription {
    let streams: Vec<StreamDescription> =
        description.medias.iter().map(stream_description).collect();
    let stated = streams.iter().filter_map(|stream| stream.bitrate);
    let sum = stated.fold(None, |sum: Option<u64>, rate| {
        Some(sum.unwrap_or(0).saturating_add(rate))
    });
    let all_stated = streams.iter().all(|stream| stream.bitrate.is_some());
    MediaDescription {
        length: description.length().map(|length| length.as_secs_f64()),
        bitrate: match description.bandwidth {
            Some(whole) if !all_stated => Some(whole),
            _ => sum,
        },
        streams,
    }
}

fn stream_description(media: &MediaSection) -> StreamDescription {
    // The first format is the preferred one (RFC 8866, 5.14).
    let format = media.formats.first();
    StreamDescription {
        kind: media.kind.name().to_owned(),
        codec: format.and_then(codec),
        clock_rate: format.and_then(|format| format.clock_rate),
        channels: format.and_then(|format| format.channels),
        resolution: format.and_then(resolution),
        bitrate: media.tias_bandwidth.or(media.bandwidth),
    }
}

/// Encoding name in capitals: names are case-insensitive (RFC 8866, 6.6).
fn codec(format: &Format) -> Option<String> {
    let name = format.encoding.as_deref()?;
    let fit = |letter: &char| letter.is_ascii_graphic();
    let name: String = name.chars().filter(fit).take(NAME_MAX).collect();
    (!name.is_empty()).then(|| name.to_ascii_uppercase())
}

/// Picture size, if the format parameters contain a sequence parameter set (RFC 6184, 8.1).
fn resolution(format: &Format) -> Option<(u32, u32)> {
    if !format.encoding.as_deref()?.eq_ignore_ascii_case("H264") {
        return None;
    }
    let parameters = format.fmtp.as_deref()?;
    let sets = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_it = name.trim().eq_ignore_ascii_case("sprop-parameter-sets");
        is_it.then(|| value.trim())
    })?;
    let sets = sets.get(..sets.len().min(PARAMETER_SETS_MAX))?;
    sets.split(',')
        .filter_map(|set| BASE64.decode(set.trim()).ok())
        .find_map(|nal| sps::picture_size(&nal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> MediaDescription {
        describe(&Description::parse(text.as_bytes()).expect("it is one"))
    }

    #[test]
    fn stated_properties_are_summarised() {
        let media = of(
            "v=0\na=range:npt=0-60\nm=video 0 RTP/AVP 96 97\nb=AS:1100\nb=TIAS:1000000\na=rtpmap:96 h264/90000\n\
             a=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z2QAH6zZQFAFuwEQAAADABAAAAMDIPGDGWA,aOvjyyLA\n\
             m=audio 0 RTP/AVP 98\nb=AS:128\na=rtpmap:98 mpeg4-generic/48000/2\n",
        );
        assert_eq!(media.length, Some(60.0));
        assert_eq!(media.bitrate, Some(1_128_000));
        assert_eq!(media.format(), "H264 1280x720 + MPEG4-GENERIC 48000 Hz x2");
        assert_eq!(media.kinds_without_bitrate(), [] as [&str; 0]);
    }

    #[test]
    fn unstated_properties_are_unknown() {
        let media = of("v=0\na=range:npt=now-\nm=video 0 RTP/AVP 96\nm=audio 0 RTP/AVP 0\n");
        assert_eq!((media.length, media.bitrate), (None, None));
        assert_eq!(media.format(), "unknown video + PCMU 8000 Hz");
        // VLC states the bandwidth of the video stream only.
        let media = of("v=0\nm=video 0 RTP/AVP 96\nb=AS:1000\nm=audio 0 RTP/AVP 0\nb=RR:0\n");
        assert_eq!(media.bitrate, Some(1_000_000));
        assert_eq!(media.kinds_without_bitrate(), ["audio"]);
        // The session's bandwidth counts if a stream has none.
        let media = of("v=0\nb=AS:2000\nm=video 0 RTP/AVP 96\nb=AS:1000\nm=audio 0 RTP/AVP 0\n");
        assert_eq!(media.bitrate, Some(2_000_000));
        assert_eq!(media.kinds_without_bitrate(), [] as [&str; 0]);
    }

    #[test]
    fn codec_names_are_sanitised() {
        let text = format!(
            "m=video 0 RTP/AVP 96\na=rtpmap:96 \u{1b}[31mX{}/90000\n",
            "y".repeat(99)
        );
        let codec = of(&text).streams[0].codec.clone().expect("a name");
        assert_eq!(codec.len(), NAME_MAX);
        assert!(codec.starts_with("[31MXYY"), "{codec}");
        let text = "m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 sprop-parameter-sets=é,====,Z2Q\n";
        assert_eq!(of(text).streams[0].resolution, None);
    }
}
