//! The keys of an emulated link.
//!
//! How each setting is written is defined by the `link` crate: so it is the same on the command
//! line of `streamgauge link`.

use std::path::PathBuf;

use link::{HeldBack, Jitter, Keys, LinkConfig, Loss, Outage, Phase, Queue, Stage as LinkStage};
use measure::units::{BitRate, Ratio, TimeSpan};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::collector::Form;
use crate::emulated_link::Link;
use crate::error::Problem;
use crate::node::{Entry, Node};
use crate::section::{self, Key, Whole, one_line};

const FORM: &str = "write `link: {rtt: 178ms, loss: 0.5%, rate: 20Mbps, queue: 100ms}`, or what is of one direction in \
     `down: {loss: 1%}`";

const STAGES_FORM: &str =
    "write `stages: [{at: 10s, loss: 2%}, {at: 20s, loss: 0%}]`, in order of time";

const OUTAGES_FORM: &str = "write `outages: [10s..12s]`";

const FORMS: &[Form] = &[
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

/// A struct that has, behind its own keys, those that both directions and each of them have.
macro_rules! with_keys_of_a_direction {
    ($(#[$about:meta])* $Name:ident { $($(#[$doc:meta])* $key:ident: $Type:ty,)* }) => {
        $(#[$about])*
        #[derive(Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        #[schemars(inline, transform = one_line)]
        pub(crate) struct $Name {
            $($(#[$doc])* $key: $Type,)*
            /// How long a packet takes, each way. Default 0s.
            delay: Key<TimeSpan>,
            /// How the delay varies: `3ms`, `3ms normal`, `3ms pareto reordering`. Default: not.
            jitter: Key<Jitter>,
            /// What is lost: `0.5%`, `1% in bursts of 4`, `every 100`, `packets 3, 7, 9`. Default:
            /// nothing.
            loss: Key<Loss>,
            /// How many bits pass per second, of packets with their IP headers. Default: any
            /// number.
            rate: Key<BitRate>,
            /// What waits while others pass: `100ms`, `64KiB`, `100ms codel`. Default 100ms.
            queue: Key<Queue>,
            /// The share of packets that arrive twice. Default 0%.
            duplicate: Key<Ratio>,
            /// The share of packets that are held back, and for how long: `1% by 10ms`. Default:
            /// none.
            reorder: Key<HeldBack>,
            /// The share of packets that arrive with a wrong bit. Default 0%.
            corrupt: Key<Ratio>,
            /// When nothing passes: `[10s..12s]`, counted from the start of the run. Default:
            /// never.
            outages: Key<Outages>,
        }

        impl $Name {
            /// Takes what is said of both directions, or of this one.
            fn keys(&mut self) -> Keys {
                Keys {
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
    /// One direction, in place of what is said of both.
    DirectionKeys {}
}

with_keys_of_a_direction! {
    /// What is different from some time on; what is not said stays as it was.
    LinkStageKeys {
        /// When, counted from the start of the run.
        at: Key<TimeSpan>,
        /// How long a packet takes there and back: half of it each way.
        rtt: Key<TimeSpan>,
        /// From the clients to the server.
        up: Key<DirectionKeys>,
        /// From the server to the clients.
        down: Key<DirectionKeys>,
    }
}

with_keys_of_a_direction! {
    /// An emulated link between clients and server, which are in networks that are made for the
    /// run.
    LinkKeys {
        /// How long a packet takes there and back: half of it each way. Default 0s.
        rtt: Key<TimeSpan>,
        /// From the clients to the server alone, in place of what is said of both.
        up: Key<DirectionKeys>,
        /// From the server to the clients alone, in place of what is said of both.
        down: Key<DirectionKeys>,
        /// The longest packet that passes, in bytes with its IP header. Default 1500.
        mtu: Key<Whole<576, 9_000>>,
        /// What changes over time, in order of time.
        stages: Key<Stages>,
        /// A file with what changes over time: lines of `time,rate,delay,loss` in seconds, bit/s,
        /// seconds one way and a share from 0 to 1; an empty field stays as it was. Relative to the
        /// scenario file.
        trace: Key<PathBuf>,
    }
}

/// The entries of a scenario that say what a link does: the link that populations share, and those
/// that they have for themselves.
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
        problems.push(
            Problem::new(
                &entry.key_origin,
                format!("`{path}` has both `stages` and a `trace`"),
            )
            .help("both say what changes over time: take one of them out"),
        );
    }
    let both = keys.keys();
    let stages = keys.stages.0.map(|Stages(list)| list).unwrap_or_default();
    let link = Link {
        config: LinkConfig {
            first: phase(both, keys.rtt, keys.up, keys.down),
            mtu: keys.mtu.0.and_then(|mtu| u16::try_from(mtu.0).ok()),
            stages: stages.into_iter().map(stage).collect(),
        },
        trace: keys.trace.0,
    };
    // What is wrong with a key is said already.
    if problems.len() == before
        && let Err(error) = link.config.courses()
    {
        let problem = Problem::new(&node.origin, format!("`{path}`: {error}"));
        problems.push(problem);
    }
    Some(link)
}

fn phase(
    both: Keys,
    rtt: Key<TimeSpan>,
    up: Key<DirectionKeys>,
    down: Key<DirectionKeys>,
) -> Phase {
    let own = |direction: Key<DirectionKeys>| {
        let keys = direction.0.map(|mut direction| direction.keys());
        keys.unwrap_or_default()
    };
    Phase {
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
