//! Test of the release of deferred inputs.

use crossbeam_channel::bounded;
use net::ring::Family;

use super::super::deferred::{Deferred, RingMark};
use super::super::links::WorkerChannels;
use super::super::{Config, Mailbox, RunnerPlace, Worker};
use super::ring::may_have_a_ring;
use super::*;
use crate::network::resolver::Resolver;
use crate::network::target_filter::TargetFilter;

/// Time that a session takes for an input: at least as long as the loop releases inputs without a
/// break.
const HEARING: Duration = Duration::from_millis(5);

/// A session that takes long for each input.
struct Slow;

impl Session for Slow {
    fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {
        let begun = Instant::now();
        while begun.elapsed() < HEARING {
            std::hint::spin_loop();
        }
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

fn worker() -> Worker {
    let (reports, _) = bounded(1);
    let (mailbox, commands) = Mailbox::new().expect("a waker");
    let plan = WorkerPlan {
        populations: vec![WorkerPopulation {
            name: "slow".to_owned(),
            catalogue: RTSP_PROTOCOL.catalogue,
            clients: None,
        }],
        serving: Vec::new(),
        endpoints: Vec::new(),
        ports: PortRange::new(30_000..30_040),
        ring: Some(RingSettings::new(Family::V4, 30_000..=30_039).into()),
        raised_priority: false,
        realtime_pacer: false,
    };
    let links = WorkerChannels {
        index: 0,
        reports,
        others: Vec::new(),
        mailbox,
        place: RunnerPlace::ALONE,
    };
    Worker::new(Config {
        plan,
        links,
        commands,
        targets: TargetFilter::default(),
        resolver: Resolver::start().expect("a thread"),
        stop_timeout: Duration::ZERO,
        seed: 0,
    })
    .expect("a worker")
}

#[test]
fn deferred_inputs_are_released_in_order_and_in_parts() {
    if !may_have_a_ring() {
        return;
    }
    let mut worker = worker();
    let session = worker.add_session(Box::new(Slow), 0, None);
    let (counts, at) = ([0; 2], Time::ZERO);
    let mark = RingMark { counts, at };
    for number in 0..5 {
        let bytes = vec![number];
        let waiting = Deferred::Bytes {
            to: session.channel(ChannelId(0)),
            bytes,
            at: Time::ZERO,
            runs: Vec::new(),
        };
        let rings = worker.rings.as_mut().expect("a ring");
        rings.deferred.push(mark, waiting);
    }
    let left = |worker: &Worker| worker.rings.as_ref().expect("a ring").deferred.count();
    worker.release_deferred();
    assert_eq!(left(&worker), 4, "the loop looks at other things");
    assert!(worker.can_release_deferred());
    worker.release_all_ready();
    assert_eq!(left(&worker), 0);
    assert!(!worker.can_release_deferred());
}
