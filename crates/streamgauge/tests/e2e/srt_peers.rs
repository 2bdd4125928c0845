//! SRT with other programs, beyond callers that play or publish live media.

use std::process::Command;
use std::time::Duration;

use crate::srt::{
    assert_relayed, free_port, serve, served, sockets, sum, wait_for_packets, wait_for_port, write,
};
use crate::support::{
    Process, RUN_TIMEOUT, Report, folder, free_port as tcp_port, have, number, run, streamgauge,
    wait_for,
};

#[test]
fn rendezvous_with_both_sides_of_srt_live_transmit_works() {
    if !have("srt-live-transmit") {
        return;
    }
    let folder = folder();
    let [into, out, publishes, plays] = [(); 4].map(|()| free_port());
    let clients = |url: String, seconds: u32, with: &str| {
        format!(
            "name: met\nduration: {seconds}s\nstop_timeout: 20s\nclients:\n  viewers:\n    \
             protocol: srt\n    {with}\n    connect_timeout: 60s\n    urls: [\"{url}\"]\n    \
             load: {{ clients: 1, start: at_once }}\n"
        )
    };
    // With 4 s of latency, nothing is too late on a busy machine.
    let met = |port, own| format!("srt://127.0.0.1:{port}?mode=rendezvous&port={own}&latency=4000");
    let play = clients(met(out, plays), 300, "leave: at_end\n    no_media: 60s");
    write(folder.path(), "play.yaml", &play);
    let publish = clients(met(into, publishes), 8, "publish: { bitrate: 4Mbps }");
    write(folder.path(), "publish.yaml", &publish);
    let metrics = tcp_port();
    let mut player = streamgauge(["run", "play.yaml", "--json", "play.json"]);
    player.args(["--metrics", &metrics.to_string()]);
    let player = Process::start(player, folder.path());
    // The server rejects the player because nobody publishes, and the player keeps calling.
    wait_for("the player calls", Duration::from_secs(60), || {
        (sockets(plays, false) > 0).then_some(())
    });
    let mut command = Command::new("srt-live-transmit");
    command.args(["-q", &met(publishes, into), &met(plays, out)]);
    let relay = Process::start(command, folder.path());
    wait_for_port(into);
    run(
        folder.path(),
        ["run", "publish.yaml", "--json", "publish.json"],
    )
    .expect(0);
    let report = |name: &str| Report::read(&folder.path().join(name));
    let unique = number(report("publish.json").metric("pkt_sent_unique"));
    wait_for_packets(metrics, unique);
    relay.signal("TERM");
    player.finish(RUN_TIMEOUT).expect(0);
    let played = report("play.json");
    let count = |name: &str| number(played.metric(name));
    assert!(unique > 1300, "{unique}");
    assert_relayed(&played, unique);
    for name in ["continuity_errors", "damaged", "pkt_malformed"] {
        assert_eq!(count(name), 0, "{name}");
    }
    assert_eq!(played.metric("agreed_latency")["p50"].as_f64(), Some(4.0));
}

#[test]
fn multi_packet_messages_of_srt_live_transmit_are_whole() {
    if !have("srt-live-transmit") {
        return;
    }
    let folder = folder();
    let port = free_port();
    // Seven packets per message.
    let chunk = 10_000;
    let bytes = 40 * chunk;
    std::fs::write(folder.path().join("file"), vec![7; bytes]).expect("it can be written");
    let scenario = format!(
        "name: messages\nduration: 60s\nclients:\n  viewers:\n    protocol: srt\n    \
         messages: true\n    leave: at_end\n    silence: 25s\n    \
         urls: [\"srt://127.0.0.1:{port}?transtype=file&messageapi=1\"]\n    \
         load: {{ clients: 1, start: at_once }}\n"
    );
    write(folder.path(), "run.yaml", &scenario);
    // The program starts to read when a client is connected, and outlives its input: the client
    // must not give up before it is stopped.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!(
            "(while sleep 0.2; do ss -Hun | grep -q ':{port}$' && break; done; sleep 0.5; \
             cat file; sleep 16) | exec timeout 15 \
             srt-live-transmit -q -a:no -chunk:{chunk} file://con \
             'srt://127.0.0.1:{port}?mode=listener&transtype=file&messageapi=1'"
        ),
    ]);
    let sender = Process::start(command, folder.path());
    wait_for_port(port);
    run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
    drop(sender);
    let report = Report::read(&folder.path().join("out.json"));
    let count = |name: &str| number(report.metric(name));
    assert_eq!(count("messages_whole"), 40);
    assert_eq!(count("messages_expected"), 40);
    assert_eq!(count("message_bytes"), bytes as u64);
    assert_eq!(count("pkt_recv_unique"), 40 * 7);
    for name in [
        "messages_incomplete",
        "messages_early",
        "message_contradictions",
    ] {
        assert_eq!(count(name), 0, "{name}");
    }
    // Without a transport stream, no data has a due time.
    assert_eq!(count("ts_packets"), 0);
}

/// Checks that these bytes are the first of `count` generated messages of this size: each begins
/// with its number. srt-live-transmit drops what it has not read when its peer leaves, on a busy
/// machine perhaps many.
fn demand_messages(bytes: &[u8], size: usize, count: u64) {
    let (whole, rest) = (bytes.len() / size, bytes.len() % size);
    assert_eq!(rest, 0, "{}", bytes.len());
    assert!((count / 2..=count).contains(&(whole as u64)), "{whole}");
    for (number, message) in (0u64..).zip(bytes.chunks_exact(size)) {
        assert_eq!(message[..8], number.to_be_bytes(), "message {number}");
        let follow = message[8..].iter().zip(8u64..);
        let wrong = follow.filter(|&(&byte, place)| byte != (number + place) as u8);
        assert_eq!(wrong.count(), 0, "message {number}");
    }
}

#[test]
fn published_messages_reach_srt_live_transmit_in_order() {
    if !have("srt-live-transmit") {
        return;
    }
    for (query, in_order) in [("", true), ("&passphrase=hush-hush-hush", false)] {
        let folder = folder();
        let port = free_port();
        let scenario = format!(
            "name: messages\nduration: 6s\nstop_timeout: 20s\nclients:\n  viewers:\n    \
             protocol: srt\n    messages: true\n    messages_in_order: {in_order}\n    \
             message_size: 10kB\n    publish: {{ bitrate: 2Mbps }}\n    \
             urls: [\"srt://127.0.0.1:{port}?transtype=file&messageapi=1{query}\"]\n    \
             load: {{ clients: 1, start: at_once }}\n"
        );
        write(folder.path(), "run.yaml", &scenario);
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!(
                "exec srt-live-transmit -q -a:no -chunk:10000 \
                 'srt://127.0.0.1:{port}?mode=listener&transtype=file&messageapi=1{query}' \
                 file://con > file"
            ),
        ]);
        let reader = Process::start(command, folder.path());
        wait_for_port(port);
        run(folder.path(), ["run", "run.yaml", "--json", "out.json"]).expect(0);
        let report = Report::read(&folder.path().join("out.json"));
        let count = |name: &str| number(report.metric(name));
        let sent = count("messages_sent");
        // 25 messages a second.
        assert!(sent > 60, "{sent}");
        assert_eq!(count("messages_acknowledged"), sent);
        assert_eq!(count("messages_dropped"), 0);
        assert_eq!(count("pkt_sent_unique"), sent * 7);
        assert_eq!(
            report.metric("send_queue_delay")["count"].as_u64(),
            Some(sent * 7)
        );
        reader.finish(Duration::from_secs(60));
        let file = std::fs::read(folder.path().join("file")).expect("it was written");
        demand_messages(&file, 10_000, sent);
    }
}

#[test]
fn messages_of_a_lossy_server_reach_srt_live_transmit_whole() {
    if !have("srt-live-transmit") {
        return;
    }
    let folder = folder();
    let port = free_port();
    let with = "--messages 10kB --bitrate 2Mbps --length 2s --fault lose=5%";
    let with: Vec<&str> = with.split(' ').collect();
    let server = serve(folder.path(), port, &with);
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!(
            "exec srt-live-transmit -q -a:no -chunk:10000 \
             'srt://127.0.0.1:{port}?transtype=file&messageapi=1&conntimeo=20000' file://con > file"
        ),
    ]);
    let reader = Process::start(command, folder.path());
    reader.finish(Duration::from_secs(60));
    let served = served(server, folder.path());
    let sent = |what: &str| sum(&served, &format!("/messages/sent/{what}"));
    assert_eq!((sent("taken"), sent("acknowledged")), (50, 50));
    assert!(sum(&served, "/wrongs/left_out") > 3);
    let file = std::fs::read(folder.path().join("file")).expect("it was written");
    demand_messages(&file, 10_000, 50);
}
