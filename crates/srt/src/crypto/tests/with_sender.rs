use std::time::Duration;

use bytes::Bytes;
use measure::Time;

use super::super::{KeyOffer, Refresh};
use super::{CipherMode, secret};
use crate::arq::sender::{Bandwidth, Sender, SenderConfig};
use crate::codec::handshake::Extension;
use crate::codec::packet::{Control, HEADER, KeyFlag, Packet};
use crate::seq::{SeqNumber, SocketClock};

/// The decryptor opens all packets of a sender with an encryptor, also across key changes.
#[test]
fn sender_changes_keys_without_loss() {
    for mode in [CipherMode::Ctr, CipherMode::Gcm] {
        let offer = KeyOffer::new(&secret().with_cipher(mode), 3);
        let (mut encryptor, mut decryptor) = offer.accept(0x0001_0505);
        encryptor.set_refresh(Refresh {
            packets_per_key: 100,
            announce_before_packets: 20,
        });
        let clock = SocketClock::new(Time::ZERO);
        let latency = Duration::from_millis(120);
        let config = SenderConfig::live(SeqNumber::new(7), 9, clock, latency);
        let mut sender = Sender::new(SenderConfig {
            bandwidth: Bandwidth::Unlimited,
            ..config
        });
        sender.set_cipher(Box::new(encryptor));
        let (mut opened, mut announced) = (0, 0);
        let (mut keys, mut now) = (Vec::new(), Time::ZERO);
        for number in 0..500u32 {
            now += Duration::from_millis(4);
            let media = Bytes::from(vec![number as u8; 1316]);
            sender.push(now, media).unwrap();
            while let Some(outgoing) = sender.next_packet(now) {
                let datagram = [&outgoing.header[..], &outgoing.payload].concat();
                let Ok(Packet::Data(header, payload)) = Packet::parse(&datagram) else {
                    panic!("no data")
                };
                let media = decryptor.decrypt_copy(&header, payload).unwrap();
                assert_eq!(media, [opened as u8; 1316]);
                opened += 1;
                if keys.last() != Some(&header.key) {
                    keys.push(header.key);
                }
            }
            let mut out = Vec::new();
            while sender.write_next(now, &mut out) {
                if let Ok(Packet::Control(_, control)) = Packet::parse(&out)
                    && let Control::UserDefined { subtype, cif, .. } = control
                {
                    assert_eq!(subtype, Extension::KM_REQUEST);
                    announced += 1;
                    let mut reply = Vec::new();
                    assert!(decryptor.key_request(cif, &mut reply));
                    let (subtype, info) = (Extension::KM_RESPONSE, 0);
                    let cif = reply.as_slice();
                    sender.control(&Control::UserDefined { subtype, info, cif }, now);
                }
                assert!(out.len() > HEADER);
                out.clear();
            }
        }
        assert_eq!(opened, 500);
        assert_eq!(
            keys,
            [
                KeyFlag::Even,
                KeyFlag::Odd,
                KeyFlag::Even,
                KeyFlag::Odd,
                KeyFlag::Even
            ]
        );
        assert!((4..=5).contains(&announced), "{announced}");
    }
}
