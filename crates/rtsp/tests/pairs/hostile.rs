//! One flooding peer among many others, in virtual time: its own session fails with the right
//! reason, and all others end as usual.

use std::time::Duration;

use kit::media::rtp::metrics::RTP;
use kit::metrics::{CLIENTS, ZAPPING};
use kit::viewer::VIEWERS;
use measure::units::BitRate;
use measure::{Catalogue, Time};
use rtsp::client::Client;
use rtsp::config::{ClientConfig, Transport};
use rtsp::metrics::RTSP;
use rtsp::server::{Server, ServerConfig};
use session::testing::{Pair, PairSettings, RunEnd, Side};
use session::{ChannelId, Context, Input, Outcome, Output, Port, Session};

const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &ZAPPING, &VIEWERS, &RTP, &RTSP]);

/// Answers every request with 256 KiB of repeated bytes.
struct Flood(&'static [u8]);

impl Session for Flood {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Bytes { .. } => cx.out.push_back(Output::Send {
                channel: ChannelId(0),
                port: Port::Media,
                bytes: self.0.repeat(256 * 1024 / self.0.len()),
            }),
            Input::Closed { .. } | Input::Stop { .. } => {
                cx.out.push_back(Output::Ended(Outcome::Completed));
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

#[test]
fn only_the_client_of_a_flooding_server_fails() {
    for (flood, reason) in [
        (&b"PLAY"[..], "garbage"),
        (b"OPTIONS * RTSP/1.0\r\n\r\n", "flooded"),
    ] {
        let config = ClientConfig {
            transport: Transport::Tcp,
            ..ClientConfig::default()
        };
        let server = Server::new(ServerConfig {
            bitrate: BitRate(200_000),
            length: Some(Duration::from_secs(2)),
            ..ServerConfig::default()
        })
        .expect("sound settings");
        let client = |number: u64| -> Box<dyn Session> {
            let client = Client::new(config.clone(), "rtsp://server/a", number);
            Box::new(client.expect("a URL"))
        };
        let mut connections = 0;
        let accept = move |_| -> Box<dyn Session> {
            connections += 1;
            match connections {
                7 => Box::new(Flood(flood)),
                number => server.session(number),
            }
        };
        let mut pair = Pair::new(PairSettings::new(1, CATALOGUE), client(0), accept);
        for number in 1..20 {
            pair.add_client(client(number));
        }
        assert_eq!(pair.run(Duration::from_secs(60)), RunEnd::Ended);
        let clients: Vec<_> = pair.sessions(Side::Client).collect();
        let outcomes: Vec<&Outcome> = clients
            .iter()
            .map(|&client| pair.outcome(client).expect("all have ended"))
            .collect();
        let completed = outcomes
            .iter()
            .filter(|outcome| ***outcome == Outcome::Completed)
            .count();
        assert_eq!(completed, 19, "{outcomes:?}");
        let failed = |outcome: &&&Outcome| matches!(outcome, Outcome::Failed(failure) if failure.reason == reason);
        assert_eq!(outcomes.iter().filter(failed).count(), 1, "{outcomes:?}");
    }
}
