//! DTLS with OpenSSL over loopback sockets: both roles, with RSA and ECDSA certificates of the
//! peer. With STREAMGAUGE_TEST_WITHOUT_TOOLS the test is skipped if OpenSSL is not installed.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use measure::Time;
use webrtc::certificate::Certificate;
use webrtc::dtls::{Dtls, DtlsEvent, DtlsSettings};

/// Timeout of a handshake: the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running OpenSSL process. It is killed at the end of the test.
struct OpenSsl(Child);

impl OpenSsl {
    fn start(folder: &Path, arguments: &str) -> OpenSsl {
        let child = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            // The client exits at the end of its input.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        OpenSsl(child.expect("OpenSSL is installed"))
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_installed() -> bool {
    let tried = Command::new("openssl")
        .arg("version")
        .stdout(Stdio::null())
        .status();
    assert!(
        tried.is_ok() || std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some(),
        "OpenSSL is not installed; set STREAMGAUGE_TEST_WITHOUT_TOOLS to skip this test"
    );
    tried.is_ok()
}

/// Makes a key and a certificate in a folder. Returns the certificate as DER.
fn certificate(folder: &Path, key: &str) -> Vec<u8> {
    let make = format!(
        "req -x509 {key} -noenc -keyout key.pem -out cert.pem -days 2 -subj /CN=peer -sha256"
    );
    for arguments in [&make[..], "x509 -in cert.pem -outform DER -out cert.der"] {
        let made = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .expect("OpenSSL is installed");
        assert!(made.status.success(), "{made:?}");
    }
    fs::read(folder.join("cert.der")).expect("it was written")
}

/// Completes a handshake with OpenSSL. Returns its certificate, and whether media keys were
/// negotiated.
fn shake_hands(folder: &Path, is_client: bool) -> (Vec<u8>, bool) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let timeout = Some(Duration::from_millis(5));
    socket.set_read_timeout(timeout).expect("it is not zero");
    let common = "-dtls1_2 -cert cert.pem -key key.pem -use_srtp SRTP_AES128_CM_SHA1_80";
    let _peer = match is_client {
        true => {
            let free = UdpSocket::bind("127.0.0.1:0").and_then(|own| own.local_addr());
            let address = free.expect("a free port");
            socket.connect(address).expect("it is on this machine");
            // `-Verify` requests the client's certificate.
            OpenSsl::start(
                folder,
                &format!("s_server {common} -accept {address} -Verify 1"),
            )
        }
        false => {
            let address = socket.local_addr().expect("it is bound");
            OpenSsl::start(folder, &format!("s_client {common} -connect {address}"))
        }
    };
    let start = Instant::now();
    let settings = DtlsSettings {
        is_client,
        timeout: TIMEOUT,
        seed: 7,
    };
    let own = Certificate::generate(5);
    let mut dtls = Dtls::new(Time::ZERO, &own, settings);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    while start.elapsed() < TIMEOUT {
        let now = Time::from_start(start.elapsed());
        dtls.handle_timeout(now).expect("the peer answers");
        while let Some(datagram) = dtls.poll_transmit() {
            // The server may not listen yet.
            let _ = socket.send(&datagram);
        }
        while let Some(event) = dtls.poll_event() {
            match event {
                DtlsEvent::Certificate(der) => shown = der,
                DtlsEvent::Completed(keys) => return (shown, keys.is_some()),
                DtlsEvent::Closed => panic!("the peer closed"),
            }
        }
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.connect(from).expect("it is on this machine");
            let now = Time::from_start(start.elapsed());
            dtls.handle(now, &buffer[..length]).expect("it is good");
        }
    }
    panic!("the handshake timed out");
}

#[test]
fn peers_have_rsa_or_ecdsa_certificates_in_both_roles() {
    if !is_installed() {
        return;
    }
    for key in [
        "-newkey rsa:2048",
        "-newkey rsa:4096",
        "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1",
    ] {
        let folder = tempfile::tempdir().expect("there is room");
        let der = certificate(folder.path(), key);
        for is_client in [true, false] {
            let (shown, has_keys) = shake_hands(folder.path(), is_client);
            assert!(shown == der, "{key}, client: {is_client}");
            assert!(has_keys, "{key}, client: {is_client}");
        }
    }
}
