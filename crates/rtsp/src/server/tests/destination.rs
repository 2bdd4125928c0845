//! Media sent to an address other than that of the connection.

use super::*;

#[test]
fn media_is_sent_only_to_allowed_addresses() {
    let set_up = |to: &str| {
        let mut talk = ScriptedClient::new(ServerConfig {
            destinations: vec!["127.0.0.9".parse().unwrap()],
            ..config()
        });
        let transport =
            format!("Transport: RTP/AVP;unicast;destination={to};client_port=4000-4001");
        talk.send("SETUP rtsp://h/a/track1", &[&transport]);
        if let Some((channel, _)) = talk.opened.first().cloned() {
            talk.input(Input::Opened {
                channel,
                local: "127.0.0.1:30000".parse().unwrap(),
                remote: None,
            });
        }
        talk
    };
    for wrong in ["127.0.0.8", "10.0.0.1", "::1", "nowhere"] {
        let mut talk = set_up(wrong);
        assert_eq!(talk.response().status, 461, "{wrong}");
        assert!(talk.peers.is_empty());
    }
    // The last one is the client's own address, which is always allowed.
    for good in ["127.0.0.9", "127.0.0.2"] {
        let mut talk = set_up(good);
        let response = talk.response();
        let transport = response.headers.get("Transport").unwrap();
        assert!(
            transport.contains(&format!(";destination={good};")),
            "{transport}"
        );
        let end = |port| SocketAddr::new(good.parse().unwrap(), port);
        assert_eq!(talk.peers, [(end(4000), end(4001))]);
    }
}
