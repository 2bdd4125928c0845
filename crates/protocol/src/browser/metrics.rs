//! What a browser tells of itself, and what it costs.

use measure::summary::{Part, When};
use measure::{Catalogue, SummaryRow};

use crate::metrics::CLIENTS;

measure::metrics! {
    /// What a browser's `getStats` says, added up over its PeerConnections, and what its processes
    /// take. Names are those of the W3C, in our spelling.
    pub BROWSER after CLIENTS;
    counters {
        /// Packets of media that the browser received, retransmissions included.
        PACKETS_RECEIVED = "packets_received", Count, "W3C webrtc-stats, RTCReceivedRtpStreamStats";
        /// Packets that the browser says are lost: expected less received. Negative in a second in
        /// which more came late than was lost.
        PACKETS_LOST = "packets_lost", Count,
            "W3C webrtc-stats, RTCReceivedRtpStreamStats; RFC 3550, 6.4.1";
        /// Bytes of payload that the browser received, without headers and padding.
        BYTES_RECEIVED = "bytes_received", Bytes, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Whole frames of video that the browser received.
        FRAMES_RECEIVED = "frames_received", Count, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Frames of video that the browser decoded.
        FRAMES_DECODED = "frames_decoded", Count, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Frames of video that the browser dropped before or after decoding them, because they
        /// came too late to be shown.
        FRAMES_DROPPED = "frames_dropped", Count, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Key frames that the browser decoded.
        KEY_FRAMES_DECODED = "key_frames_decoded", Count,
            "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Times that a video stood still: for three times as long as a frame usually takes, and
        /// for 150 ms longer than one.
        FREEZES = "freezes", Count, "W3C webrtc-stats, freezeCount";
        /// For how long videos stood still in all, in nanoseconds.
        FREEZE_NANOSECONDS = "freeze_nanoseconds", Count, "W3C webrtc-stats, totalFreezesDuration";
        /// Samples of audio that were played as they came, of all streams.
        RECEIVED_SAMPLES = "received_samples", Count,
            "W3C webrtc-stats, totalSamplesReceived less concealedSamples";
        /// Samples of audio that were made up because what should have been played was not there.
        CONCEALED_SAMPLES = "concealed_samples", Count, "W3C webrtc-stats, concealedSamples";
        /// Requests for packets that the browser sent.
        NACKS_SENT = "nacks_sent", Count, "RFC 4585, 6.2.1";
        /// Requests for a key frame that the browser sent.
        PLIS_SENT = "plis_sent", Count, "RFC 4585, 6.3.1";
        /// Packets of media that the browser sent, retransmissions included.
        PACKETS_SENT = "packets_sent", Count, "W3C webrtc-stats, RTCSentRtpStreamStats";
        /// Bytes of payload that the browser sent.
        BYTES_SENT = "bytes_sent", Bytes, "W3C webrtc-stats, RTCSentRtpStreamStats";
        /// Frames of video that the browser encoded.
        FRAMES_ENCODED = "frames_encoded", Count, "W3C webrtc-stats, RTCOutboundRtpStreamStats";
        /// Packets of these that the server says never reached it. Negative in a second in which
        /// the server takes some of it back.
        REPORTED_LOST = "reported_lost", Count, "W3C webrtc-stats, RTCRemoteInboundRtpStreamStats";
        /// Seconds of which the browser told nothing.
        SILENT_SECONDS = "silent_seconds", Count, "";
    }
    gauges {
        /// Streams of media of which packets came in the last second.
        STREAMS = "streams", Count, "", Sum;
        /// Processor time of all processes of the browser, in seconds per second: 1.0 is one core
        /// kept busy.
        CPU = "cpu", Cores, "cgroups(7), cpuacct.usage or cpu.stat; proc(5), /proc/pid/stat", Sum;
        /// The same of its process for the page, which decodes, encodes and encrypts.
        CPU_RENDERER = "cpu_renderer", Cores, "proc(5), /proc/pid/stat", Sum;
        /// The same of its process that draws.
        CPU_GPU = "cpu_gpu", Cores, "proc(5), /proc/pid/stat", Sum;
        /// The same of its processes for services, of which the network is one.
        CPU_UTILITY = "cpu_utility", Cores, "proc(5), /proc/pid/stat", Sum;
        /// The same of its first process, which watches over the others.
        CPU_MAIN = "cpu_main", Cores, "proc(5), /proc/pid/stat", Sum;
        /// Proportional set size of all its processes.
        PSS = "pss", Bytes, "proc(5), /proc/pid/smaps_rollup, Pss", Sum;
    }
    distributions {
        /// Jitter of each stream, once a second.
        JITTER = "jitter", Seconds, "W3C webrtc-stats, jitter; RFC 3550, 6.4.1";
        /// How long frames and samples were in the jitter buffer before they were given out: the
        /// mean of each stream, once a second.
        JITTER_BUFFER_DELAY = "jitter_buffer_delay", Seconds, "W3C webrtc-stats, jitterBufferDelay";
        /// How long a frame took to be decoded: the mean of each stream, once a second.
        DECODE_TIME = "decode_time", Seconds, "W3C webrtc-stats, totalDecodeTime";
        /// The round trip of each PeerConnection by its last check, once a second. Chromium rounds
        /// it to milliseconds.
        ROUND_TRIP_TIME = "round_trip_time", Seconds, "W3C webrtc-stats, currentRoundTripTime";
    }
    derived {
        /// Lost packets as a share of lost and received ones.
        "packet_loss", Ratio, "", Share(PACKETS_LOST, PACKETS_RECEIVED);
        /// For how long videos stood still in all.
        "freeze_duration", Seconds, "W3C webrtc-stats, totalFreezesDuration",
            Scaled(FREEZE_NANOSECONDS, -9);
        /// Payload that the browser received.
        "received_bitrate", BitsPerSecond, "", Rate(BYTES_RECEIVED, 8);
        /// Payload that the browser sent.
        "published_bitrate", BitsPerSecond, "", Rate(BYTES_SENT, 8);
        /// Samples that were made up as a share of all that were played.
        "concealment", Ratio, "", Share(CONCEALED_SAMPLES, RECEIVED_SAMPLES);
    }
    summary {
        SUMMARY;
    }
}

/// What the summary of a run shows of a browser.
const SUMMARY: &[SummaryRow] = &[
    SummaryRow::text(
        "received",
        &[],
        &[Part::Text(
            "{received_bitrate} in {packets_received} packets; {packets_lost} lost ({packet_loss})",
        )],
    ),
    SummaryRow::text(
        "sent",
        &[When::Above("packets_sent")],
        &[
            Part::Text("{published_bitrate} in {packets_sent} packets"),
            Part::If("reported_lost", "; {} lost, the server says"),
        ],
    ),
    SummaryRow::text(
        "frames",
        &[When::Above("frames_received")],
        &[Part::Text(
            "{frames_decoded} decoded of {frames_received}; {frames_dropped} dropped; \
             {freezes:freeze|freezes} of {freeze_duration} in all",
        )],
    ),
    SummaryRow::text(
        "audio",
        &[When::Above("concealed_samples")],
        &[Part::Text("{concealment} of the samples made up")],
    ),
    SummaryRow::distribution("jitter", &[When::HasData("jitter")], "jitter", "mean"),
    SummaryRow::distribution(
        "jitter buffer",
        &[When::HasData("jitter_buffer_delay")],
        "jitter_buffer_delay",
        "mean",
    ),
    SummaryRow::distribution(
        "round trip",
        &[When::HasData("round_trip_time")],
        "round_trip_time",
        "mean",
    ),
    SummaryRow::distribution(
        "decoding",
        &[When::HasData("decode_time")],
        "decode_time",
        "mean",
    ),
    SummaryRow::text(
        "its processes",
        &[When::Above("cpu")],
        &[Part::Text(
            "{cpu} of a core: page {cpu_renderer}, drawing {cpu_gpu}, services {cpu_utility}, main \
             {cpu_main}; {pss} of memory",
        )],
    ),
    SummaryRow::text(
        "silent",
        &[When::Above("silent_seconds")],
        &[Part::Text(
            "it told nothing of {silent_seconds:second|seconds}",
        )],
    ),
    SummaryRow::distribution(
        "startup",
        &[When::HasData("startup_delay")],
        "startup_delay",
        "p50",
    ),
];

/// The metrics of the browsers beside a population.
pub static BROWSER_CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &BROWSER]);
