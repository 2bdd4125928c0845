//! SRT against other programs, beyond a caller that plays or publishes live media.

use std::process::Command;
use std::time::Duration;

use crate::srt::{free_port, sockets, wait_for_port, write};
use crate::support::{
    Process, RUN_WITHIN, Report, a_little, folder, have, number, run, streamgauge, wait_for,
};

#[test]
fn srt_live_transmit_is_met_by_rendezvous_on_both_of_its_sides() {
    if !have("srt-live-transmit") {
        return;
    }
    let _media = a_little();
    let folder = folder();
    let [into, out, publishes, plays] = [(); 4].map(|()| free_port());
    let clients = |url: String, seconds: u32, with: &str| {
        format!(
            "name: met\nduration: {seconds}s\nclients:\n  viewers:\n    protocol: srt\n    {with}\n    \
             connect_timeout: 20s\n    urls: [\"{url}\"]\n    \
             load: {{ clients: 1, start: at_once }}\n"
        )
    };
    let met = |port, own| format!("srt://127.0.0.1:{port}?mode=rendezvous&port={own}&latency=200");
    let play = clients(met(out, plays), 30, "at_shutdown: complete");
    write(folder.path(), "play.yaml", &play);
    let publish = clients(met(into, publishes), 4, "publish: { bitrate: 4Mbps }");
    write(folder.path(), "publish.yaml", &publish);
    let player = streamgauge(["run", "play.yaml", "--json", "play.json"]);
    let player = Process::start(player, folder.path());
    // It hears that nobody is there, and calls on.
    wait_for("the player calls", Duration::from_secs(20), || {
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
    relay.signal("TERM");
    player.finish(RUN_WITHIN).expect(0);
    let report = |name: &str| Report::read(&folder.path().join(name));
    let (sent, played) = (report("publish.json"), report("play.json"));
    let count = |name: &str| number(played.metric(name));
    let unique = number(sent.metric("pkt_sent_unique"));
    assert!(unique > 1300, "{unique}");
    for name in ["pkt_recv_unique", "expected", "received"] {
        assert_eq!(count(name), unique, "{name}");
    }
    for name in ["continuity_errors", "damaged", "pkt_malformed"] {
        assert_eq!(count(name), 0, "{name}");
    }
    assert_eq!(played.metric("agreed_latency")["p50"].as_f64(), Some(0.2));
}
