//! HLS metrics, in addition to those of every population of viewers.

use measure::metric::Statistic;
use measure::summary::{Part, RowCondition, SummaryRow};
use measure::{KeyFigure, Meaning, TableColumn};

use kit::summary;
use kit::viewer::VIEWERS;

measure::metrics! {
    /// Playlists, segments, and the playback that a player makes of them.
    pub HLS after VIEWERS;
    counters {
        /// Requests sent.
        REQUESTS = "requests", Count, "RFC 9110, 9.3.1";
        /// Responses whose head was received.
        RESPONSES = "responses", Count, "RFC 9110, 15";
        /// Responses with a status of 300 or more, including redirects.
        REFUSALS = "refusals", Count, "RFC 9110, 15";
        /// Responses with a status from 400 to 499: the server blames the request.
        RESPONSES_4XX = "responses_4xx", Count, "RFC 9110, 15.5";
        /// Responses with a status from 500: the server blames itself.
        RESPONSES_5XX = "responses_5xx", Count, "RFC 9110, 15.6";
        /// Responses that a cache had, as it states with `Cache-Status`, `Age` or one of the usual
        /// fields that are not standardised, such as `X-Cache`.
        CACHE_HITS = "cache_hits", Count, "RFC 9211; RFC 9111, 5.1";
        /// Responses that caches say they did not have.
        CACHE_MISSES = "cache_misses", Count, "RFC 9211";
        /// Responses that redirected the client to another URL.
        REDIRECTS = "redirects", Count, "RFC 9110, 15.4";
        /// Connections that were made because the server had closed the one before.
        RECONNECTIONS = "reconnections", Count, "RFC 9112, 9.3";
        /// Playlists received, of either kind.
        PLAYLISTS = "playlists", Count, "RFC 8216, 4";
        /// Media playlists that were the same as at the request before. A player requests again
        /// after half a target duration, or after a part if it plays parts.
        PLAYLISTS_UNCHANGED = "playlists_unchanged", Count, "RFC 8216, 6.3.4";
        /// Live media playlists that had been the same for more than 1.5 target durations: the
        /// server must have added a segment by then.
        PLAYLISTS_STALE = "playlists_stale", Count, "draft-pantos-hls-rfc8216bis, 6.2.2";
        /// Media playlists that ended before the one received before, as after a restart of the
        /// server, or from a cache.
        PLAYLISTS_BACKWARDS = "playlists_backwards", Count, "RFC 8216, 6.2.2";
        /// Playlists that break a rule that a player can do without. Each kind is an event of each
        /// player, with the rule: a segment or part is longer than the target duration, that is 0
        /// or has a fraction, a hold-back is too short or missing, a segment has another name than
        /// before, or a line cannot be parsed.
        PLAYLISTS_ODD = "playlists_odd", Count, "RFC 8216, 4.3.3.1 and 6.2.1";
        /// Media playlists in which the server left out segments that the player had from the one
        /// before.
        PLAYLISTS_DELTA = "playlists_delta", Count, "draft-pantos-hls-rfc8216bis, 6.2.5.1";
        /// Media playlists that left out segments which the player did not have. It requests the
        /// whole playlist instead.
        PLAYLISTS_UNUSABLE = "playlists_unusable", Count, "draft-pantos-hls-rfc8216bis, 6.3.7";
        /// Requests for a media playlist that waited for a certain segment or part, and were
        /// answered.
        RELOADS = "reloads", Count, "draft-pantos-hls-rfc8216bis, 6.2.5.2";
        /// Those answered after more than 1.5 times the target duration, of parts or, if the player
        /// plays none, of segments.
        RELOADS_LATE = "reloads_late", Count, "draft-pantos-hls-rfc8216bis, 6.2.5.2";
        /// Those answered before the segment or part was in the playlist. The player waits before
        /// it requests again.
        RELOADS_SHORT = "reloads_short", Count, "draft-pantos-hls-rfc8216bis, 6.2.5.2";
        /// Keys of encrypted segments received. Those that are not plain resources of 16 bytes are
        /// not requested.
        KEYS = "keys", Count, "RFC 8216, 4.3.2.4";
        /// Segments that a player needed, received or not. If it plays parts of segments, each part
        /// counts as one here and in the other counters of segments.
        SEGMENTS_DUE = "segments_due", Count, "";
        /// Segments received to their end.
        SEGMENTS = "segments", Count, "RFC 8216, 3";
        /// Those that were parts of segments.
        PARTS = "parts", Count, "draft-pantos-hls-rfc8216bis, 4.4.4.9";
        /// Parts and initialization sections that were requested when the playlist hinted at them,
        /// and listed by it later.
        HINTS_USED = "hints_used", Count, "draft-pantos-hls-rfc8216bis, 4.4.5.3";
        /// Parts and initialization sections that were requested when the playlist hinted at them,
        /// but that the server refused or did not list in this place.
        HINTS_WASTED = "hints_wasted", Count, "draft-pantos-hls-rfc8216bis, 4.4.5.3";
        /// Bytes of hints that were of no use, and of parts that were received again with the whole
        /// segment.
        BYTES_WASTED = "bytes_wasted", Bytes, "";
        /// Segments that took longer to receive than they play. Of hinted parts, only the body
        /// counts.
        SEGMENTS_LATE = "segments_late", Count, "";
        /// Requests for segments, their initialization sections and keys that were repeated after a
        /// failure that may pass: a status from 500, a time-out, or a broken connection.
        SEGMENTS_RETRIED = "segments_retried", Count, "";
        /// Segments that the server refused, or whose response ended early or not in time. The
        /// player goes on with the next one.
        SEGMENTS_FAILED = "segments_failed", Count, "";
        /// Segments received to their end whose contents are wrong: a loss of sync, an error of the
        /// continuity counters, a damaged table, no programme tables, or packets that are malformed
        /// or marked as damaged in a transport stream, or boxes of MP4 that are not whole. Those
        /// that are encrypted as a whole are not checked.
        SEGMENTS_DAMAGED = "segments_damaged", Count, "RFC 8216, 3";
        /// Whole segments whose media, up to the start of the next segment by the time stamps, is
        /// more than 0.1 s shorter or longer than the playlist states; 0.6 s if that is a whole
        /// number of seconds, or if a transport stream has only audio. A player that trusts the
        /// playlist then seeks to a wrong place, or stalls. Checked for MPEG-TS and fragmented MP4,
        /// except before a discontinuity or a change of variant.
        DURATIONS_WRONG = "durations_wrong", Count, "RFC 8216, 4.3.2.1";
        /// Segments that had left the playlist before the player came to request them. Each counts
        /// as one, also for a player of parts.
        SEGMENTS_MISSED = "segments_missed", Count, "RFC 8216, 6.2.2";
        /// Segments that the playlist states as missing.
        SEGMENTS_GAP = "segments_gap", Count, "draft-pantos-hls-rfc8216bis, 4.4.4.7";
        /// Segments before which the playlist states a discontinuity.
        DISCONTINUITIES = "discontinuities", Count, "RFC 8216, 4.3.2.3";
        /// Changes of variant.
        SWITCHES = "switches", Count, "RFC 8216, 6.3.1";
        /// Those to a variant with a lower bit rate.
        SWITCHES_DOWN = "switches_down", Count, "RFC 8216, 6.3.1";
        /// Changes to another variant of the same bit rate, because one failed.
        FAILOVERS = "failovers", Count, "RFC 8216, 6.2.4";
        /// Times at which playback stood still because the next segment was not complete.
        STALLS = "stalls", Count, "ITU-T P.1203";
        /// Media that was shown, in nanoseconds.
        SHOWN_NANOSECONDS = "shown_nanoseconds", Count, "";
        /// Total duration of the stalls in nanoseconds. A stall counts at its end.
        STALL_NANOSECONDS = "stall_nanoseconds", Count, "ITU-T P.1203";
        /// Transport packets in the segments.
        TS_PACKETS = "ts_packets", Count, "ISO/IEC 13818-1, 2.4.3.2";
        /// Losses of sync in the segments: a packet did not begin with the sync byte, or was not
        /// complete at the end. The rest of the segment is not checked.
        SYNC_LOSSES = "sync_losses", Count, "ETSI TR 101 290, 5.2.1, 1.1 and 1.2";
        /// Packets whose continuity counter is not the next one of their PID. The counters may
        /// begin again with each segment or part.
        CONTINUITY_ERRORS = "continuity_errors", Count, "ETSI TR 101 290, 5.2.1, 1.4; ISO/IEC 13818-1, 2.4.3.3";
        /// Missing packets according to the continuity counters: a lower bound, because they are
        /// modulo 16.
        CONTINUITY_LOST = "continuity_lost", Count, "ISO/IEC 13818-1, 2.4.3.3";
        /// Bytes of segments and their initialization sections.
        PAYLOAD_BYTES = "payload_bytes", Bytes, "";
        /// All bytes received, with heads and playlists, without those of TCP and IP.
        WIRE_BYTES = "wire_bytes", Bytes, "";
    }
    gauges {}
    distributions {
        /// Time from sending each request to the end of the response head, except for requests with
        /// which the server may wait: reloads and hints.
        RESPONSE_DELAY = "response_delay", Seconds, "";
        /// Time from the request of each playlist to its last byte, except for those that waited
        /// (`reload_delay`).
        PLAYLIST_DELAY = "playlist_delay", Seconds, "";
        /// Age of each playlist for which a cache states one: the time that it was in caches, in
        /// whole seconds. It is added to the live latency.
        PLAYLIST_AGE = "playlist_age", Seconds, "RFC 9111, 5.1";
        /// Time from each request for a playlist that waited for a segment or part to the last
        /// byte of the playlist.
        RELOAD_DELAY = "reload_delay", Seconds, "draft-pantos-hls-rfc8216bis, 6.2.5.2";
        /// Time from the request of each key to its last byte.
        KEY_DELAY = "key_delay", Seconds, "RFC 8216, 4.3.2.4";
        /// Time from the request of each whole segment to its last byte, with failed attempts.
        SEGMENT_DELAY = "segment_delay", Seconds, "";
        /// Time from the request of each segment or part to its last byte, for each second of its
        /// media. Above 1 s, a player cannot keep up. Hinted parts count from their first byte.
        DELAY_PER_SECOND = "delay_per_second", Seconds, "";
        /// Time from the request of each part of a segment, which the playlist listed, to its last
        /// byte, with failed attempts.
        PART_DELAY = "part_delay", Seconds, "draft-pantos-hls-rfc8216bis, 4.4.4.9";
        /// Time from the request of each hinted part to its last byte, with the time until the
        /// server had it. If a response holds several parts, its first one counts.
        HINT_DELAY = "hint_delay", Seconds, "draft-pantos-hls-rfc8216bis, 4.4.5.3";
        /// Time from when a client's first request was due to the beginning of its playback: its
        /// first segment is complete, and `playout_buffer` is filled.
        PLAYBACK_DELAY = "playback_delay", Seconds, "ITU-T P.1203";
        /// Time from when a client's first request was due to the arrival of the last byte of the
        /// first picture at which decoding can start. Until then a viewer sees nothing. In fMP4, to
        /// the end of the media data if the fragment does not state the size of the picture. Only
        /// of video whose segments are not encrypted as a whole.
        KEY_FRAME_DELAY = "key_frame_delay", Seconds, "RFC 8216, 3";
        /// Duration of each stall.
        STALL_TIME = "stall_time", Seconds, "ITU-T P.1203";
        /// Distance from the position that is shown to the end of a live playlist, at each playlist
        /// received during playback. A player that keeps up has the distance at which it began, and
        /// what the server adds at once.
        LIVE_DISTANCE = "live_distance", Seconds, "draft-pantos-hls-rfc8216bis, 4.4.3.8";
        /// Time from the date of a segment (`EXT-X-PROGRAM-DATE-TIME`) to the moment at which the
        /// player shows its beginning, for each segment of live media that arrives during playback.
        /// The clock of the server must be right.
        LIVE_LATENCY = "live_latency", Seconds, "RFC 8216, 4.3.2.6";
        /// Time from when streamgauge's own publisher was to send a picture, which is in the
        /// picture's time code, to the moment at which the player shows it: for the first picture
        /// of each segment or part of live media that arrives during playback. H.264 only. The
        /// clocks of publisher and player must agree.
        PICTURE_LATENCY = "picture_latency", Seconds, "H.264, D.1.6", BetweenClients;
    }
    derived {
        /// Segments that the player needed and did not get.
        "lost", Count, "", Difference(SEGMENTS_DUE, SEGMENTS);
        /// Share of the needed segments that the player did not get.
        "loss", Ratio, "", LossRatio(SEGMENTS_DUE, SEGMENTS);
        /// Share of the needed segments that the player did not get, or whose contents are wrong.
        "wrong", Ratio, "", WrongShare(&[SEGMENTS_DUE], SEGMENTS, SEGMENTS_DAMAGED);
        /// Share of the time since the beginning of playback in which playback stood still, also
        /// called rebuffering ratio.
        "stall_ratio", Ratio, "ITU-T P.1203", Share(STALL_NANOSECONDS, SHOWN_NANOSECONDS);
        /// Bit rate of received media.
        "bitrate", BitsPerSecond, "", Rate(PAYLOAD_BYTES, 8);
        /// Bit rate of all that was received.
        "wire_bitrate", BitsPerSecond, "", Rate(WIRE_BYTES, 8);
    }
    table {
        TableColumn::larger("bitrate", "bitrate", Statistic::Value, ["Mbit/s", ""])
            .means(Meaning::BitRate);
        TableColumn::smaller("stalls", "stalls", Statistic::Value, ["stalls", ""]);
        TableColumn::smaller("loss", "loss", Statistic::Value, ["loss", "%"]);
        TableColumn::smaller("live_latency_p50", "live_latency", Statistic::Quantile(0.5), ["latency", "p50 ms"]);
        TableColumn::smaller("live_latency_p95", "live_latency", Statistic::Quantile(0.95), ["latency", "p95 ms"]);
    }
    summary {
        ROWS;
        summary::STARTUP_ROWS;
        LATER;
    }
    starts {
        KEY_FRAME_DELAY;
        PLAYBACK_DELAY;
    }
    key_figures {
        KeyFigure::value("stalls");
        KeyFigure::p95("live_latency");
        KeyFigure::p95("segment_delay");
        KeyFigure::value("bitrate");
    }
}

const ROWS: &[SummaryRow] = &[
    SummaryRow::text(
        "segments",
        &[RowCondition::Above("segments_due")],
        &[
            Part::Text("{segments} of {segments_due}"),
            Part::If("parts", ", {parts} of them parts"),
            Part::Further(&[
                ("segments_failed", "{} failed"),
                ("segments_missed", "{} missed"),
                ("segments_gap", "{} in gaps"),
            ]),
            Part::If("segments_late", "; {segments_late} late"),
            Part::If("segments_retried", "; {segments_retried} requests repeated"),
            Part::If("segments_damaged", "; {segments_damaged} damaged"),
            Part::If("durations_wrong", "; {durations_wrong} of wrong duration"),
        ],
    ),
    SummaryRow::text(
        "stalls",
        &[RowCondition::Above("segments")],
        &[
            Part::Text("{stalls}"),
            Part::If("stalls", ", {stall_ratio} of the time"),
        ],
    ),
    SummaryRow::text(
        "switches",
        &[RowCondition::Above("switches")],
        &[
            Part::Text("{switches}; "),
            Part::ListOr(&[("switches_down", "{} of them down")], "all up"),
        ],
    ),
    SummaryRow::text(
        "failovers",
        &[RowCondition::Above("failovers")],
        &[Part::Text(
            "{failovers} to another variant of the same bit rate",
        )],
    ),
    SummaryRow::text(
        "bitrate",
        &[RowCondition::Above("bitrate")],
        &[Part::Text("{bitrate} of media, {wire_bitrate} on the wire")],
    ),
];

const LATER: &[SummaryRow] = &[
    SummaryRow::distribution(
        &[RowCondition::HasData("key_frame_delay")],
        "key_frame_delay",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("playback_delay")],
        "playback_delay",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("live_latency")],
        "live_latency",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("picture_latency")],
        "picture_latency",
        "p50",
    ),
    SummaryRow::distribution(
        &[RowCondition::HasData("segment_delay")],
        "segment_delay",
        "p50",
    ),
    SummaryRow::distribution(&[RowCondition::HasData("part_delay")], "part_delay", "p50"),
    SummaryRow::distribution(&[RowCondition::HasData("hint_delay")], "hint_delay", "p50"),
    SummaryRow::distribution(
        &[RowCondition::HasData("reload_delay")],
        "reload_delay",
        "p50",
    ),
    SummaryRow::text(
        "cache_hits",
        &[RowCondition::Above("cache_hits")],
        &[
            Part::Text("{cache_hits}"),
            Part::If("cache_misses", "; {cache_misses} misses"),
            Part::IfData("playlist_age", "; playlists up to {playlist_age.max} old"),
        ],
    ),
    SummaryRow::text(
        "reloads",
        &[RowCondition::Above("reloads")],
        &[
            Part::Text("{reloads}; "),
            Part::ListOr(
                &[
                    ("reloads_late", "{} late"),
                    ("reloads_short", "{} too early"),
                ],
                "all in time",
            ),
            Part::If("playlists_delta", "; {playlists_delta} left out segments"),
        ],
    ),
    SummaryRow::text(
        "hints_used",
        &[RowCondition::Above("hints_used")],
        &[
            Part::Text("{hints_used}"),
            Part::Further(&[("hints_wasted", "{} wasted")]),
        ],
    ),
    SummaryRow::text(
        "playlists",
        &[RowCondition::Above("playlists")],
        &[
            Part::Text("{playlists}"),
            Part::Further(&[
                ("playlists_unchanged", "{} unchanged"),
                ("playlists_stale", "{} stale"),
                ("playlists_backwards", "{} backwards"),
                ("playlists_odd", "{} odd"),
            ]),
        ],
    ),
];
