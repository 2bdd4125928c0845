//! Metrics that a browser reports, and its resource usage.

use measure::summary::{
    Part::{If, Text},
    RowCondition::{Above, HasData},
};
use measure::{Catalogue, SummaryRow};

use crate::metrics::CLIENTS;

measure::metrics! {
    /// Values of a browser's `getStats`, summed over its PeerConnections, and the resource usage of
    /// its processes. Names are those of the W3C in snake case.
    pub BROWSER after CLIENTS;
    counters {
        /// Media packets that the browser received, including retransmissions.
        PACKETS_RECEIVED = "packets_received", Count, "W3C webrtc-stats, RTCReceivedRtpStreamStats";
        /// Packets that the browser reports as lost: expected minus received. Negative in a second
        /// in which more packets arrived late than were lost.
        PACKETS_LOST = "packets_lost", Count,
            "W3C webrtc-stats, RTCReceivedRtpStreamStats; RFC 3550, 6.4.1";
        /// Payload bytes that the browser received, without headers and padding.
        BYTES_RECEIVED = "bytes_received", Bytes, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Complete video frames that the browser received.
        FRAMES_RECEIVED = "frames_received", Count, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Video frames that the browser decoded.
        FRAMES_DECODED = "frames_decoded", Count, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Video frames that the browser dropped before or after decoding because they were too
        /// late to be shown.
        FRAMES_DROPPED = "frames_dropped", Count, "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Key frames that the browser decoded.
        KEY_FRAMES_DECODED = "key_frames_decoded", Count,
            "W3C webrtc-stats, RTCInboundRtpStreamStats";
        /// Video freezes: no new frame for three times the usual frame interval, and for 150 ms
        /// longer than it.
        FREEZES = "freezes", Count, "W3C webrtc-stats, freezeCount";
        /// Total duration of video freezes in nanoseconds.
        FREEZE_NANOSECONDS = "freeze_nanoseconds", Count, "W3C webrtc-stats, totalFreezesDuration";
        /// Audio samples that were played as received, over all streams.
        RECEIVED_SAMPLES = "received_samples", Count,
            "W3C webrtc-stats, totalSamplesReceived less concealedSamples";
        /// Audio samples that were concealed because the ones to be played were missing.
        CONCEALED_SAMPLES = "concealed_samples", Count, "W3C webrtc-stats, concealedSamples";
        /// Retransmission requests (NACK messages) that the browser sent.
        NACKS_SENT = "nacks_sent", Count, "RFC 4585, 6.2.1";
        /// Key frame requests that the browser sent.
        PLIS_SENT = "plis_sent", Count, "RFC 4585, 6.3.1";
        /// Media packets that the browser sent, including retransmissions.
        PACKETS_SENT = "packets_sent", Count, "W3C webrtc-stats, RTCSentRtpStreamStats";
        /// Payload bytes that the browser sent.
        BYTES_SENT = "bytes_sent", Bytes, "W3C webrtc-stats, RTCSentRtpStreamStats";
        /// Video frames that the browser encoded.
        FRAMES_ENCODED = "frames_encoded", Count, "W3C webrtc-stats, RTCOutboundRtpStreamStats";
        /// Sent packets that the server reports as lost. Negative in a second in which the server
        /// corrects an earlier report.
        REPORTED_LOST = "reported_lost", Count, "W3C webrtc-stats, RTCRemoteInboundRtpStreamStats";
        /// Seconds without figures from the browser.
        SILENT_SECONDS = "silent_seconds", Count, "";
    }
    gauges {
        /// Media streams that received packets in the last second.
        STREAMS = "streams", Count, "", Sum;
        /// Processor time of all processes of the browser, in seconds per second: 1.0 is one busy
        /// core.
        CPU = "cpu", Cores, "cgroups(7), cpuacct.usage or cpu.stat; proc(5), /proc/pid/stat", Sum;
        /// Processor time of the process for the page, which decodes, encodes and encrypts.
        CPU_RENDERER = "cpu_renderer", Cores, "proc(5), /proc/pid/stat", Sum;
        /// Processor time of the process that draws.
        CPU_GPU = "cpu_gpu", Cores, "proc(5), /proc/pid/stat", Sum;
        /// Processor time of the service processes, which include the network.
        CPU_UTILITY = "cpu_utility", Cores, "proc(5), /proc/pid/stat", Sum;
        /// Processor time of the main process, which manages the others.
        CPU_MAIN = "cpu_main", Cores, "proc(5), /proc/pid/stat", Sum;
        /// Proportional set size of all processes.
        PSS = "pss", Bytes, "proc(5), /proc/pid/smaps_rollup, Pss", Sum;
    }
    distributions {
        /// Jitter of each stream, once a second.
        JITTER = "jitter", Seconds, "W3C webrtc-stats, jitter; RFC 3550, 6.4.1";
        /// Time that frames and samples spent in the jitter buffer: the mean of each stream, once a
        /// second.
        JITTER_BUFFER_DELAY = "jitter_buffer_delay", Seconds, "W3C webrtc-stats, jitterBufferDelay";
        /// Decoding time of a frame: the mean of each stream, once a second.
        DECODE_TIME = "decode_time", Seconds, "W3C webrtc-stats, totalDecodeTime";
        /// Round-trip time of each PeerConnection by its last connectivity check, once a second.
        /// Chromium rounds it to milliseconds.
        ROUND_TRIP_TIME = "round_trip_time", Seconds, "W3C webrtc-stats, currentRoundTripTime";
    }
    derived {
        /// Lost packets as a share of lost and received ones.
        "packet_loss", Ratio, "", Share(PACKETS_LOST, PACKETS_RECEIVED);
        /// Total duration of video freezes.
        "freeze_duration", Seconds, "W3C webrtc-stats, totalFreezesDuration",
            Scaled(FREEZE_NANOSECONDS, -9);
        /// Bit rate of received payload.
        "received_bitrate", BitsPerSecond, "", Rate(BYTES_RECEIVED, 8);
        /// Bit rate of sent payload.
        "published_bitrate", BitsPerSecond, "", Rate(BYTES_SENT, 8);
        /// Concealed samples as a share of all samples played.
        "concealment", Ratio, "", Share(CONCEALED_SAMPLES, RECEIVED_SAMPLES);
    }
    summary {
        SUMMARY;
    }
}

/// Summary rows of a browser.
const SUMMARY: &[SummaryRow] = &[
    SummaryRow::text(
        "received_bitrate",
        &[],
        &[Text(
            "{received_bitrate} in {packets_received} packets; {packets_lost} lost ({packet_loss})",
        )],
    ),
    SummaryRow::text(
        "published_bitrate",
        &[Above("packets_sent")],
        &[
            Text("{published_bitrate} in {packets_sent} packets"),
            If("reported_lost", "; {} reported lost by the server"),
        ],
    ),
    SummaryRow::text(
        "frames_decoded",
        &[Above("frames_received")],
        &[Text(
            "{frames_decoded} of {frames_received}; {frames_dropped} dropped; \
             {freezes:freeze|freezes} of {freeze_duration} in all",
        )],
    ),
    SummaryRow::text(
        "concealment",
        &[Above("concealed_samples")],
        &[Text("{concealment} of the audio samples were concealed")],
    ),
    SummaryRow::distribution(&[HasData("jitter")], "jitter", "mean"),
    SummaryRow::distribution(
        &[HasData("jitter_buffer_delay")],
        "jitter_buffer_delay",
        "mean",
    ),
    SummaryRow::distribution(&[HasData("round_trip_time")], "round_trip_time", "mean"),
    SummaryRow::distribution(&[HasData("decode_time")], "decode_time", "mean"),
    SummaryRow::text(
        "cpu",
        &[Above("cpu")],
        &[Text(
            "{cpu} of a core: page {cpu_renderer}, drawing {cpu_gpu}, services {cpu_utility}, main \
             {cpu_main}; {pss} of memory",
        )],
    ),
    SummaryRow::text(
        "silent_seconds",
        &[Above("silent_seconds")],
        &[Text(
            "{silent_seconds:second|seconds} without figures from the browser",
        )],
    ),
    SummaryRow::distribution(&[HasData("startup_delay")], "startup_delay", "p50"),
];

/// Metrics of a population's browsers.
pub static BROWSER_CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &BROWSER]);
