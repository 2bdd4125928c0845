//! Trials by which `calibrate` verifies the metrics of SRT.

use kit::calibration::{Check, Evidence, Trial, TrialClients, TrialLink, TrueValue};

/// URL that clients play.
const PLAYER_URL: &str = "srt://{address}?streamid=stream1";
/// Long enough for retransmissions to arrive in time on a busy machine.
const LATENCY: &str = "latency: 500ms";
/// Key of trials with messages.
const MESSAGES: &str = "messages: true";
/// Key of trials whose media ends.
const LEAVE_AT_END: &str = "leave: at_end";

pub(super) static TRIALS: &[Trial] = &[
    Trial {
        server: "--bitrate 1Mbps --length {length}",
        link: None,
        thresholds: &[],
        clients: &[players("steady", 10, &[LATENCY, LEAVE_AT_END])],
        checks: &[
            count_of_sent("steady", "pkt_recv"),
            Check::count("steady", "pkt_recv_unique", &["/sent/first"]),
            Check::zero("steady", "pkt_rcv_drop"),
            Check::zero("steady", "pkt_malformed"),
            Check::count("steady", "expected", &["/sent/first"]),
            Check::count("steady", "received", &["/sent/first"]),
            Check::zero("steady", "damaged"),
            Check::zero("steady", "continuity_errors"),
            Check::zero("steady", "stamps_ahead"),
            Check::delay("steady", "agreed_latency", |_| {
                Some(TrueValue::exactly(0.5))
            }),
        ],
    },
    Trial {
        server: "--bitrate 1Mbps --length {length} --fault lose=3%",
        link: None,
        thresholds: &[],
        clients: &[players("recovered", 10, &[LATENCY, LEAVE_AT_END])],
        checks: &[
            count_of_sent("recovered", "pkt_recv"),
            count_of_revealed("recovered", "pkt_rcv_expected"),
            count_of_revealed("recovered", "pkt_recv_unique"),
            count_of_revealed_losses("recovered", "pkt_rcv_loss"),
            count_of_revealed_losses("recovered", "pkt_rcv_recovered"),
            Check::count("recovered", "pkt_rcv_retrans", &["/sent/again"]),
            Check::zero("recovered", "pkt_rcv_drop"),
            Check::zero("recovered", "pkt_rcv_reordered"),
            Check::zero("recovered", "continuity_errors"),
        ],
    },
    Trial {
        server: "--bitrate 1Mbps --length {length} --fault lose=3% --fault lose-again=100%",
        link: None,
        thresholds: &["lost.wrong <= 10%"],
        clients: &[players("lost", 10, &[LATENCY, LEAVE_AT_END])],
        checks: &[
            count_of_sent("lost", "pkt_recv"),
            count_of_sent("lost", "pkt_recv_unique"),
            count_of_revealed("lost", "pkt_rcv_expected"),
            count_of_revealed_losses("lost", "pkt_rcv_loss"),
            count_of_revealed_losses("lost", "pkt_rcv_drop"),
            Check::zero("lost", "pkt_rcv_recovered"),
            Check::zero("lost", "pkt_rcv_retrans"),
        ],
    },
    Trial {
        server: "--bitrate 1Mbps --length {length} --fault duplicate=3% --fault corrupt=2%",
        link: None,
        thresholds: &["spoilt.wrong <= 10%"],
        clients: &[players("spoilt", 10, &[LATENCY, LEAVE_AT_END])],
        checks: &[
            count_of_sent("spoilt", "pkt_recv"),
            Check::count("spoilt", "pkt_recv_unique", &["/sent/first"]),
            Check::count(
                "spoilt",
                "pkt_rcv_duplicate",
                &["/wrongs/duplicated", "/sent/again"],
            ),
            Check::zero("spoilt", "pkt_rcv_drop"),
            Check::count("spoilt", "expected", &["/sent/first"]),
            Check::count("spoilt", "received", &["/sent/first"]),
            Check::count("spoilt", "damaged", &["/wrongs/corrupted"]),
        ],
    },
    Trial {
        server: "--fault lose=2%",
        link: None,
        thresholds: &[],
        clients: &[
            publishers("publishers"),
            TrialClients {
                name: "viewers",
                number: 8,
                url: "srt://{address}?streamid=read:own{1..4}",
                keys: &[LATENCY, "pick: in_turn"],
            },
        ],
        checks: &[
            Check::count("publishers", "pkt_sent", &["/receiver/pktRecv"]),
            Check::count(
                "publishers",
                "pkt_sent_unique",
                &["/receiver/pktRecvUnique"],
            ),
            Check::zero("publishers", "pkt_snd_drop"),
            Check::zero("publishers", "not_taken"),
            count_of_sent("viewers", "pkt_recv"),
            count_of_revealed("viewers", "pkt_recv_unique"),
            count_of_revealed_losses("viewers", "pkt_rcv_loss"),
            count_of_revealed_losses("viewers", "pkt_rcv_recovered"),
            Check::count("viewers", "pkt_rcv_retrans", &["/sent/again"]),
            Check::zero("viewers", "pkt_rcv_drop"),
        ],
    },
    Trial {
        server: "--messages 10kB --bitrate 1Mbps --length {length} --fault lose=3% --fault \
                 lose-again=10%",
        link: None,
        thresholds: &[],
        clients: &[
            players("readers", 10, &[MESSAGES, LEAVE_AT_END]),
            TrialClients {
                name: "writers",
                number: 4,
                url: "srt://{address}?streamid=publish:own{1..4}",
                keys: &[
                    MESSAGES,
                    "message_size: 10kB",
                    "publish: { bitrate: 1Mbps }",
                    "leave: { after: {length} }",
                ],
            },
        ],
        checks: &[
            Check::count("readers", "messages_whole", &["/messages/sent/taken"]),
            Check::count("readers", "messages_expected", &["/messages/sent/taken"]),
            Check::exact("readers", "message_bytes", |evidence| {
                let sent = evidence.sum("/messages/sent/taken")?;
                Some(TrueValue::exactly(10_000.0 * sent))
            }),
            Check::zero("readers", "messages_incomplete"),
            Check::zero("readers", "message_contradictions"),
            Check::count("writers", "messages_sent", &["/messages/received/whole"]),
            Check::count(
                "writers",
                "messages_acknowledged",
                &["/messages/received/whole"],
            ),
            Check::zero("writers", "messages_dropped"),
            Check::zero("writers", "messages_unacked"),
        ],
    },
    // Messages are far apart: packets after a missing one are acknowledged only once its message is
    // dropped.
    Trial {
        server: "--messages 10kB --message-ttl 500ms --bitrate 200kbps --length {length} --fault \
                 lose=3% --fault lose-again=100%",
        link: None,
        thresholds: &[],
        clients: &[players("late", 10, &[MESSAGES, LEAVE_AT_END])],
        checks: &[
            Check::count("late", "messages_whole", &["/messages/sent/acknowledged"]),
            Check::count("late", "messages_incomplete", &["/messages/sent/dropped"]),
            Check::count("late", "messages_expected", &["/messages/sent/taken"]),
        ],
    },
    Trial {
        server: "--bitrate 1Mbps --length {length}",
        link: Some(LINK),
        thresholds: &[],
        clients: &[players("far", 5, &[LATENCY, LEAVE_AT_END])],
        checks: &[
            count_of_sent("far", "pkt_recv"),
            Check::count("far", "pkt_recv_unique", &["/sent/first"]),
            Check::zero("far", "pkt_rcv_drop"),
            Check::delay("far", "datagram_delay", datagram_delay),
        ],
    },
];

/// Different delays per direction, so that a mix-up of the two is noticed.
const LINK: TrialLink = TrialLink { up: 10, down: 25 };

/// Clients that play generated media.
const fn players(name: &'static str, number: u32, keys: &'static [&'static str]) -> TrialClients {
    TrialClients {
        name,
        number,
        url: PLAYER_URL,
        keys,
    }
}

const fn publishers(name: &'static str) -> TrialClients {
    TrialClients {
        name,
        number: 4,
        url: "srt://{address}?streamid=publish:own{1..4}",
        keys: &[
            LATENCY,
            "publish: { bitrate: 1Mbps }",
            "leave: { after: {length} }",
        ],
    }
}

/// All packets sent: first transmissions, retransmissions and duplicates, except those left out.
const fn count_of_sent(clients: &'static str, metric: &'static str) -> Check {
    Check::exact(clients, metric, |evidence| {
        let sent = evidence.sum("/sent/first")? + evidence.sum("/sent/again")?;
        let duplicated = evidence.sum("/wrongs/duplicated")?;
        let not = evidence.sum("/wrongs/left_out")? + evidence.sum("/wrongs/left_out_again")?;
        Some(TrueValue::exactly(sent + duplicated - not))
    })
}

/// Mean delay of the packets that the server sent, plus the delay of the link to the client.
fn datagram_delay(evidence: &Evidence) -> Option<TrueValue> {
    let packets = evidence.sum("/delays/packets")?;
    let given = evidence.sum("/delays/given_nanos")?;
    let taken = evidence.sum("/delays/taken_nanos")?;
    let sent = TrueValue::between_nanos(given / packets, taken / packets);
    Some(sent + evidence.down)
}

/// Expected packets, as far as a later packet reveals them.
const fn count_of_revealed(clients: &'static str, metric: &'static str) -> Check {
    Check::exact(clients, metric, |evidence| {
        let unseen = evidence.sum("/wrongs/left_out_at_the_end")?;
        Some(TrueValue::exactly(evidence.sum("/sent/first")? - unseen))
    })
}

/// Packets left out, as far as a later packet reveals them.
const fn count_of_revealed_losses(clients: &'static str, metric: &'static str) -> Check {
    Check::exact(clients, metric, |evidence| {
        let unseen = evidence.sum("/wrongs/left_out_at_the_end")?;
        Some(TrueValue::exactly(
            evidence.sum("/wrongs/left_out")? - unseen,
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn delay_of_the_server_is_part_of_the_true_delay() {
        let evidence = Evidence {
            served: vec![json!({
                "delays": { "packets": 4, "given_nanos": 8_000_000, "taken_nanos": 12_000_000 },
            })],
            down: TrueValue {
                value: 0.025,
                uncertainty: 0.001,
            },
            ..Evidence::default()
        };
        let found = datagram_delay(&evidence).expect("packets were sent");
        assert!((found.value - 0.0275).abs() < 1e-9, "{found:?}");
        assert!((found.uncertainty - 0.0015).abs() < 1e-9, "{found:?}");
    }
}
