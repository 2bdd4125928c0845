//! Metrics of every population, whatever its protocol.

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

/// Metrics that are measured only when a client starts.
pub const START_METRICS: [&str; 5] = [
    "startup_delay",
    "startup_delay_from_sent",
    "start_lateness",
    "connect_delay",
    "tls_handshake_delay",
];
