//! Keys of an emulated link.
//!
//! The `link` crate defines the syntax of each setting, so that it is the same on the command line
//! of `streamgauge link`.

use std::path::PathBuf;

use measure::units::{BitRate, Ratio, TimeSpan};
use schemars::JsonSchema;
use serde::Deserialize;
use session::link::{
    HeldBack, Jitter, LinkConfig, Loss, Outage, PartialSettings, PhaseConfig, Queue,
    StageConfig as LinkStage,
};

use crate::collector::TypeSyntax;
use crate::emulated_link::Link;
use crate::error::Problem;
use crate::node::{Entry, Node};
use crate::section::{self, BoundedInteger, Key, one_line};

const FORM: &str = "write `link: {rtt: 178ms, loss: 0.5%, rate: 20Mbps, queue: 100ms}`, or settings of one direction in \
     `down: {loss: 1%}`";

const STAGES_FORM: &str =
    "write `stages: [{at: 10s, loss: 2%}, {at: 20s, loss: 0%}]`, in order of time";

const OUTAGES_FORM: &str = "write `outages: [10s..12s]`";

const FORMS: &[TypeSyntax] = &[
    ("LinkKeys", FORM, &[]),
    ("DirectionKeys", FORM, &[]),
    ("Stages", STAGES_FORM, &[]),
    ("LinkStageKeys", STAGES_FORM, &[("at", STAGES_FORM)]),
    ("Outages", OUTAGES_FORM, &[]),
];

#[derive(Deserialize, JsonSchema)]
#[schemars(inline, description = "")]
struct Outages(Vec<Outage>);

#[derive(Deserialize, JsonSchema)]
#[schemars(inline, description = "")]
struct Stages(Vec<LinkStageKeys>);

/// Defines a struct with its own keys, followed by the keys of a direction.
macro_rules! with_keys_of_a_direction {
    ($(#[$about:meta])* $Name:ident { $($(#[$doc:meta])* $key:ident: $Type:ty,)* }) => {
        $(#[$about])*
        #[derive(Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        #[schemars(inline, transform = one_line)]
        pub(crate) struct $Name {
            $($(#[$doc])* $key: $Type,)*
            /// Delay of a packet, each way. Default 0s.
            delay: Key<TimeSpan>,
            /// Variation of the delay: `3ms`, `3ms normal`, `3ms pareto reordering`. Default: none.
            jitter: Key<Jitter>,
            /// Packet loss: `0.5%`, `1% in bursts of 4`, `every 100`, `packets 3, 7, 9`. Default:
            /// none.
            loss: Key<Loss>,
            /// Bit rate of the link; IP headers count. Default: unlimited.
            rate: Key<BitRate>,
            /// Queue in front of the rate limit: `100ms`, `64KiB`, `100ms codel`. Default 100ms.
            queue: Key<Queue>,
            /// Share of packets that arrive twice. Default 0%.
            duplicate: Key<Ratio>,
            /// Share of packets that are held back, and for how long: `1% by 10ms`. Default: none.
            reorder: Key<HeldBack>,
            /// Share of packets that arrive with a wrong bit. Default 0%.
            corrupt: Key<Ratio>,
            /// Outages, in which no packet passes: `[10s..12s]`, counted from the start of the run.
            /// Default: none.
            outages: Key<Outages>,
        }

        impl $Name {
            /// Takes the keys of a direction out of the struct.
            fn keys(&mut self) -> PartialSettings {
                PartialSettings {
                    delay: self.delay.0.take(),
                    jitter: self.jitter.0.take(),
                    loss: self.loss.0.take(),
                    rate: self.rate.0.take(),
                    queue: self.queue.0.take(),
                    duplicate: self.duplicate.0.take(),
                    reorder: self.reorder.0.take(),
                    corrupt: self.corrupt.0.take(),
                    outages: self.outages.0.take().map(|Outages(list)| list),
                }
            }
        }
    };
}

with_keys_of_a_direction! {
    /// Settings of one direction, in place of those of both.
    DirectionKeys {}
}

with_keys_of_a_direction! {
    /// Settings that change at some time; omitted ones stay as they were.
    LinkStageKeys {
        /// Time of the change, counted from the start of the run.
        at: Key<TimeSpan>,
        /// Round-trip time: half of it each way.
        rtt: Key<TimeSpan>,
        /// From the clients to the server.
        up: Key<DirectionKeys>,
        /// From the server to the clients.
        down: Key<DirectionKeys>,
    }
}

with_keys_of_a_direction! {
    /// An emulated link between clients and server, which are in networks created for the run.
    LinkKeys {
        /// Round-trip time: half of it each way. Default 0s.
        rtt: Key<TimeSpan>,
        /// Settings from the clients to the server, in place of those of both directions.
        up: Key<DirectionKeys>,
        /// Settings from the server to the clients, in place of those of both directions.
        down: Key<DirectionKeys>,
        /// Maximum packet size in bytes, IP header included. Default 1500.
        mtu: Key<BoundedInteger<576, 9_000>>,
        /// Changes over time, in order of time.
        stages: Key<Stages>,
        /// A file with changes over time: lines of `time,rate,delay,loss` in seconds, bit/s,
        /// seconds one way and a share from 0 to 1; an empty field keeps its value. Relative to the
        /// scenario file.
        trace: Key<PathBuf>,
    }
}

/// Returns the `link` entries of a scenario: the shared link, then those of single populations.
pub(crate) fn entries(root: &Node) -> impl Iterator<Item = &Entry> {
    let populations = root.get("clients").into_iter().flat_map(Node::entries);
    let own = populations.filter_map(|population| population.node.entry("link"));
    root.entry("link").into_iter().chain(own)
}

/// Reads the link at `path`.
pub(crate) fn read(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Link> {
    let before = problems.len();
    let mut keys: LinkKeys = section::read(node, path, FORMS, problems)?;
    if let (Some(_), Some(_), Some(entry)) = (&keys.trace.0, &keys.stages.0, node.entry("trace")) {
        let text = format!("`{path}` has both `stages` and a `trace`");
        Problem::new(&entry.key_origin, text)
            .help("both describe changes over time: remove one of them")
            .report(problems);
    }
    let both = keys.keys();
    let stages = keys.stages.0.map(|Stages(list)| list).unwrap_or_default();
    let link = Link {
        config: LinkConfig {
            first: phase(both, keys.rtt, keys.up, keys.down),
            mtu: keys.mtu.number(),
            stages: stages.into_iter().map(stage).collect(),
        },
        trace: keys.trace.0,
    };
    // Problems of single keys are already reported.
    if problems.len() == before
        && let Err(error) = link.config.timelines()
    {
        let problem = Problem::new(&node.origin, format!("`{path}`: {error}"));
        problems.push(problem);
    }
    Some(link)
}

fn phase(
    both: PartialSettings,
    rtt: Key<TimeSpan>,
    up: Key<DirectionKeys>,
    down: Key<DirectionKeys>,
) -> PhaseConfig {
    let own = |direction: Key<DirectionKeys>| {
        let keys = direction.0.map(|mut direction| direction.keys());
        keys.unwrap_or_default()
    };
    PhaseConfig {
        rtt: rtt.0,
        both,
        up: own(up),
        down: own(down),
    }
}

fn stage(mut keys: LinkStageKeys) -> LinkStage {
    let both = keys.keys();
    LinkStage {
        at: keys.at.or(TimeSpan::default()),
        phase: phase(both, keys.rtt, keys.up, keys.down),
    }
}
