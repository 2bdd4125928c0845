use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Starts an exporter that answers request `n` with `text(n)`, until the test ends.
fn exporter(text: impl Fn(u64) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/metrics", listener.local_addr().expect("bound"));
    let requests = AtomicU64::new(0);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                return;
            };
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") {
                match connection.read(&mut byte) {
                    Ok(1) => request.push(byte[0]),
                    _ => break,
                }
            }
            let body = text(requests.fetch_add(1, Ordering::Relaxed));
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = connection.write_all((head + &body).as_bytes());
        }
    });
    url
}

fn process(seconds: f64) -> String {
    let group = |name: &str, seconds: f64| {
        format!(
            "namedprocess_namegroup_num_procs{{groupname=\"{name}\"}} 1\n\
             namedprocess_namegroup_cpu_seconds_total{{groupname=\"{name}\",mode=\"user\"}} {seconds}\n\
             namedprocess_namegroup_cpu_seconds_total{{groupname=\"{name}\",mode=\"system\"}} {seconds}\n\
             namedprocess_namegroup_memory_bytes{{groupname=\"{name}\",memtype=\"resident\"}} 3.0e+07\n\
             namedprocess_namegroup_num_threads{{groupname=\"{name}\"}} 17\n\
             namedprocess_namegroup_worst_fd_ratio{{groupname=\"{name}\"}} 0.75\n\
             namedprocess_namegroup_open_filedesc{{groupname=\"{name}\"}} 99\n"
        )
    };
    group("vlc", seconds) + &group("bash", 1e6)
}

/// Returns the answer of a machine of two cores that is busy on 1.5 of them. Its kernel's sampling
/// does not show that.
fn node(number: u64) -> String {
    let time = number as f64;
    format!(
        "node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}} {}\n\
         node_cpu_seconds_total{{cpu=\"0\",mode=\"user\"}} 7\n\
         node_cpu_seconds_total{{cpu=\"1\",mode=\"iowait\"}} {}\n\
         node_cpu_seconds_total{{cpu=\"1\",mode=\"steal\"}} {}\n\
         node_cpu_seconds_total{{cpu=\"1\",mode=\"system\"}} 7\n\
         node_time_seconds {}\n\
         node_sockstat_UDP_mem_bytes 663552\n\
         node_netstat_Udp_RcvbufErrors {}\n",
        5000.0 + 0.25 * time,
        100.0 + 0.125 * time,
        0.125 * time,
        1.7e9 + time,
        number * 3
    )
}

/// Polls until there is a new observation.
fn next(poller: &mut ExporterPoller) -> Observation {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = poller.observe();
        if seen.rss.is_some() || seen.scrapes_failed > 0 {
            return seen;
        }
        assert!(Instant::now() < give_up, "nothing new");
        std::thread::yield_now();
    }
}

#[test]
fn figures_of_group_and_machine_are_separate() {
    let exporters = Exporters {
        node: Some(exporter(node)),
        // The first answer is only used for its groups.
        process: Some(exporter(|number| process(number as f64 * 0.25))),
        group: Some("vlc".to_owned()),
    };
    let mut poller = ExporterPoller::start(&exporters).expect("they answer");
    let first = next(&mut poller);
    assert_eq!(first.cpu, None, "of one answer nothing follows");
    assert_eq!((first.rss, first.threads), (Some(30_000_000), Some(17)));
    assert_eq!(first.file_descriptors, Some(99));
    assert_eq!(first.file_descriptors_share, Some(0.75));
    assert_eq!(
        (first.udp_memory, first.machine_cores),
        (Some(663_552), Some(2))
    );
    let second = next(&mut poller);
    let (group, machine) = (second.cpu.expect("two"), second.machine_cpu.expect("two"));
    // Half a second of processor time, in a second or more if the answer was late.
    assert!(group > 0.0 && group <= 0.5, "{group}");
    // A core and a half, unless an answer was very late.
    assert!((0.8..=2.0).contains(&machine), "{machine}");
    assert_eq!(second.udp_receive_errors, 3);
}

#[test]
fn busy_time_is_elapsed_time_minus_unused() {
    let answer = |unused: f64, time: Option<f64>| Answer {
        machine_unused: Some(unused),
        machine_time: time,
        cores: Some(4),
        ..Answer::default()
    };
    let before = answer(1000.0, Some(50.0));
    let cpu = |now: &Answer, seconds| machine_cpu(now, &before, seconds);
    // The time of the machine counts, unless its clock was set.
    assert_eq!(cpu(&answer(1001.0, Some(51.0)), 1.25), Some(3.0));
    assert_eq!(cpu(&answer(1001.0, Some(3651.0)), 1.25), Some(3.2));
    assert_eq!(cpu(&answer(1001.0, None), 1.25), Some(3.2));
    assert_eq!(
        cpu(&answer(999.9, Some(51.0)), 1.0),
        Some(4.0),
        "iowait goes back"
    );
    assert_eq!(cpu(&answer(1005.0, Some(51.0)), 1.0), Some(0.0));
    assert_eq!(
        cpu(&answer(3.0, Some(51.0)), 1.0),
        None,
        "it was started anew"
    );
    let grown = Answer {
        cores: Some(5),
        ..answer(1001.0, Some(51.0))
    };
    assert_eq!(cpu(&grown, 1.0), None);
}

#[test]
fn reset_counters_are_skipped_and_failures_counted() {
    let exporters = Exporters {
        node: None,
        process: Some(exporter(|number| match number {
            0 | 1 => process(100.0),
            2 => process(1.0),
            _ => String::from_utf8(vec![b' '; 20 << 20]).expect("blanks"),
        })),
        group: Some("vlc".to_owned()),
    };
    let mut poller = ExporterPoller::start(&exporters).expect("it answers");
    next(&mut poller);
    let second = next(&mut poller);
    assert_eq!((second.cpu, second.rss), (None, Some(30_000_000)));
    assert_eq!(next(&mut poller).scrapes_failed, 1, "it is too long");
}

#[test]
fn unknown_group_error_lists_the_known_ones() {
    let url = exporter(|_| process(1.0));
    let with = |group: Option<&str>| Exporters {
        node: None,
        process: Some(url.clone()),
        group: group.map(str::to_owned),
    };
    for group in [Some("vcl"), None] {
        let error = ExporterPoller::start(&with(group))
            .expect_err("unknown")
            .to_string();
        assert!(error.contains("bash, vlc"), "{error}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/metrics", nobody.local_addr().expect("bound"));
    drop(nobody);
    let gone = Exporters {
        node: Some(url.clone()),
        process: None,
        group: None,
    };
    let error = ExporterPoller::start(&gone)
        .expect_err("nobody is there")
        .to_string();
    assert!(error.contains(&url), "{error}");
}
