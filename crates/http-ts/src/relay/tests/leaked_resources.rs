//! Tests of groups and sockets that remain on purpose, and of the previous group.

use super::*;

const GROUP: ChannelId = ChannelId(1);
const OLD_GROUP: ChannelId = ChannelId(2);

impl Conversation {
    /// A further client of a relay, which requests a channel and gets it.
    fn of(relay: &Relay, channel: u8) -> Conversation {
        let mut talk = Conversation::with(relay);
        talk.get(&format!("/udp/239.81.0.{channel}:4056"));
        talk.join();
        talk.sent.clear();
        talk
    }

    fn datagram_of(&mut self, channel: ChannelId, bytes: &[u8]) {
        let at = self.now;
        self.input(Input::Datagram {
            channel,
            port: Port::Media,
            from: "10.0.0.1:5000".parse().expect("an address"),
            bytes,
            at,
        });
    }
}

#[test]
fn each_group_remains_joined_once() {
    let relay = Relay::new(config(&["keep-groups"]));
    let mut first = Conversation::of(&relay, 1);
    first.datagram(&[1; 188]);
    first.leave();
    // The client has ended, but its group is still joined.
    assert!(first.closed && first.closed_channels.is_empty());
    assert_eq!((first.count("datagrams"), &first.outcome), (1, &None));
    first.datagram(&[2; 188]);
    assert_eq!(first.sent.len(), 188);
    let mut second = Conversation::of(&relay, 1);
    second.leave();
    assert_eq!(second.outcome, Some(Outcome::Completed));
    let mut other = Conversation::of(&relay, 2);
    other.leave();
    assert_eq!(other.outcome, None);
    let until = first.now;
    first.input(Input::Stop { until });
    assert_eq!(first.outcome, Some(Outcome::Stopped));
    // A client that got nothing keeps nothing.
    let mut nobody = Conversation::with(&relay);
    nobody.leave();
    assert_eq!(nobody.outcome, Some(Outcome::Completed));
}

#[test]
fn each_client_leaves_a_pair_of_sockets_open() {
    let relay = Relay::new(config(&["keep-files"]));
    for _ in 0..3 {
        let mut talk = Conversation::of(&relay, 1);
        talk.leave();
        assert!(talk.closed && talk.outcome.is_none());
        assert_eq!(talk.closed_channels, [GROUP]);
        let Some((_, Open::UdpPair { shared: false, .. })) = talk.opened.last() else {
            panic!("{:?}", talk.opened);
        };
    }
    for _ in 3..1000 {
        Conversation::of(&relay, 1).leave();
    }
    let mut beyond = Conversation::of(&relay, 1);
    beyond.leave();
    assert_eq!(beyond.outcome, Some(Outcome::Completed));
}

#[test]
fn previously_requested_group_may_come_first() {
    let relay = Relay::new(config(&["old-channel=2"]));
    let mut first = Conversation::of(&relay, 1);
    first.datagram(&[1; 188]);
    assert_eq!(first.sent, [1; 188]);
    first.leave();
    let mut second = Conversation::of(&relay, 2);
    let (channel, open) = second.opened.last().expect("another group").clone();
    assert_eq!(channel, OLD_GROUP);
    assert!(matches!(open, Open::Multicast { group, .. } if group.to_string() == "239.81.0.1"));
    second.join();
    second.datagram(&[2; 188]);
    for _ in 0..3 {
        second.datagram_of(OLD_GROUP, &[1; 188]);
    }
    assert_eq!(second.closed_channels, [OLD_GROUP]);
    second.datagram(&[2; 188]);
    assert_eq!(second.sent, [[1; 188], [1; 188], [2; 188]].concat());
    second.leave();
    assert_eq!(second.outcome, Some(Outcome::Completed));
    let [old, passed_on, left_out] =
        ["old_channel", "passed_on", "left_out"].map(|key| second.count(key));
    assert_eq!((old, passed_on, left_out), (2, 1, 1));
    // Requesting the same group again is no channel change.
    let third = Conversation::of(&relay, 2);
    assert_eq!(third.opened.len(), 1);
}
