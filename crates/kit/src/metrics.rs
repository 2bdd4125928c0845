//! Metrics of every population, whatever its protocol, and those of channel changes.

#![deny(missing_docs)]

measure::metrics! {
    /// Numbers of clients and how they ended.
    pub CLIENTS after measure::Group::NONE;
    counters {
        /// Clients that started: their first request was due and the session began.
        STARTED = "started", Count, "";
        /// Clients whose media played to its end, or that completed all their actions.
        COMPLETED = "completed", Count, "";
        /// Clients that the plan ended before the end of their media: by `leave: after`, a falling
        /// stage of the load, the end of the run, or the user.
        STOPPED = "stopped", Count, "";
        /// Clients that failed. The reasons have counters of their own.
        FAILED = "failed", Count, "";
        /// Media packets that arrived at this machine for a client and were dropped at its socket
        /// because the tester had not read it in time, or dropped because the packet ring was full.
        /// They are included in the lost packets, although neither the server nor the network lost
        /// them. Drops of a ring are assigned when the client releases its port; until then only
        /// `tester.ring_overflow` has them.
        LOST_IN_TESTER = "lost_in_tester", Count, "socket(7), SO_RXQ_OVFL, SO_MEMINFO";
        /// Clients of an open-model load that the tester turned away because the load's cap was
        /// reached.
        TURNED_AWAY = "turned_away", Count, "";
        /// Clients that replaced a client that had ended before its planned end (`rejoin`). They
        /// are included in the started ones.
        REJOINED = "rejoined", Count, "";
        /// TLS connections that the server closed without a `close_notify`. Data may have been
        /// truncated.
        TLS_CUT_OFF = "tls_cut_off", Count, "RFC 8446, 6.1";
    }
    gauges {
        /// Clients that have started and not ended: the maximum within the window. With several
        /// workers, the sum of their maxima.
        ACTIVE = "active", Count, "", Sum;
        /// Clients that have not ended and whose media has begun to arrive, or to leave if they
        /// publish: the maximum within the window. With several workers, the sum of their maxima.
        PLAYING = "playing", Count, "", Sum;
    }
    distributions {
        /// Time from the moment a client's first request was due to the arrival of its first media
        /// packet.
        STARTUP_DELAY = "startup_delay", Seconds, "";
        /// Time from the moment a client's first request was actually sent to the arrival of its
        /// first media packet: `startup_delay` without the tester's own lateness.
        STARTUP_DELAY_FROM_SENT = "startup_delay_from_sent", Seconds, "";
        /// Time from the moment a client was due to the moment it started: the tester's own
        /// lateness.
        START_LATENESS = "start_lateness", Seconds, "";
        /// Time from the start of a client to the moment its first connection was established,
        /// including the TLS handshake if it uses TLS.
        CONNECT_DELAY = "connect_delay", Seconds, "";
        /// Time from the moment a TCP connection was established to the end of its TLS handshake.
        /// No session is resumed: every handshake is a full one.
        TLS_HANDSHAKE_DELAY = "tls_handshake_delay", Seconds, "RFC 8446, 2";
    }
    derived {}
    starts {
        STARTUP_DELAY;
        STARTUP_DELAY_FROM_SENT;
        START_LATENESS;
        CONNECT_DELAY;
        TLS_HANDSHAKE_DELAY;
    }
}

measure::metrics! {
    /// Channel changes of a population with `zap`.
    pub ZAPPING after CLIENTS;
    counters {
        /// Channel changes: a client leaves its channel in order to request another URL. Counted
        /// when the change begins.
        ZAPS = "zaps", Count, "";
        /// Channel changes that failed before the first picture of the new channel: it was refused,
        /// did not arrive, was not a stream, or was another channel. The client then waits for the
        /// next change, as a viewer would. The events of the run give the exact failure
        /// (`zap_failed`). If clients `zap`, this must be 0 unless the scenario sets another
        /// threshold on it.
        ZAPS_FAILED = "zaps_failed", Count, "";
        /// Failed changes that the server refused because it has as many clients as it can serve or
        /// is allowed to, as with status 503.
        ZAPS_FAILED_503 = "zaps_failed_503", Count, "RFC 9110, 15.6.4";
        /// Failed changes that the server refused with another status or error, or answered with a
        /// redirect loop.
        ZAPS_FAILED_STATUS = "zaps_failed_status", Count, "RFC 9110, 15";
        /// Failed changes without a connection.
        ZAPS_FAILED_CONNECT = "zaps_failed_connect", Count, "";
        /// Failed changes without data in time: no response, no packet after it, or no further
        /// packets.
        ZAPS_FAILED_SILENT = "zaps_failed_silent", Count, "";
        /// Failed changes whose connection ended early, or whose response could not be parsed.
        ZAPS_FAILED_BROKEN = "zaps_failed_broken", Count, "";
        /// Failed changes that received something other than a transport stream.
        ZAPS_FAILED_NOT_TS = "zaps_failed_not_ts", Count, "";
        /// Failed changes that received stamped datagrams of other channels up to the next change,
        /// and none of the new channel.
        ZAPS_FAILED_WRONG_CHANNEL = "zaps_failed_wrong_channel", Count, "";
        /// Failed changes that received at least 2 s of video up to the next change, without a
        /// picture with which decoding can start.
        ZAPS_FAILED_NO_PICTURE = "zaps_failed_no_picture", Count, "ISO/IEC 13818-1, 2.4.3.5";
        /// Failed changes for which this machine had no free port or file descriptor: a limit of
        /// the tester.
        ZAPS_FAILED_LOCAL = "zaps_failed_local", Count, "";
        /// Channel changes without a picture that had not failed when the client changed again or
        /// was stopped: media without one had arrived for less than 2 s, or nothing had arrived for
        /// less than a second. They are missing from `zap_delay`, which is therefore too low.
        ZAPS_UNFINISHED = "zaps_unfinished", Count, "";
    }
    gauges {}
    distributions {
        /// Time from when a channel change was due to the arrival of the first picture of the new
        /// channel with which a decoder can begin: a random-access point of a transport stream, or
        /// a key frame; without video, the first packet. The delay that a viewer notices, without
        /// decoding. Only of changes that led to a picture. Stamped datagrams of another group than
        /// that of the new channel are ignored.
        ZAP_DELAY = "zap_delay", Seconds, "ISO/IEC 13818-1, 2.4.3.5";
        /// Time from when a channel change was due to the first media of the new channel; with
        /// HTTP, to the first byte of the body.
        ZAP_FIRST_BYTE_DELAY = "zap_first_byte_delay", Seconds, "";
    }
    derived {}
    features {
        &[
            ZAPS,
            ZAPS_FAILED,
            ZAPS_FAILED_503,
            ZAPS_FAILED_STATUS,
            ZAPS_FAILED_CONNECT,
            ZAPS_FAILED_SILENT,
            ZAPS_FAILED_BROKEN,
            ZAPS_FAILED_NOT_TS,
            ZAPS_FAILED_WRONG_CHANNEL,
            ZAPS_FAILED_NO_PICTURE,
            ZAPS_FAILED_LOCAL,
            ZAPS_UNFINISHED,
        ];
    }
}

/// Metrics that are measured only when a client starts.
pub const START_METRICS: [&str; 5] = [
    "startup_delay",
    "startup_delay_from_sent",
    "start_lateness",
    "connect_delay",
    "tls_handshake_delay",
];
