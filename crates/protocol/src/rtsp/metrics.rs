//! What is measured of RTSP beside its media.

use crate::media::rtp::metrics::RTP;
use crate::summary;

measure::metrics! {
    /// Requests of RTSP, from the moment each was due to be sent to its final answer.
    pub RTSP after RTP;
    counters {
        /// Requests sent.
        REQUESTS = "requests", Count, "RFC 2326, 6";
        /// Answers that came, provisional ones not counted.
        RESPONSES = "responses", Count, "RFC 2326, 7";
        /// Answers whose status is 300 or more, challenges and redirects included.
        REFUSALS = "refusals", Count, "RFC 2326, 7.1.1";
        /// Bytes in the control connection that are neither a message nor a frame.
        GARBAGE_BYTES = "garbage_bytes", Bytes, "";
        /// Actions of clients that were begun: each `play` after the first, `pause`, `seek`,
        /// `scale` and `speed` of their `actions`. The playing on after a pause belongs to it.
        ACTIONS = "actions", Count, "";
        /// Actions that the server refused: with each of them the client goes on as it was, and the
        /// next action follows.
        ACTIONS_REFUSED = "actions_refused", Count, "RFC 2326, 7.1.1";
        /// Of the refused actions, those with status 455: not valid in the session's state.
        ACTIONS_REFUSED_455 = "actions_refused_455", Count, "RFC 2326, 11.3.6";
        /// Of the refused actions, those with status 457: no such range in the media.
        ACTIONS_REFUSED_457 = "actions_refused_457", Count, "RFC 2326, 11.3.8";
        /// Of the refused actions, those with status 501: the server does not do it.
        ACTIONS_REFUSED_501 = "actions_refused_501", Count, "RFC 2326, 7.1.1";
        /// Of the refused actions, those with status 551: an option that the server does not have.
        ACTIONS_REFUSED_551 = "actions_refused_551", Count, "RFC 2326, 11.3.14";
        /// Actions that were left out because the media had come to its end before them.
        ACTIONS_LEFT_OUT = "actions_left_out", Count, "";
        /// Positions that were asked for and where the answer to PLAY states no `Range`, or one
        /// that begins more than 10 s from there. Servers go to a key frame, so it need not be the
        /// very place.
        RANGE_MISMATCH = "range_mismatch", Count, "RFC 2326, 12.29";
        /// Answers to PLAY that state another `Scale` than was asked for, or none where it was not
        /// 1: then the server plays as usual.
        SCALE_MISMATCH = "scale_mismatch", Count, "RFC 2326, 12.34";
        /// Answers to PLAY that state another `Speed` than was asked for, or none where it was not
        /// 1: then the server sends as usual.
        SPEED_MISMATCH = "speed_mismatch", Count, "RFC 2326, 12.35";
        /// Of the answers to PLAY that state another `Speed` than 1, those after which the RTP
        /// timestamps of a stream did not go that fast, by more than a quarter, up to the next
        /// action: the server sends as usual, or gives faster media new timestamps, as for `Scale`.
        /// Judged where it took at least 2 s.
        SPEED_CLOCK_MISMATCH = "speed_clock_mismatch", Count, "RFC 2326, 12.35 and B";
        /// Answers to PLAY that go on from where the media is, after a pause, `scale` or `speed`,
        /// and whose `Range` begins elsewhere: more than 2 s, and a quarter of what was played,
        /// from where the positions, `Scale` and `Speed` that the server stated before lead. It did
        /// not do what it stated.
        POSITION_MISMATCH = "position_mismatch", Count, "RFC 2326, 12.29 and 12.34";
        /// Answers to PLAY of actions whose `RTP-Info` tells neither number nor time of any
        /// stream's first packet. The delay to the new position's first packet is not known then,
        /// and recorded nowhere.
        POSITION_UNTOLD = "position_untold", Count, "RFC 2326, 12.33";
        /// Packets of media that left, of clients that publish. Counted once a second.
        SENT_PACKETS = "sent_packets", Count, "";
        /// Bytes of payload in them.
        SENT_BYTES = "sent_bytes", Bytes, "";
        /// Frames of which the last packet was sent, of clients that publish.
        SENT_FRAMES = "sent_frames", Count, "";
        /// Packets that were due and were left out, because the server had not read what was sent
        /// before on the same connection. Of clients that publish over TCP.
        NOT_TAKEN = "not_taken", Count, "";
        /// Reports in which the server says what it received of a stream that is published.
        RECEIVER_REPORTS = "receiver_reports", Count, "RFC 3550, 6.4.2";
        /// Packets that never reached the server, as its last reports say, of streams that are
        /// published.
        REPORTED_LOST = "reported_lost", Count, "RFC 3550, 6.4.1";
    }
    gauges {}
    distributions {
        /// Delay of OPTIONS, keep-alives included.
        OPTIONS_DELAY = "options_delay", Seconds, "RFC 2326, 10.1";
        /// Delay of DESCRIBE.
        DESCRIBE_DELAY = "describe_delay", Seconds, "RFC 2326, 10.2";
        /// Delay of SETUP, each media of its own.
        SETUP_DELAY = "setup_delay", Seconds, "RFC 2326, 10.4";
        /// Delay of PLAY.
        PLAY_DELAY = "play_delay", Seconds, "RFC 2326, 10.5";
        /// Delay of GET_PARAMETER, as keep-alive.
        GET_PARAMETER_DELAY = "get_parameter_delay", Seconds, "RFC 2326, 10.8";
        /// Delay of TEARDOWN.
        TEARDOWN_DELAY = "teardown_delay", Seconds, "RFC 2326, 10.7";
        /// Delay of PAUSE, also where a seek or another speed begins with it.
        PAUSE_DELAY = "pause_delay", Seconds, "RFC 2326, 10.6";
        /// Delay of ANNOUNCE.
        ANNOUNCE_DELAY = "announce_delay", Seconds, "RFC 2326, 10.3";
        /// Delay of RECORD.
        RECORD_DELAY = "record_delay", Seconds, "RFC 2326, 10.11";
        /// From the first ANNOUNCE as sent to the answer to RECORD, each SETUP included: how long
        /// it takes until a stream can be published.
        PUBLISH_DELAY = "publish_delay", Seconds, "RFC 2326, 10.3 and 10.11";
        /// Interarrival jitter of streams that are published, as the server reports it.
        REPORTED_JITTER = "reported_jitter", Seconds, "RFC 3550, 6.4.1";
        /// Round trip to the machine that receives the media (`media.receiver`), opening ports
        /// included; the least of each client's. What that machine says of times, such as that of
        /// the first packet, is wrong by at most half of it.
        RECEIVER_ROUND_TRIP = "receiver_round_trip", Seconds, "";
        /// From the first PLAY as sent to the first media packet.
        PLAY_TO_MEDIA = "play_to_media", Seconds, "";
        /// Of each change of position (`seek`, or `play` with `from`): from when it was due to the
        /// answer to its PLAY. The PAUSE before is in it.
        SEEK_DELAY = "seek_delay", Seconds, "";
        /// Of each change of position: from when it was due to the first packet of the new
        /// position, of whichever stream, as RTP-Info tells it.
        SEEK_TO_MEDIA = "seek_to_media", Seconds, "RFC 2326, 12.33";
        /// Of each change of position after whose first packet, as RTP-Info tells it, the media's
        /// clock jumped in some stream: from when it was due to that jump. What came before it was
        /// still of the position before, so that this is the delay that a viewer sees, and
        /// `seek_to_media` too short.
        SEEK_TO_JUMP = "seek_to_jump", Seconds, "RFC 2326, B";
        /// How far from the position that was asked for the server begins, either way, as its
        /// `Range` says.
        SEEK_DISTANCE = "seek_distance", Seconds, "RFC 2326, 12.29";
        /// From when playing on after a pause was due to the answer to PLAY.
        RESUME_DELAY = "resume_delay", Seconds, "";
        /// From when playing on after a pause was due to the first packet after it, as RTP-Info
        /// tells it.
        RESUME_TO_MEDIA = "resume_to_media", Seconds, "RFC 2326, 12.33";
        /// Of each change of `Scale`: from when it was due to the answer to its PLAY. The PAUSE
        /// before is in it.
        SCALE_DELAY = "scale_delay", Seconds, "RFC 2326, 12.34";
        /// Of each change of `Scale`: from when it was due to the first packet sent so, as RTP-Info
        /// tells it.
        SCALE_TO_MEDIA = "scale_to_media", Seconds, "RFC 2326, 12.34";
        /// Of each change of `Speed`: from when it was due to the answer to its PLAY. The PAUSE
        /// before is in it.
        SPEED_DELAY = "speed_delay", Seconds, "RFC 2326, 12.35";
        /// Of each change of `Speed`: from when it was due to the first packet sent so, as RTP-Info
        /// tells it.
        SPEED_TO_MEDIA = "speed_to_media", Seconds, "RFC 2326, 12.35";
    }
    derived {
        /// Media payload sent, over all streams that the population publishes.
        "sent_bitrate", BitsPerSecond, "", Rate(SENT_BYTES, 8);
    }    summary {
        super::summary::PUBLISHED;
        super::summary::NO_MEDIA;
        summary::MEDIA;
        super::summary::TIMES;
        summary::STARTUP;
        super::summary::FRAMES;
    }
}
