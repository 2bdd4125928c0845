//! Metrics that every population has, whatever it speaks.

measure::metrics! {
    /// The life of clients: how many there were and how they ended.
    pub CLIENTS after measure::Group::NONE;
    counters {
        /// Clients that began: their first request was due and they set to work.
        STARTED = "started", Count, "";
        /// Clients whose media played to its end, or that had done all that they were to do.
        COMPLETED = "completed", Count, "";
        /// Clients that were ended by the plan before their media was: by `leave: after`, by a
        /// falling stage of the load, by the end of the run or by the user.
        STOPPED = "stopped", Count, "";
        /// Clients that failed. The reasons are counted beside it.
        FAILED = "failed", Count, "";
        /// Packets of media that arrived at this machine for a client and were dropped at its
        /// socket, because we had not read it in time, or found no room in the packet ring. They
        /// are among the lost ones, though neither the server nor the network lost them. Of a ring
        /// they are known when the client gives its port back; until then they are in
        /// `tester.ring_overflow` alone.
        LOST_IN_TESTER = "lost_in_tester", Count, "socket(7), SO_RXQ_OVFL, SO_MEMINFO";
        /// Clients that arrived while the cap of an open-model load was reached, and were turned
        /// away by the tester.
        TURNED_AWAY = "turned_away", Count, "";
        /// Clients that took the place of one that had ended before its plan did (`rejoin`). They
        /// are among the started ones.
        REJOINED = "rejoined", Count, "";
        /// Connections over TLS that the server ended without saying so first (`close_notify`):
        /// whether something was cut off cannot be known.
        TLS_CUT_OFF = "tls_cut_off", Count, "RFC 8446, 6.1";
    }
    gauges {
        /// Clients that have begun and not ended: the most at any moment of the window (of runs on
        /// several workers, the sum of each one's most).
        ACTIVE = "active", Count, "", Sum;
        /// Clients whose media has begun to arrive, or to leave where they publish, and that have
        /// not ended: the most at any moment of the window (of runs on several workers, the sum of
        /// each one's most).
        PLAYING = "playing", Count, "", Sum;
    }
    distributions {
        /// From the moment a client's first request was due to the arrival of its first media
        /// packet.
        STARTUP_DELAY = "startup_delay", Seconds, "";
        /// From the moment a client's first request was really sent to the arrival of its first
        /// media packet: `startup_delay` without what the tester itself was late.
        STARTUP_DELAY_FROM_SENT = "startup_delay_from_sent", Seconds, "";
        /// From the moment a client was due to the moment it set to work: the tester's own
        /// lateness.
        START_LATENESS = "start_lateness", Seconds, "";
        /// From the moment a client set to work to the moment its first connection stood, with TLS
        /// where it is over TLS.
        CONNECT_DELAY = "connect_delay", Seconds, "";
        /// From the moment a TCP connection stood to the end of the handshake of TLS on it. No
        /// session is resumed: each is a whole handshake.
        TLS_HANDSHAKE_DELAY = "tls_handshake_delay", Seconds, "RFC 8446, 2";
    }
    derived {}
}

/// The metrics above that are measured when a client starts, and never again.
pub const OF_THE_START: [&str; 5] = [
    "startup_delay",
    "startup_delay_from_sent",
    "start_lateness",
    "connect_delay",
    "tls_handshake_delay",
];
