use std::fs;
use std::path::PathBuf;

use measure::{ArrivalRun, Time};
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::SupportedProtocolVersion;
use tempfile::TempDir;

use super::*;

/// PEM files of a certificate and its key.
struct Pem {
    folder: TempDir,
    chain: PathBuf,
    key: PathBuf,
}

impl Pem {
    fn new(chain: &str, key: &KeyPair) -> Pem {
        let folder = tempfile::tempdir().expect("a folder");
        let (at, key_at) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        fs::write(&at, chain).expect("it is ours");
        fs::write(&key_at, key.serialize_pem()).expect("it is ours");
        Pem {
            folder,
            chain: at,
            key: key_at,
        }
    }

    /// A self-signed certificate, which is an authority's too if `authority` is set, as `openssl
    /// req -x509` makes it.
    fn own(names: &[&str], authority: bool, change: impl FnOnce(&mut CertificateParams)) -> Pem {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(names);
        if authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        change(&mut params);
        let certificate = params.self_signed(&key).expect("it signs");
        Pem::new(&certificate.pem(), &key)
    }

    fn server(&self) -> Server {
        Server::from_files(&self.chain, &self.key).expect("good files")
    }

    fn client(&self) -> Client {
        Client::new(Trust {
            accept_any: false,
            authorities: Some(self.chain.clone()),
        })
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    CertificateParams::new(names).expect("good names")
}

const ACCEPT_ANY: Trust = Trust {
    accept_any: true,
    authorities: None,
};

/// Both layers of a connection.
struct TlsPair {
    client: TlsLayer,
    server: TlsLayer,
    /// Plaintext that the client and the server received.
    heard: [Vec<u8>; 2],
}

impl TlsPair {
    fn new(client: &Client, server: &Server, name: &str) -> TlsPair {
        TlsPair {
            client: client.layer(name).expect("good settings"),
            server: server.layer().expect("good settings"),
            heard: Default::default(),
        }
    }

    /// Delivers the bytes of each side to the other, in pieces of `piece` bytes, until both are
    /// silent. Returns the first error, the client's before the server's.
    fn handshake(&mut self, piece: usize) -> Result<(), Fault> {
        let mut to_server = Vec::new();
        self.client.flush(&mut to_server).expect("a vector");
        let mut wrong = None;
        while !to_server.is_empty() {
            let mut to_client = Vec::new();
            let sent = std::mem::take(&mut to_server);
            let result = take(
                &mut self.server,
                &sent,
                piece,
                &mut self.heard[1],
                &mut to_client,
            );
            wrong = wrong.or(result.err());
            let result = take(
                &mut self.client,
                &to_client,
                piece,
                &mut self.heard[0],
                &mut to_server,
            );
            result?;
        }
        wrong.map_or(Ok(()), Err)
    }
}

fn take(
    layer: &mut TlsLayer,
    bytes: &[u8],
    piece: usize,
    heard: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<OpenStatus, Fault> {
    let mut last = OpenStatus::default();
    for piece in bytes.chunks(piece) {
        let (mut plain, mut runs) = (Vec::new(), Vec::new());
        let taken = layer.open(piece, &at(piece.len(), 1), &mut plain, &mut runs, out)?;
        assert_eq!(runs.last().map_or(0, |run| run.end), plain.len());
        heard.append(&mut plain);
        last.handshake_done |= taken.handshake_done;
        last.peer_closed |= taken.peer_closed;
    }
    Ok(last)
}

fn at(end: usize, nanos: u64) -> [ArrivalRun; 1] {
    let at = Time::from_nanos(nanos);
    [ArrivalRun {
        end,
        at,
        exact: true,
    }]
}

fn reason(client: &Client, server: &Server, name: &str) -> Option<Reason> {
    let mut pair = TlsPair::new(client, server, name);
    pair.handshake(usize::MAX).err().map(|fault| fault.reason)
}

#[test]
fn handshake_and_data_work_however_bytes_are_split() {
    let pem = Pem::own(&["localhost", "127.0.0.1"], false, |_| {});
    let (client, server) = (pem.client(), pem.server());
    for (piece, name) in [
        (1, "localhost"),
        (7, "127.0.0.1"),
        (usize::MAX, "localhost"),
    ] {
        let mut pair = TlsPair::new(&client, &server, name);
        assert!(pair.client.is_handshaking());
        pair.handshake(piece).expect("they trust each other");
        assert!(!pair.client.is_handshaking() && !pair.server.is_handshaking());
        assert_eq!(pair.client.version(), Some("TLSv1_3"));
        let long = vec![7; 100_000];
        let mut sealed = Vec::new();
        pair.server
            .seal(&[b"a", b"bc", &long], &mut sealed)
            .expect("a vector");
        assert!(sealed.len() <= sealed_length_max(3 + long.len()));
        let mut heard = Vec::new();
        take(&mut pair.client, &sealed, 1000, &mut heard, &mut Vec::new()).expect("whole");
        assert_eq!((&heard[..3], &heard[3..]), (&b"abc"[..], &long[..]));
    }
}

#[test]
fn tls_1_2_is_supported() {
    let pem = Pem::own(&["localhost"], true, |_| {});
    let old: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
    let key = PrivateKeyDer::from_pem_file(&pem.key).expect("a key");
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(old)
        .expect("it is known")
        .with_no_client_auth()
        .with_single_cert(certificates(&pem.chain).expect("some"), key)
        .expect("they fit");
    let server = Server(Arc::new(config));
    let mut pair = TlsPair::new(&pem.client(), &server, "localhost");
    pair.handshake(5).expect("they trust each other");
    assert_eq!(pair.client.version(), Some("TLSv1_2"));
}

#[test]
fn data_before_the_handshake_is_sent_after_it() {
    let pem = Pem::own(&["localhost"], false, |_| {});
    let mut pair = TlsPair::new(&pem.client(), &pem.server(), "localhost");
    let mut nothing = Vec::new();
    pair.client
        .seal(&[b"early"], &mut nothing)
        .expect("the buffer has space");
    assert!(
        pair.client
            .seal(&[&vec![0; 1 << 20]], &mut nothing)
            .is_err()
    );
    let mut pair = TlsPair::new(&pem.client(), &pem.server(), "localhost");
    // The client's hello has not been sent yet.
    pair.client
        .connection
        .writer()
        .write_all(b"early")
        .expect("the buffer has space");
    pair.handshake(usize::MAX).expect("they trust each other");
    assert_eq!(pair.heard[1], b"early");
}

#[test]
fn a_record_has_the_time_of_its_last_byte() {
    let pem = Pem::own(&["localhost"], false, |_| {});
    let mut pair = TlsPair::new(&pem.client(), &pem.server(), "localhost");
    pair.handshake(usize::MAX).expect("they trust each other");
    let mut sealed = Vec::new();
    pair.server
        .seal(&[b"first"], &mut sealed)
        .expect("a vector");
    let first = sealed.len();
    pair.server
        .seal(&[b"second"], &mut sealed)
        .expect("a vector");
    let run = |end, nanos| at(end, nanos)[0];
    // The second record begins in the segment that pair the first.
    let segments = [run(first - 1, 1), run(first + 3, 2), run(sealed.len(), 3)];
    let (mut plain, mut runs) = (Vec::new(), Vec::new());
    pair.client
        .open(&sealed, &segments, &mut plain, &mut runs, &mut Vec::new())
        .expect("whole");
    assert_eq!(plain, b"firstsecond");
    assert_eq!(runs, [run(5, 2), run(11, 3)]);
}

#[test]
fn invalid_certificates_are_classified() {
    let good = Pem::own(&["localhost"], false, |_| {});
    let other = Pem::own(&["localhost"], false, |_| {});
    let authority = Pem::own(&["localhost"], true, |_| {});
    let expired = Pem::own(&["localhost"], false, |params| {
        params.not_after = date_time_ymd(2001, 1, 1);
        params.not_before = date_time_ymd(2000, 1, 1);
    });
    let expired_authority = Pem::own(&["localhost"], true, |params| {
        params.not_after = date_time_ymd(2001, 1, 1);
        params.not_before = date_time_ymd(2000, 1, 1);
    });
    let early = Pem::own(&["localhost"], false, |params| {
        params.not_before = date_time_ymd(2300, 1, 1);
        params.not_after = date_time_ymd(2400, 1, 1);
    });
    for (client, server, name, wrong) in [
        (&good, &good, "localhost", None),
        (&good, &good, "example.net", Some(Reason::WrongName)),
        (&good, &good, "127.0.0.1", Some(Reason::WrongName)),
        (&good, &other, "localhost", Some(Reason::UnknownIssuer)),
        (&good, &authority, "localhost", Some(Reason::UnknownIssuer)),
        (&authority, &authority, "localhost", None),
        (&authority, &authority, "::1%lo", Some(Reason::WrongName)),
        (&expired, &expired, "localhost", Some(Reason::Expired)),
        (
            &expired_authority,
            &expired_authority,
            "localhost",
            Some(Reason::Expired),
        ),
        (&early, &early, "localhost", Some(Reason::NotYetValid)),
    ] {
        assert_eq!(
            reason(&client.client(), &server.server(), name),
            wrong,
            "{name}"
        );
        assert_eq!(
            reason(&Client::new(ACCEPT_ANY), &server.server(), name),
            None
        );
    }
}

#[test]
fn certificate_signed_by_an_authority_is_trusted() {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = params(&["an authority"]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = authority.self_signed(&authority_key).expect("it signs");
    let trusted = Pem::new(&signed.pem(), &authority_key);
    let key = KeyPair::generate().expect("a key");
    let issuer = Issuer::from_params(&authority, &authority_key);
    let certificate = params(&["cam.local"])
        .signed_by(&key, &issuer)
        .expect("it signs");
    let server = Pem::new(&certificate.pem(), &key).server();
    assert_eq!(reason(&trusted.client(), &server, "cam.local"), None);
    assert_eq!(
        reason(&trusted.client(), &server, "cam2.local"),
        Some(Reason::WrongName)
    );
}

#[test]
fn errors_name_the_unusable_file() {
    let pem = Pem::own(&["localhost"], false, |_| {});
    let other = Pem::own(&["localhost"], false, |_| {});
    let nowhere = pem.folder.path().join("nowhere.pem");
    let of = |path: &Path| {
        let client = Client::new(Trust {
            accept_any: false,
            authorities: Some(path.to_owned()),
        });
        client.prepare().expect_err("it is none")
    };
    for path in [&nowhere, &pem.key] {
        let fault = of(path);
        assert_eq!(fault.reason, Reason::Unusable);
        assert!(fault.text.contains(&path.display().to_string()), "{fault}");
    }
    for (chain, key) in [
        (&nowhere, &pem.key),
        (&pem.chain, &nowhere),
        (&pem.chain, &pem.chain),
        (&pem.chain, &other.key),
    ] {
        let fault = Server::from_files(chain, key).expect_err("they make no server");
        assert_eq!(fault.reason, Reason::Unusable, "{fault}");
    }
    let fault = pem.client().layer("a b").expect_err("it is no name");
    assert_eq!(fault.reason, Reason::Unusable);
}

#[test]
fn close_notify_is_reported_and_ends_the_data() {
    let pem = Pem::own(&["localhost"], false, |_| {});
    let mut pair = TlsPair::new(&pem.client(), &pem.server(), "localhost");
    pair.handshake(usize::MAX).expect("they trust each other");
    let mut sealed = Vec::new();
    pair.server.seal(&[b"bye"], &mut sealed).expect("a vector");
    pair.server.close(&mut sealed).expect("a vector");
    // Bytes after the end are ignored.
    sealed.extend_from_slice(&[0xff; 100]);
    let mut heard = Vec::new();
    let taken = take(
        &mut pair.client,
        &sealed,
        usize::MAX,
        &mut heard,
        &mut Vec::new(),
    );
    assert_eq!(
        (taken.map(|taken| taken.peer_closed), &*heard),
        (Ok(true), &b"bye"[..])
    );
}

#[test]
fn bytes_that_are_not_tls_are_rejected() {
    let pem = Pem::own(&["localhost"], false, |_| {});
    for (bytes, reason) in [
        (&b"RTSP/1.0 400 Bad Request\r\n\r\n"[..], Reason::NotTls),
        (&[0; 100], Reason::NotTls),
        // Alerts: handshake failure, certificate unknown.
        (&[21, 3, 3, 0, 2, 2, 40], Reason::Incompatible),
        (&[21, 3, 3, 0, 2, 2, 46], Reason::Alert(46)),
        // A record of 65535 bytes.
        (&[22, 3, 3, 0xff, 0xff, 1, 2, 3], Reason::Broken),
    ] {
        let mut client = pem.client().layer("localhost").expect("good settings");
        let taken = take(
            &mut client,
            bytes,
            usize::MAX,
            &mut Vec::new(),
            &mut Vec::new(),
        );
        assert_eq!(taken.expect_err("it is none").reason, reason, "{bytes:?}");
    }
}

#[test]
fn modified_record_fails_with_an_alert() {
    let pem = Pem::own(&["localhost"], false, |_| {});
    let mut pair = TlsPair::new(&pem.client(), &pem.server(), "localhost");
    pair.handshake(usize::MAX).expect("they trust each other");
    let mut sealed = Vec::new();
    pair.server.seal(&[b"abc"], &mut sealed).expect("a vector");
    *sealed.last_mut().expect("some") ^= 1;
    let (mut heard, mut out) = (Vec::new(), Vec::new());
    let taken = take(&mut pair.client, &sealed, usize::MAX, &mut heard, &mut out);
    assert_eq!(taken.expect_err("it was changed").reason, Reason::Broken);
    assert!(heard.is_empty());
    let taken = take(
        &mut pair.server,
        &out,
        usize::MAX,
        &mut heard,
        &mut Vec::new(),
    );
    assert!(
        matches!(
            taken,
            Err(Fault {
                reason: Reason::Alert(20),
                ..
            })
        ),
        "{taken:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        first in prop_oneof![Just(20u8), Just(21), Just(22), Just(23), any::<u8>()],
        piece in 1usize..500,
        server in any::<bool>(),
    ) {
        let pem = Pem::own(&["localhost"], false, |_| {});
        let mut layer = if server {
            pem.server().layer().expect("good settings")
        } else {
            pem.client().layer("localhost").expect("good settings")
        };
        let length = (bytes.len() as u16).to_be_bytes();
        let whole = [&[first, 3, 3], &length[..], &bytes].concat();
        let mut heard = Vec::new();
        let _ = take(&mut layer, &whole, piece, &mut heard, &mut Vec::new());
        prop_assert!(heard.is_empty());
        prop_assert!(layer.is_handshaking());
    }
}
