//! The conformance cases of the session contract, over real sockets.

use crate::worker::receive_path;
use session::CaptureNeeds;
use session::testing::conformance::{Case, Log, Server, by_address, cases};

use super::*;

/// A worker with nothing to do.
fn idle() -> WorkerPlan {
    WorkerPlan {
        populations: vec![WorkerPopulation {
            name: "toys".to_owned(),
            catalogue: RTSP_PROTOCOL.catalogue,
            clients: None,
        }],
        raised_priority: false,
        realtime_pacer: false,
        serving: Vec::new(),
        endpoints: Vec::new(),
        ports: ports(),
        ring: None,
    }
}

/// TLS of a server with a self-signed certificate.
fn tls() -> net::tls::Server {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder is ours");
        path
    };
    let chain = place("cert.pem", own.cert.pem());
    let key = place("key.pem", own.signing_key.serialize_pem());
    net::tls::Server::from_files(&chain, &key).expect("they belong together")
}

/// Returns the server's worker and its address.
fn server(case: &Case, log: &Log) -> (WorkerPlan, SocketAddr) {
    let mut duty = idle();
    let udp = || UdpSocket::bind((LOCAL, 0)).expect("a free port");
    let at = match case.server {
        Server::Tcp(serve) | Server::Tls(serve) => {
            let listener = TcpListener::bind((LOCAL, 0)).expect("a free port");
            let at = listener.local_addr();
            let log = Mutex::new(log.clone());
            let accept: Accept = Arc::new(move |_| {
                let log = log.lock().expect("nobody panics with it");
                serve(log.clone())
            });
            let serving = ListenerPlan {
                no_segmentation: false,
                own_descriptor_tables: false,
                max_sessions: usize::MAX,
                accept,
                tls: matches!(case.server, Server::Tls(_)).then(tls),
            };
            duty.serving.push((listener, serving));
            at
        }
        Server::Udp(serve) => {
            let socket = udp();
            let at = socket.local_addr();
            duty.endpoints.push(EndpointPlan {
                socket,
                endpoint: by_address(log.clone(), serve),
                population: 0,
                max_sessions: usize::MAX,
            });
            at
        }
        Server::Nobody => udp().local_addr(),
    };
    (duty, at.expect("it is bound"))
}

fn client(case: &Case, to: SocketAddr, log: &Log) -> WorkerPlan {
    let (make, log) = (case.client, log.clone());
    let client: MakeClient = Arc::new(move |_, _| Ok(make(to, log.clone())));
    one_client(client, case.stop.map_or(Leave::AtEnd, Leave::After))
}

/// A worker with one client.
pub(super) fn one_client(client: MakeClient, leave: Leave) -> WorkerPlan {
    let load = Load {
        shape: Shape::AtOnce { clients: 1 },
        rejoin: false,
        after: Duration::ZERO,
    };
    let mut duty = idle();
    duty.populations[0].clients = Some(ClientPlan {
        share: Share::new(&load, 0, 1),
        urls: vec!["toy".to_owned()],
        pick: Pick::InTurn,
        leave,
        run_ends: Time::NEVER,
        tls: Arc::new(net::tls::Client::new(net::tls::Trust {
            accept_any: true,
            authorities: None,
        })),
        client,
        traced: crate::trace::Traced::default(),
        media: true,
        reads_at_once: false,
        sources: Vec::new(),
    });
    duty
}

#[test]
fn worker_with_sockets_passes_the_conformance_cases() {
    carry_all(|ports| (ports, None));
}

#[test]
fn worker_with_a_packet_ring_passes_the_conformance_cases() {
    if !ring::may_have_a_ring() {
        return;
    }
    carry_all(|ports| {
        let range = ports.ports().expect("some");
        let ring = receive_path::settings(8 << 20, range, Some(CaptureNeeds::ALL), false);
        (ports, Some(ring))
    });
}

/// Runs all cases, each with a client whose worker has the given ring.
fn carry_all(ring: impl Fn(PortRange) -> (PortRange, Option<RingSettings>)) {
    for case in cases() {
        let (ours, theirs) = (Log::default(), Log::default());
        let (server, at) = server(&case, &theirs);
        let mut client = client(&case, at, &ours);
        let (ports, ring) = ring(client.ports);
        (client.ports, client.ring) = (ports, ring.map(Into::into));
        let mut stopped = false;
        let seen = play(vec![client, server], |crew, clock, seen| {
            let over = !seen.outcomes().is_empty() && case.is_server_done(&theirs);
            if over && !std::mem::replace(&mut stopped, true) {
                let until = clock.now() + Duration::from_secs(1);
                crew.broadcast(&RunnerCommand::Stop { until });
            }
        });
        case.check(&ours, &theirs);
        assert_eq!(seen.tester(tester::RING_MISSED), 0, "{}", case.name);
    }
}
