//! A peer connection with Chromium over loopback sockets: its media is decrypted, requested again
//! where it was lost, and counted as in its own statistics; and it receives the media sent to it.
//! With STREAMGAUGE_TEST_WITHOUT_TOOLS the tests are skipped if it is not installed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::media::rtcp::{self, Packet, ReportBlock};
use measure::Time;
use webrtc::certificate::Certificate;
use webrtc::feedback::{Arrivals, NackTracker, parse_rtx, write_nack, write_pli};
use webrtc::peer::{Peer, PeerConfig, PeerEvent, PeerState, Received};
use webrtc::sdp::{
    AnswerConfig, Direction, FeedbackTypes, LocalSource, MediaKind, NegotiatedMedia, OfferConfig,
    OfferedMedia, SessionDescription, extension, known, negotiated_media,
};

const OWN: u32 = 7;

/// Timeout of each step: the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);

fn program() -> Option<&'static str> {
    let names = ["chromium", "chromium-headless-shell", "chromium-browser"];
    let starts = |name: &&str| {
        let tried = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok()
    };
    let found = names.into_iter().find(starts);
    assert!(
        found.is_some() || std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some(),
        "no Chromium is installed; set STREAMGAUGE_TEST_WITHOUT_TOOLS to skip these tests"
    );
    found
}

/// A browser with one page. It is killed at the end of the test, and its folder is removed.
struct Browser {
    child: Child,
    folder: PathBuf,
}

impl Browser {
    fn open(program: &str, url: &str) -> Browser {
        let port = url.rsplit(':').next().unwrap_or_default().trim_matches('/');
        let name = format!("streamgauge-webrtc-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let child = Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--allow-loopback-in-peer-connection", "--mute-audio"])
            .args(["--autoplay-policy=no-user-gesture-required"])
            .arg("--remote-debugging-port=0")
            .arg(format!("--user-data-dir={}", folder.display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Browser {
            child: child.expect("Chromium is installed"),
            folder,
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Other browser processes exit a moment later, and may still write there.
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir_all(&self.folder).is_err()
            && self.folder.exists()
            && Instant::now() < end
        {}
    }
}

/// Serves the page, and receives its messages as POST requests.
struct Site {
    listener: TcpListener,
    page: String,
}

impl Site {
    fn new(page: String) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it can be");
        Site { listener, page }
    }

    fn url(&self) -> String {
        let address = self.listener.local_addr().expect("it is bound");
        format!("http://{address}/")
    }

    /// Handles a pending request and returns its path and body. `answer` makes the response.
    fn request(&self, answer: impl FnOnce(&str, &str) -> String) -> Option<(String, String)> {
        let (stream, _) = self.listener.accept().ok()?;
        let (path, body) = read_request(&stream).ok()?;
        let content = match &path[..] {
            "/" => self.page.clone(),
            path => answer(path, &body),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            content.len()
        );
        (&stream).write_all((head + &content).as_bytes()).ok()?;
        Some((path, body))
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<(String, String)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap_or(0);
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((path, String::from_utf8_lossy(&body).into_owned()))
}

/// A peer with its socket.
struct DrivenPeer {
    peer: Peer,
    socket: UdpSocket,
    start: Instant,
    connected: bool,
}

impl DrivenPeer {
    fn new(offers: bool) -> DrivenPeer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let timeout = Some(Duration::from_millis(2));
        socket.set_read_timeout(timeout).expect("it is not zero");
        let config = PeerConfig::new(Arc::new(Certificate::generate(5)), 6);
        let now = Time::from_start(Duration::from_secs(1));
        let mut peer = match offers {
            true => Peer::offerer(now, &config),
            false => Peer::answerer(now, &config),
        };
        let address = socket.local_addr().expect("it is bound");
        assert!(peer.add_local_candidate(now, address));
        DrivenPeer {
            peer,
            socket,
            start: Instant::now(),
            connected: false,
        }
    }

    fn now(&self) -> Time {
        Time::from_start(self.start.elapsed() + Duration::from_secs(1))
    }

    /// Sends pending datagrams, and receives a datagram that arrives soon.
    fn turn(&mut self, buffer: &mut [u8; 2048]) -> Option<(usize, SocketAddr)> {
        let now = self.now();
        if self.peer.deadline().is_some_and(|due| due <= now) {
            self.peer.handle_timeout(now);
        }
        let mut bytes = Vec::new();
        while let Some(to) = self.peer.poll_transmit(&mut bytes) {
            let _ = self.socket.send_to(&bytes, to);
            bytes.clear();
        }
        while let Some(event) = self.peer.poll_event() {
            match event {
                PeerEvent::DtlsConnected => self.connected = true,
                PeerEvent::IceConnected { .. } => {}
                PeerEvent::Closed | PeerEvent::Failed(_) => panic!("{event:?}"),
            }
        }
        self.socket.recv_from(buffer).ok()
    }
}

const SENDING_PAGE: &str = "<script>(async () => {
  const offer = await (await fetch('/offer', {method: 'POST'})).text();
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  setInterval(() => {
    context.fillStyle = `rgb(${Math.random() * 255},${Math.random() * 255},0)`;
    context.fillRect(Math.random() * 200, Math.random() * 100, 90, 60);
  }, 30);
  const stream = canvas.captureStream(30);
  const peer = new RTCPeerConnection();
  peer.addTrack(stream.getVideoTracks()[0], stream);
  await peer.setRemoteDescription({type: 'offer', sdp: offer});
  await peer.setLocalDescription(await peer.createAnswer());
  while (peer.iceGatheringState != 'complete') await new Promise(done => setTimeout(done, 10));
  await fetch('/answer', {method: 'POST', body: peer.localDescription.sdp});
  for (;;) {
    await new Promise(done => setTimeout(done, 200));
    let all = [];
    (await peer.getStats()).forEach(one => all.push(one));
    const out = all.find(one => one.type == 'outbound-rtp');
    if (!out) continue;
    const values = [
      out.nackCount, out.pliCount, out.retransmittedPacketsSent, out.keyFramesEncoded];
    await fetch('/stats', {method: 'POST', body: values.join(' ')});
  }
})()</script>";

/// Statistics of the page's sender.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    nacks: u64,
    plis: u64,
    retransmitted: u64,
    key_frames: u64,
}

impl Stats {
    fn parse(text: &str) -> Stats {
        let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Stats {
            nacks: next(),
            plis: next(),
            retransmitted: next(),
            key_frames: next(),
        }
    }
}

#[test]
fn media_of_chromium_is_decrypted_and_lost_packets_recovered() {
    let Some(program) = program() else {
        return;
    };
    let mut driven = DrivenPeer::new(true);
    let vp8 = known::vp8();
    let rtx = known::rtx(&vp8);
    let config = OfferConfig {
        session_id: 1,
        media: vec![OfferedMedia {
            kind: MediaKind::Video,
            direction: Direction::RecvOnly,
            codecs: vec![vp8, rtx],
            extensions: vec![
                extension::MID.to_owned(),
                extension::TRANSPORT_CC.to_owned(),
            ],
            source: None,
        }],
        feedback: FeedbackTypes::default(),
    };
    let offer = SessionDescription::offer(&config, &driven.peer.local_transport());
    let site = Site::new(SENDING_PAGE.to_owned());
    let _browser = Browser::open(program, &site.url());

    let end = Instant::now() + TIMEOUT;
    let (mut buffer, mut out) = ([0; 2048], Vec::new());
    let mut opener = None;
    let mut missing = NackTracker::new(Duration::ZERO);
    missing.set_round_trip(Duration::from_millis(20));
    let mut arrivals = Arrivals::default();
    let mut media: Option<NegotiatedMedia> = None;
    let (mut came, mut again, mut dropped) = (0u64, BTreeSet::new(), BTreeSet::new());
    let (mut reports, mut reported, mut pli_sent) = (0, Instant::now(), false);
    let mut stats = Stats::default();
    loop {
        assert!(
            Instant::now() < end,
            "{came} packets, {} lost, {} sent again, {stats:?}, {:?}",
            dropped.len(),
            again.len(),
            driven.peer.counts()
        );
        let request = site.request(|path, _| match path {
            "/offer" => offer.to_string(),
            _ => String::new(),
        });
        match request {
            Some((path, body)) if path == "/answer" => {
                let answer = SessionDescription::parse(&body).expect("Chromium writes SDP");
                let transport = answer.transport().expect("it is whole");
                let now = driven.now();
                driven
                    .peer
                    .set_remote(now, &transport)
                    .expect("it is usable");
                media = negotiated_media(&offer, &answer, false).pop();
            }
            Some((path, body)) if path == "/stats" => stats = Stats::parse(&body),
            _ => {}
        }
        let received = driven.turn(&mut buffer);
        let now = driven.now();
        if driven.connected {
            opener = opener.or_else(|| driven.peer.take_rtp_opener());
        }
        if let (Some((length, from)), Some(media)) = (received, &media) {
            let datagram = &buffer[..length];
            match driven.peer.handle_datagram(now, from, datagram) {
                Received::Rtp => {
                    let opener = opener.as_mut().expect("media follows DTLS");
                    let plain = opener.open(datagram, &mut out).expect("it is authentic");
                    let sequence = u16::from_be_bytes([plain[2], plain[3]]);
                    let codec = media
                        .codecs
                        .iter()
                        .find(|c| c.payload_type == plain[1] & 0x7f);
                    let codec = codec.expect("it was agreed on");
                    came += 1;
                    let header = header_length(plain);
                    // Treated as lost in the network, because Chromium forgets packets that have
                    // arrived.
                    let lose = codec.has_name("VP8") && came % 10 == 3 && again.len() < 18;
                    if let Some(number) = transport_number(plain).filter(|_| !lose) {
                        arrivals.record_arrival(number, now);
                    }
                    if lose {
                        dropped.insert(sequence);
                    } else if codec.has_name("VP8") {
                        missing.record_arrival(sequence, now);
                    } else if let Some((sequence, payload)) = parse_rtx(unpadded(plain, header)) {
                        assert!(!payload.is_empty());
                        if missing.record_arrival(sequence, now) {
                            again.insert(sequence);
                        }
                    }
                }
                Received::Rtcp(compound) => {
                    for packet in rtcp::packets(compound) {
                        let packet = packet.expect("Chromium writes RTCP");
                        reports += u32::from(matches!(packet, Packet::SenderReport { .. }));
                    }
                }
                Received::Handled | Received::Dropped => {}
            }
        }
        let source = media
            .as_ref()
            .and_then(|media| media.remote_sources.first());
        if let Some(source) = source.filter(|_| reported.elapsed() > Duration::from_millis(50)) {
            reported = Instant::now();
            let mut compound = Vec::new();
            let block = ReportBlock {
                ssrc: source.ssrc,
                ..ReportBlock::default()
            };
            rtcp::write_receiver_report(&mut compound, OWN, &[block]);
            let mut asked = Vec::new();
            missing.take_requests(now, &mut asked);
            write_nack(&mut compound, OWN, source.ssrc, &asked);
            while arrivals.write(OWN, source.ssrc, &mut compound) {}
            if came > 50 && !pli_sent {
                write_pli(&mut compound, OWN, source.ssrc);
                pli_sent = true;
            }
            driven.peer.send_rtcp(&compound);
        }
        // Chromium counts NACK messages; the test counts retransmitted packets. On a busy machine
        // some come after the tracker gave up, so packets are dropped until enough came in time.
        if again.len() >= 18
            && again.is_subset(&dropped)
            && reports > 0
            && stats.plis > 0
            && stats.nacks > 0
            && stats.retransmitted >= 18
            && stats.key_frames >= 2
        {
            break;
        }
    }
    let counts = opener.expect("media came").counts();
    assert_eq!((counts.unauthentic, counts.malformed), (0, 0), "{counts:?}");
    assert_eq!(driven.peer.counts().rtcp.unauthentic, 0);
    assert_eq!(driven.peer.state(), PeerState::Connected);
}

fn header_length(packet: &[u8]) -> usize {
    let fixed = 12 + 4 * usize::from(packet[0] & 0x0f);
    match packet[0] & 0x10 {
        0 => fixed,
        _ => {
            4 * usize::from(u16::from_be_bytes([packet[fixed + 2], packet[fixed + 3]])) + fixed + 4
        }
    }
}

/// Payload without padding, of which bandwidth probes consist.
fn unpadded(packet: &[u8], header: usize) -> &[u8] {
    let padding = match packet[0] & 0x20 {
        0 => 0,
        _ => usize::from(packet[packet.len() - 1]),
    };
    &packet[header..packet.len() - padding]
}

/// Transport-wide sequence number from the header extension, the second extension that was offered.
fn transport_number(packet: &[u8]) -> Option<u16> {
    let header = header_length(packet);
    let fixed = 12 + 4 * usize::from(packet[0] & 0x0f);
    let mut elements = packet.get(fixed + 4..header)?;
    while let [head, rest @ ..] = elements {
        let length = usize::from(head & 0x0f) + 1;
        match head >> 4 {
            0 => elements = rest,
            2 => return Some(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])),
            _ => elements = rest.get(length..)?,
        }
    }
    None
}

const RECEIVING_PAGE: &str = "<script>(async () => {
  const peer = new RTCPeerConnection();
  peer.addTransceiver('audio', {direction: 'recvonly'});
  await peer.setLocalDescription(await peer.createOffer());
  while (peer.iceGatheringState != 'complete') await new Promise(done => setTimeout(done, 10));
  const offer = {method: 'POST', body: peer.localDescription.sdp};
  const answer = await (await fetch('/offer', offer)).text();
  await peer.setRemoteDescription({type: 'answer', sdp: answer});
  for (;;) {
    await new Promise(done => setTimeout(done, 200));
    let all = [];
    (await peer.getStats()).forEach(one => all.push(one));
    const heard = all.find(one => one.type == 'inbound-rtp');
    if (!heard) continue;
    await fetch('/stats', {method: 'POST', body: `${heard.packetsReceived} ${heard.packetsLost}`});
  }
})()</script>";

#[test]
fn chromium_receives_the_media_sent_to_it() {
    let Some(program) = program() else {
        return;
    };
    let mut driven = DrivenPeer::new(false);
    let site = Site::new(RECEIVING_PAGE.to_owned());
    let _browser = Browser::open(program, &site.url());
    let end = Instant::now() + TIMEOUT;
    let mut buffer = [0; 2048];
    let mut sealer = None;
    let (mut sent, mut left_out, mut payload_type) = (0u16, 0i64, None);
    let mut next = Instant::now();
    let mut heard = (0i64, 0i64);
    // A tenth is omitted on purpose; the last packet is sent.
    while !(sent == 201 && heard.0 + heard.1 == 201) {
        assert!(
            Instant::now() < end,
            "{sent} sent, {left_out} left out, {heard:?} heard and lost, {:?}",
            driven.peer.counts()
        );
        let driving = &mut driven;
        let request = site.request(|path, body| {
            if path != "/offer" {
                return String::new();
            }
            let offer = SessionDescription::parse(body).expect("Chromium writes SDP");
            let now = driving.now();
            let transport = offer.transport().expect("it is whole");
            driving
                .peer
                .set_remote(now, &transport)
                .expect("it is usable");
            let source = LocalSource {
                ssrc: OWN,
                rtx_ssrc: None,
                cname: "test".to_owned(),
                stream_id: "stream".to_owned(),
                track_id: "track".to_owned(),
                layers: Vec::new(),
            };
            let config = AnswerConfig {
                receive: false,
                sources: vec![(MediaKind::Audio, source)],
                codecs: vec!["opus".to_owned()],
                ..AnswerConfig::receive_all(1)
            };
            let answer = offer.answer(&config, &driving.peer.local_transport());
            let agreed = negotiated_media(&answer, &offer, true);
            assert_eq!(agreed[0].direction, Direction::SendOnly);
            payload_type = Some(agreed[0].codecs[0].payload_type);
            answer.to_string()
        });
        if let Some((path, body)) = request
            && path == "/stats"
        {
            let mut numbers = body.split(' ').map(|number| number.parse().unwrap_or(0));
            heard = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        }
        if let Some((length, from)) = driven.turn(&mut buffer) {
            let now = driven.now();
            let _ = driven.peer.handle_datagram(now, from, &buffer[..length]);
        }
        if driven.connected {
            sealer = sealer.or_else(|| driven.peer.rtp_sealer());
        }
        if let (Some(sealer), Some(payload_type)) = (&mut sealer, payload_type)
            && sent < 201
            && next.elapsed() >= Duration::from_millis(20)
        {
            next = Instant::now();
            // Opus silence of 20 ms (RFC 6716, 3.1), over a wrap of the sequence numbers.
            let sequence = 65_400u16.wrapping_add(sent);
            let mut packet = vec![0x80, payload_type];
            packet.extend_from_slice(&sequence.to_be_bytes());
            packet.extend_from_slice(&(u32::from(sent) * 960).to_be_bytes());
            packet.extend_from_slice(&OWN.to_be_bytes());
            packet.extend_from_slice(&[0xf8, 0xff, 0xfe]);
            sealer.seal(&mut packet).expect("it is RTP");
            // Never the first or the last packet.
            if sent % 10 == 5 {
                left_out += 1;
            } else if let Some(to) = driven.peer.remote_address() {
                driven.socket.send_to(&packet, to).expect("it can be sent");
            }
            sent += 1;
        }
    }
    assert_eq!(heard.1, left_out);
}
