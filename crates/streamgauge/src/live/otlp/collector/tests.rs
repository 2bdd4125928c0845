use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use net::tls::Server;
use rcgen::{CertificateParams, KeyPair};

use super::*;

fn nothing(_: &str) -> Option<OsString> {
    None
}

fn with(name: &'static str, value: &'static str) -> impl Fn(&str) -> Option<OsString> {
    move |asked| (asked == name).then(|| OsString::from(value))
}

#[test]
fn default_path_is_added_to_a_url_without_one() {
    for (url, whole) in [
        ("http://c:4318", "http://c:4318/v1/metrics"),
        ("http://c:4318/", "http://c:4318/v1/metrics"),
        (
            "http://c/api/v1/otlp/v1/metrics",
            "http://c/api/v1/otlp/v1/metrics",
        ),
        ("http://me:secret@c", "http://c/v1/metrics"),
        ("http://c/x?token=secret", "http://c/x?token=***"),
    ] {
        let collector = Collector::new(url, nothing);
        let shown = collector.map(|collector| collector.to_string());
        assert_eq!(shown.as_deref(), Ok(whole), "{url}");
    }
}

#[test]
fn errors_about_the_url_contain_no_secrets() {
    for url in [
        "c:4318",
        "grpc://me:secret@c:4317",
        "http://",
        "http://c:99999",
        "",
    ] {
        let Err(error) = Collector::new(url, nothing) else {
            panic!("{url}");
        };
        assert!(error.starts_with("--otlp "), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn headers_are_parsed_in_the_form_of_opentelemetry() {
    let text = "api-key=a%3Db%20c, X-Scope-OrgID = tenant;property=1,,Authorization=Basic%20QQ==";
    let collector = Collector::new("http://c", with(HEADERS[1], text));
    let collector = collector.unwrap_or_else(|error| panic!("{error}"));
    let headers = collector.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let wanted = [
        ("api-key", "a=b c"),
        ("x-scope-orgid", "tenant"),
        ("authorization", "Basic QQ=="),
    ];
    assert_eq!(headers, wanted);
    for wrong in [
        "secret",
        "=secret",
        "a b=secret",
        "a=secret%0d%0ab",
        "Host=secret",
    ] {
        let Err(error) = Collector::new("http://c", with(HEADERS[1], wrong)) else {
            panic!("{wrong}");
        };
        assert!(
            error.starts_with(HEADERS[1]) && !error.contains("secret"),
            "{error}"
        );
    }
}

#[test]
fn headers_for_metrics_have_precedence() {
    let both = |name: &str| {
        let index = HEADERS.iter().position(|known| *known == name)?;
        Some(OsString::from(["a=metrics", "a=all"][index]))
    };
    let collector = Collector::new("http://c", both).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(collector.headers, [("a".to_owned(), "metrics".to_owned())]);
}

/// Pushes a message to a collector that answers with `answer`. Returns the result, and what was
/// sent.
fn pushed(answer: &'static [u8]) -> (Result<CollectorResponse, String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it is bound");
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it is asked");
        let mut sent = Vec::new();
        let mut buffer = [0; 1024];
        while !sent.ends_with(b"message") {
            let count = stream.read(&mut buffer).expect("it sends");
            assert!(count > 0, "{}", String::from_utf8_lossy(&sent));
            sent.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(answer).expect("it reads");
        if answer.is_empty() {
            // Waits until the other side gives up.
            let _ = stream.read(&mut buffer);
        }
        String::from_utf8(sent).expect("it is text")
    });
    let collector = Collector::new(&format!("http://me:pw@{address}"), nothing);
    let collector = collector.unwrap_or_else(|error| panic!("{error}"));
    let until = match answer.is_empty() {
        true => Duration::from_millis(300),
        false => Duration::from_secs(20),
    };
    let taken = collector.push(b"message", Instant::now() + until);
    (taken, peer.join().expect("it ends"))
}

#[test]
fn a_message_is_posted_and_the_answer_is_read() {
    let (taken, sent) = pushed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(taken, Ok(CollectorResponse::default()));
    let (head, body) = sent.split_once("\r\n\r\n").expect("there is a head");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    for line in [
        "Content-Type: application/x-protobuf",
        "Content-Length: 7",
        "authorization: Basic bWU6cHc=",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
    assert_eq!(body, "message");
}

#[test]
fn refused_data_points_and_messages_are_reported() {
    // partial_success { rejected_data_points: 3 error_message: "old" }, in two chunks.
    let (taken, _) = pushed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
          4\r\n\x0a\x07\x08\x03\r\n5\r\n\x12\x03old\r\n0\r\n\r\n",
    );
    let wanted = CollectorResponse {
        rejected: 3,
        text: "old".to_owned(),
    };
    assert_eq!(taken, Ok(wanted));
    let (taken, _) = pushed(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(taken, Err("HTTP status 401".to_owned()));
    let (taken, _) = pushed(b"SSH-2.0-x\r\n\r\n");
    assert!(taken.is_err());
}

#[test]
fn collector_that_does_not_answer_times_out() {
    let (taken, _) = pushed(b"");
    assert_eq!(taken, Err("it took too long".to_owned()));
}

/// Writes a certificate for this address and its key to files.
fn certificate(folder: &Path, name: &str) -> [PathBuf; 2] {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a good name");
    let signed = params.self_signed(&key).expect("it signs itself");
    [("cert", signed.pem()), ("key", key.serialize_pem())].map(|(kind, text)| {
        let path = folder.join(format!("{name}-{kind}.pem"));
        fs::write(&path, text).expect("the test's folder can be written");
        path
    })
}

#[test]
fn only_trusted_collectors_get_a_message_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, key] = certificate(folder.path(), "own");
    let [other, _] = certificate(folder.path(), "other");
    let server = Server::from_files(&own, &key).expect("they are good");
    for (trusted, taken) in [(own, true), (other, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let layer = server.layer().expect("they are good");
        let peer = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("it is asked");
            let mut connection = Connection {
                stream,
                layer: Some(layer),
                until: Instant::now() + Duration::from_secs(20),
            };
            let mut plain = Vec::new();
            while !plain.ends_with(b"message") {
                match connection.read(&mut plain) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return plain,
                }
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            connection.write(answer).expect("it reads");
            plain
        });
        let trusted = trusted.into_os_string();
        let variable = |name: &str| (name == CERTIFICATES[1]).then(|| trusted.clone());
        let collector = Collector::new(&format!("https://{address}"), variable);
        let collector = collector.unwrap_or_else(|error| panic!("{error}"));
        let until = Instant::now() + Duration::from_secs(20);
        let answer = collector.push(b"message", until);
        assert_eq!(answer.is_ok(), taken, "{answer:?}");
        let plain = peer.join().expect("it ends");
        assert_eq!(plain.ends_with(b"message"), taken);
    }
}

#[test]
fn unreadable_certificates_are_an_error_before_the_run() {
    let variable = with(CERTIFICATES[1], "/nowhere.pem");
    let Err(error) = Collector::new("https://c", variable) else {
        panic!("there is no such file");
    };
    assert!(error.starts_with(CERTIFICATES[1]), "{error}");
}
