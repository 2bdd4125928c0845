//! WebRTC: session descriptions, feedback, protected packets, and a peer whose remote peer sends
//! anything.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use measure::Time;
use webrtc::certificate::Certificate;
use webrtc::extension;
use webrtc::feedback::{Arrivals, Message, NackTracker, messages};
use webrtc::peer::{Peer, PeerConfig, PeerState, Received};
use webrtc::sdp::{AnswerConfig, Candidate, SdpFragment, SdpReason, SessionDescription};
use webrtc::srtp::{SrtpError, SrtpKeys, SrtpProfile};

use crate::input::Input;

const START: Time = Time::from_nanos(1_000_000_000);

fn config(seed: u64) -> PeerConfig {
    static CERTIFICATE: OnceLock<Arc<Certificate>> = OnceLock::new();
    let certificate = CERTIFICATE.get_or_init(|| Arc::new(Certificate::generate(1)));
    PeerConfig::new(certificate.clone(), seed)
}

fn address(side: u8) -> SocketAddr {
    ([127, 0, 0, side], 5000).into()
}

/// Checks that a description can be written and read back. An answer has a section for each section
/// of the offer and is read back.
pub(crate) fn sdp(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(candidate) = text.parse::<Candidate>() {
        assert_eq!(candidate.to_string().parse(), Ok(candidate));
    }
    let fragment = SdpFragment::parse(text);
    assert!(fragment.candidates.len() <= 500);
    let Ok(read) = SessionDescription::parse(text) else {
        return;
    };
    let again = |written: &SessionDescription| {
        let error = match SessionDescription::parse(&written.to_string()) {
            Ok(again) => return Some(again),
            Err(error) => error,
        };
        // An attribute for all codecs is written as one line per codec.
        let too_large = [SdpReason::TooManyLines, SdpReason::TooLong].contains(&error.reason);
        assert!(too_large, "{error}");
        None
    };
    // Attributes without effect in a section are not written.
    let Some(first) = again(&read) else {
        return;
    };
    assert_eq!(again(&first), Some(first.clone()));
    let _ = read.transport();
    let transport = Peer::answerer(START, &config(1)).local_transport();
    let answer = read.answer(&AnswerConfig::receive_all(1), &transport);
    assert_eq!(answer.media.len(), read.media.len());
    for (media, offered) in answer.media.iter().zip(&read.media) {
        assert!(!media.direction.sends() && media.codecs.len() <= offered.codecs.len());
        assert!(media.rejected || !offered.rejected);
    }
    let _ = again(&answer);
}

/// Checks that parsed feedback is bounded by its bytes, and that a receiver's state is always
/// bounded.
pub(crate) fn feedback(bytes: &[u8]) {
    for message in messages(bytes).flatten() {
        match message {
            Message::Nack { missing, .. } => assert!(missing.len() <= 17 * bytes.len() / 4),
            Message::FullIntra {
                requests: demands, ..
            } => assert!(demands.len() <= bytes.len() / 8),
            Message::Remb { sources, .. } => assert!(sources.len() <= 255),
            Message::TransportCc(message) => {
                let mut written = Vec::new();
                message.write(&mut written);
                assert_eq!(
                    messages(&written).next(),
                    Some(Ok(Message::TransportCc(message)))
                );
            }
            Message::PictureLoss { .. } => {}
        }
    }
    for id in 0..=255 {
        if let Some(data) = extension::find_element(bytes, id) {
            assert!(data.len() < bytes.len());
        }
    }
    let mut input = Input::new(bytes);
    let (mut missing, mut arrivals) = (NackTracker::new(Duration::ZERO), Arrivals::default());
    let (mut now, mut requests, mut out) = (START, Vec::new(), Vec::new());
    while !input.is_empty() {
        now += Duration::from_micros(u64::from(input.byte()) * 37);
        let number = u16::from_be_bytes([input.byte(), input.byte()]);
        missing.record_arrival(number, now);
        arrivals.record_arrival(number, now);
        if number & 15 == 0 {
            requests.clear();
            missing.take_requests(now, &mut requests);
            assert!(requests.len() <= 1000);
            out.clear();
            let mut before = 0;
            while arrivals.write(1, 2, &mut out) {
                // Each message fits into a datagram.
                assert!(out.len() - before <= 1200);
                before = out.len();
            }
            assert!(arrivals.is_empty());
            for message in messages(&out) {
                assert!(matches!(message, Ok(Message::TransportCc(_))));
            }
        }
    }
    let counts = missing.counts();
    assert!(counts.missing >= counts.recovered + counts.reordered + counts.given_up);
}

/// Checks that a protected packet can be opened once, and that neither modified and replayed
/// packets nor other bytes can be opened.
pub(crate) fn srtp(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let profile = SrtpProfile::ALL[usize::from(input.byte() % 3)];
    let material = vec![7; 2 * (profile.key_length() + profile.salt_length())];
    let keys = |client| {
        SrtpKeys::from_exported(profile, &material, client)
            .expect("the material has the right length")
    };
    let (here, there) = (keys(true), keys(false));
    let (mut sealer, mut opener) = (here.rtp_sealer(), there.rtp_opener());
    let (mut rtcp_sealer, mut rtcp_opener) = (here.rtcp_sealer(), there.rtcp_opener());
    let mut out = Vec::new();
    while !input.is_empty() {
        let what = input.byte();
        let plain = input.piece();
        if what & 1 == 0 {
            let _ = opener
                .open(plain, &mut out)
                .is_ok_and(|_| panic!("it was never sealed"));
            let mut packet = plain.to_vec();
            if sealer.seal(&mut packet).is_err() {
                assert_eq!(packet, plain);
                continue;
            }
            if what & 2 != 0 {
                let index = usize::from(what) % packet.len();
                let mut wrong = packet.clone();
                wrong[index] ^= 1 << (what >> 5);
                assert!(opener.open(&wrong, &mut out).is_err());
            }
            match opener.open(&packet, &mut out) {
                Ok(opened) => assert_eq!(opened, plain),
                // The input sealed one index twice, or jumped far ahead.
                Err(SrtpError::Replayed | SrtpError::Unauthentic) => {}
                Err(error) => panic!("{error}"),
            }
            assert_eq!(opener.open(&packet, &mut out).map(<[u8]>::len).ok(), None);
        } else {
            assert!(rtcp_opener.open(plain, &mut out).is_err());
            let mut packet = Vec::new();
            if rtcp_sealer.seal(plain, &mut packet).is_ok() {
                assert_eq!(rtcp_opener.open(&packet, &mut out), Ok(plain));
                assert_eq!(
                    rtcp_opener.open(&packet, &mut out),
                    Err(SrtpError::Replayed)
                );
            }
        }
    }
}

/// Connects two peers whose datagrams are lost, modified, repeated and mixed with others. Checks
/// that the size of each datagram is bounded, and that the peers connect only to each other.
pub(crate) fn peer(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut now = START;
    let mut peers = [
        Peer::offerer(now, &config(1)),
        Peer::answerer(now, &config(2)),
    ];
    for (peer, side) in peers.iter_mut().zip([1, 2]) {
        assert!(peer.add_local_candidate(now, address(side)));
    }
    for side in [0, 1] {
        let transport = peers[side].local_transport();
        assert_eq!(peers[1 - side].set_remote(now, &transport), Ok(()));
    }
    let mut sent = 0u32;
    while !input.is_empty() && sent < 2000 {
        let what = input.byte();
        let to = usize::from(what & 1);
        let mut datagrams = Vec::new();
        loop {
            let mut bytes = Vec::new();
            if peers[1 - to].poll_transmit(&mut bytes).is_none() {
                break;
            }
            assert!(!bytes.is_empty() && bytes.len() <= 1200);
            sent += 1;
            datagrams.push(bytes);
        }
        match what >> 1 & 7 {
            0 => datagrams.clear(),
            1 => datagrams.push(input.piece().to_vec()),
            2 => {
                let (index, change) = (usize::from(input.byte()), input.byte());
                if let Some(byte) = datagrams.first_mut().and_then(|bytes| bytes.get_mut(index)) {
                    *byte ^= change;
                }
            }
            3 => datagrams.extend(datagrams.clone()),
            _ => {}
        }
        for bytes in datagrams {
            let from = address(2 - to as u8);
            let received = peers[to].handle_datagram(now, from, &bytes);
            assert!(!matches!(received, Received::Rtcp(_)), "no RTCP was sent");
        }
        if what & 0x10 != 0 {
            now += Duration::from_millis(u64::from(what >> 5) * 20);
            for peer in &mut peers {
                if peer.deadline().is_some_and(|due| due <= now) {
                    peer.handle_timeout(now);
                }
            }
        }
        while peers[to].poll_event().is_some() {}
    }
    let profiles = peers
        .each_ref()
        .map(|peer| (peer.state(), peer.srtp_profile()));
    if let [(PeerState::Connected, one), (PeerState::Connected, other)] = profiles {
        assert_eq!(one, other);
    }
}
