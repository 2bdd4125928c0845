//! Two clients that call each other.

use super::*;

/// Delay of the second end: the first one finds the port unreachable.
const LATER: Duration = Duration::from_millis(900);

fn end(side: Side, config: ClientConfig, query: &str) -> Client {
    let (peer, port, own) = match side {
        Side::Client => ("10.0.0.2", 7002, 7001u32),
        Side::Server => ("10.0.0.1", 7001, 7002),
    };
    let url = format!("srt://{peer}:{port}?mode=rendezvous&port={own}{query}");
    let seed = u64::from(own);
    let client = Client::new(config, &url, seed).expect("a good URL");
    client.with_wall_clock(Duration::from_secs(1_700_000_000))
}

fn publisher(query: &str) -> Client {
    let source = SourceConfig {
        bitrate: Some(BitRate(1_000_000)),
        ..SourceConfig::default()
    };
    let looped = config::stream(&source, None).expect("it can be made");
    end(Side::Client, ClientConfig::default(), query).publishing(Arc::new(looped))
}

#[test]
fn rendezvous_plays_whichever_end_starts_first() {
    for (publisher_first, loss, query) in [
        (true, 0.0, ""),
        (false, 0.0, "&passphrase=0123456789&pbkeylen=32"),
        (true, 0.05, "&latency=800&passphrase=0123456789"),
        (false, 0.05, "&latency=800"),
    ] {
        let settings = lossy(loss);
        let publisher: Box<dyn Session> = Box::new(publisher(query));
        let player: Box<dyn Session> = Box::new(end(Side::Server, ClientConfig::default(), query));
        let nobody = |_| unreachable!("it is UDP");
        let (mut pair, publisher, player) = match publisher_first {
            true => {
                let mut pair = Pair::new(settings, publisher, nobody);
                pair.run(LATER);
                let player = pair.add_peer(player);
                (pair, CLIENT, player)
            }
            false => {
                let mut pair = Pair::new(settings, Box::new(Idle), nobody);
                let player = pair.add_peer(player);
                pair.run(LATER);
                let publisher = pair.add_client(publisher);
                (pair, publisher, player)
            }
        };
        pair.run(Duration::from_secs(5));
        pair.stop(publisher, Duration::from_secs(5));
        pair.run(Duration::from_secs(30));
        assert_eq!(pair.outcome(publisher), Some(&Outcome::Stopped), "{query}");
        let sent = pair.recorder(Side::Client).counter(m::PKT_SENT_UNIQUE);
        let mut count = |id| pair.recorder(Side::Server).counter(id);
        let came = count(m::PKT_RECV_UNIQUE);
        assert!(sent > 300, "{sent}");
        match loss {
            0.0 => assert_eq!(came, sent, "{query}"),
            // Losses at the end are unknown to the player.
            _ => assert!(came <= sent && came + 3 >= sent, "{came} of {sent} {query}"),
        }
        assert_eq!(count(m::PKT_RCV_DROP), 0, "{query}");
        assert_eq!(count(m::PKT_MALFORMED), 0, "{query}");
        assert_eq!(count(ts::CONTINUITY_ERRORS), 0, "{query}");
        if loss == 0.0 {
            let outcome = pair.outcome(player).expect("it has ended");
            let reason = outcome.failure().map(|failure| failure.reason);
            assert_eq!(reason, Some("peer_shutdown"), "{query}");
        }
    }
}

#[test]
fn rendezvous_without_a_peer_times_out() {
    let client = end(Side::Client, ClientConfig::default(), "");
    let mut pair = Pair::new(settings(), Box::new(client), |_| unreachable!("it is UDP"));
    assert_eq!(pair.run(Duration::from_secs(10)), RunEnd::Ended);
    assert_eq!(Played(pair).reason(), "handshake_timeout");
}

/// Session that does nothing.
struct Idle;

impl Session for Idle {
    fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}
