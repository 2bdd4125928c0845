//! The catalogue: what each figure is called, what it means, and where it is kept.
//!
//! Metrics come in [`Group`]s, made by the [`crate::metrics!`] macro. A subject (a population, the
//! server, the tester) has a [`Catalogue`]: a chain of groups whose numbers follow on each other,
//! so that the place of a counter is a constant and adding to it is one indexed addition. A
//! protocol adds a group of its own in its own folder; nothing else needs to know.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::summary::SummaryRow;

/// What the values of a metric are, in SI base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain number of things.
    Count,
    /// Seconds. Distributions record nanoseconds and are shown in seconds.
    Seconds,
    /// Bits per second.
    BitsPerSecond,
    /// Bytes.
    Bytes,
    /// A share from 0 to 1.
    Ratio,
    /// Processor cores: 1.0 is one core kept busy.
    Cores,
}

impl Unit {
    /// The unit's symbol; empty for plain numbers and shares.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Count | Unit::Ratio => "",
            Unit::Seconds => "s",
            Unit::BitsPerSecond => "bit/s",
            Unit::Bytes => "B",
            Unit::Cores => "cores",
        }
    }

    /// Whether a level of this unit is taken over a window's time (cores in use, a share of the
    /// time) rather than at one moment (clients, bytes held). A window of a few milliseconds has no
    /// peak of such a level.
    pub const fn is_over_time(self) -> bool {
        matches!(self, Unit::Cores | Unit::Ratio | Unit::BitsPerSecond)
    }

    /// What one recorded step of a distribution is worth in this unit.
    pub const fn scale(self) -> f64 {
        match self {
            Unit::Seconds => 1e-9,
            _ => 1.0,
        }
    }
}

/// Where in a [`crate::Recorder`] a counter is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u16);

/// Where in a [`crate::Recorder`] a gauge is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GaugeId(pub u16);

/// Where in a [`crate::Recorder`] a distribution is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HistogramId(pub u16);

/// How the gauges of several workers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// They are added up.
    Sum,
    /// The largest counts.
    Max,
}

/// Where the value of a metric comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// Counted up as things happen.
    Counter(CounterId),
    /// A level, taken once a window. Over the run it has a mean, a minimum and a maximum.
    Gauge(GaugeId, Join),
    /// The distribution of single values.
    Distribution(HistogramId),
    /// Two counters together.
    Sum(CounterId, CounterId),
    /// The first counter less the second.
    Difference(CounterId, CounterId),
    /// The first counter less the second, as a share of the first.
    LossRatio(CounterId, CounterId),
    /// The first counter, as a share of both together.
    Share(CounterId, CounterId),
    /// The share of the first counters together that is not right, where right is the second
    /// counter less the third.
    NotRight(&'static [CounterId], CounterId, CounterId),
    /// A counter times a factor, per second.
    Rate(CounterId, u32),
    /// A counter times a power of ten, such as -9 to show nanoseconds in seconds.
    Scaled(CounterId, i32),
}

/// One metric: its name and its definition.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The stable name, as thresholds and reports use it.
    pub name: &'static str,
    /// What its values are.
    pub unit: Unit,
    /// Where its value comes from.
    pub source: MetricSource,
    /// Its definition.
    pub doc: &'static str,
    /// Where the definition stands, such as an RFC and its section; empty where it is our own.
    pub reference: &'static str,
}

/// Metrics that belong together. Made by [`crate::metrics!`].
#[derive(Debug)]
pub struct Group {
    /// The metrics, in the order in which reports show them.
    pub metrics: &'static [Metric],
    /// One more than the last counter's number.
    pub counters_end: u16,
    /// One more than the last gauge's number.
    pub gauges_end: u16,
    /// One more than the last distribution's number.
    pub histograms_end: u16,
    /// How runs with this group stand in a table, column by column. Where several groups of a
    /// catalogue say so, all count.
    pub table: &'static [TableColumn],
    /// What the summary of a run shows of a population with this group, in rows that follow on each
    /// other. Where several groups of a catalogue say so, all count.
    pub summary: &'static [&'static [SummaryRow]],
    /// What makes a run with this group no candidate for the best of a column, the first that
    /// holds.
    pub disqualifiers: &'static [Disqualifier],
    /// How media that came is checked. Where several groups of a catalogue say so, the first
    /// counts.
    pub content: &'static [ContentCheck],
}

/// How it is told of media whether what came is what was sent: the metrics that say so. The streams
/// of a client in the run file count some of them under the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentCheck {
    /// The bytes of media that came.
    pub payload: &'static str,
    /// What should have come.
    pub expected: &'static str,
    /// What of that came, first copies only.
    pub received: &'static str,
    /// What came and should not have: copies, what was late, what is of others.
    pub unwanted: &'static [&'static str],
    /// What came and is not as it was sent.
    pub damaged: &'static str,
    /// Gaps in the packets where nothing else says what was sent.
    pub gaps: &'static str,
    /// The packets that are missing in those gaps, at least.
    pub missing: &'static str,
    /// The packets that came.
    pub packets: &'static str,
    /// Where a stream of a client has `unwanted` and `damaged`: a JSON pointer.
    pub unwanted_at: &'static str,
    /// Where a stream of a client has `gaps`, `missing` and `packets`: a JSON pointer.
    pub packets_at: &'static str,
    /// The metrics whose thresholds say how much may be wrong, the best first.
    pub allowed_by: &'static [&'static str],
}

/// Too large a share of something that is not as it should be: a run of which that holds did not
/// serve what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disqualifier {
    /// The counters that are not to be above zero, together.
    pub parts: &'static [&'static str],
    /// The metric of which they are a share.
    pub of: &'static str,
    /// What happened to that share, in words.
    pub words: &'static str,
    /// The metric whose threshold may allow more than is allowed of anything.
    pub allowed_by: Option<&'static str>,
}

/// Which figure of a metric is meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The metric's own value: of counters and what is derived from them. Of distributions and
    /// levels, the mean.
    Value,
    /// Arithmetic mean.
    Mean,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// The value at this share (0 to 1) of a distribution.
    Quantile(f64),
    /// How many values a distribution holds.
    Count,
}

/// A column of a table in which runs stand below each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableColumn {
    /// Its stable name, such as `datagram_delay_p50`.
    pub name: &'static str,
    /// The metric that it shows. One that the catalogue does not have is not shown.
    pub metric: &'static str,
    /// Which of the metric's figures.
    pub statistic: Statistic,
    /// Its heading, in two lines. Seconds are shown in milliseconds, shares in percent, bit rates
    /// in Mb/s, bytes in MiB.
    pub heading: [&'static str; 2],
    /// Which end of it is the better one.
    pub better: Better,
    /// Counters of which one must be above zero, or else the figure is unknown, and not zero.
    /// Empty: it is always known.
    pub known_with: &'static [&'static str],
    /// Counters that must all be zero, or else the figure is not shown because another says it
    /// better. Empty: it is always shown.
    pub only_without: &'static [&'static str],
    /// Whether it is made of packets' times, of which some may be those of reading
    /// (`timed_by_reading`).
    pub of_times: bool,
    /// What it shows beside or instead of its metric.
    pub meaning: Meaning,
    /// Whether a run with media of which it is not known says so.
    pub says_unknown: bool,
    /// How soon it may be left out of a table that is too wide, the smallest first. `None`: only
    /// where it is zero in every run.
    pub hidden_at: Option<u8>,
}

/// What a column is to whoever compares runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A figure of its metric, and nothing more.
    Figure,
    /// The rate of media or messages: half of the seconds had at least as much.
    BitRate,
    /// The rate of what is done for clients and is counted as a whole, such as messages that are
    /// acknowledged: half of the seconds had at least as much.
    Done,
    /// The clients that were served, of those that asked.
    Served,
    /// The server's processor time for each Gb/s of media that came right, in cores.
    CpuPerGbit,
    /// The server's processor time for each of [`Meaning::Done`].
    CpuPerDone,
}

/// Which end of a column is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The largest figure.
    Larger,
    /// The smallest.
    Smaller,
}

impl TableColumn {
    /// A column of which the smallest figure is the best.
    pub const fn smaller(
        name: &'static str,
        metric: &'static str,
        statistic: Statistic,
        heading: [&'static str; 2],
    ) -> TableColumn {
        TableColumn {
            name,
            metric,
            statistic,
            heading,
            better: Better::Smaller,
            known_with: &[],
            only_without: &[],
            of_times: false,
            meaning: Meaning::Figure,
            says_unknown: false,
            hidden_at: None,
        }
    }

    /// A column of which the largest figure is the best.
    pub const fn larger(
        name: &'static str,
        metric: &'static str,
        statistic: Statistic,
        heading: [&'static str; 2],
    ) -> TableColumn {
        TableColumn {
            better: Better::Larger,
            ..TableColumn::smaller(name, metric, statistic, heading)
        }
    }

    /// The same, unknown where all these counters are zero.
    pub const fn known_with(self, counters: &'static [&'static str]) -> TableColumn {
        TableColumn {
            known_with: counters,
            ..self
        }
    }

    /// The same, shown only where all these counters are zero.
    pub const fn only_without(self, counters: &'static [&'static str]) -> TableColumn {
        TableColumn {
            only_without: counters,
            ..self
        }
    }

    /// The same, made of packets' times.
    pub const fn of_times(self) -> TableColumn {
        TableColumn {
            of_times: true,
            ..self
        }
    }

    /// The same with a meaning of its own.
    pub const fn means(self, meaning: Meaning) -> TableColumn {
        TableColumn { meaning, ..self }
    }

    /// The same, of which a run with media says that it is not known.
    pub const fn says_unknown(self) -> TableColumn {
        TableColumn {
            says_unknown: true,
            ..self
        }
    }

    /// The same, left out that soon where there is no room.
    pub const fn hidden_at(self, order: u8) -> TableColumn {
        TableColumn {
            hidden_at: Some(order),
            ..self
        }
    }
}

impl Group {
    /// The group before all others.
    pub const NONE: Group = Group {
        metrics: &[],
        counters_end: 0,
        gauges_end: 0,
        histograms_end: 0,
        table: &[],
        summary: &[],
        disqualifiers: &[],
        content: &[],
    };
}

/// All metrics of one subject: groups, each of which was defined `after` the one before it.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [&'static Group]);

impl Catalogue {
    /// Every metric, in the order in which reports show them.
    pub fn metrics(self) -> impl Iterator<Item = &'static Metric> {
        self.0.iter().flat_map(|group| group.metrics.iter())
    }

    /// The metric of that name.
    pub fn find(self, name: &str) -> Option<&'static Metric> {
        self.metrics().find(|metric| metric.name == name)
    }

    /// The columns of a table with it, in their order.
    pub fn table(self) -> impl Iterator<Item = &'static TableColumn> {
        self.0.iter().flat_map(|group| group.table.iter())
    }

    /// The rows of a summary with it, in their order.
    pub fn summary(self) -> impl Iterator<Item = &'static SummaryRow> {
        let rows = self.0.iter().flat_map(|group| group.summary.iter());
        rows.flat_map(|rows| rows.iter())
    }

    /// What makes a run with it no candidate for the best of a column.
    pub fn disqualifiers(self) -> impl Iterator<Item = &'static Disqualifier> {
        self.0.iter().flat_map(|group| group.disqualifiers.iter())
    }

    /// How media that came is checked; nothing of what has no media.
    pub fn content(self) -> Option<&'static ContentCheck> {
        self.0.iter().find_map(|group| group.content.first())
    }

    /// The counter whose rate a column of the table shows.
    pub fn counter_behind(self, meaning: Meaning) -> Option<CounterId> {
        let column = self.table().find(|shown| shown.meaning == meaning)?;
        match self.find(column.metric)?.source {
            MetricSource::Rate(counter, _) => Some(counter),
            _ => None,
        }
    }

    /// The same as a metric.
    pub fn metric_behind(self, meaning: Meaning) -> Option<&'static Metric> {
        let source = MetricSource::Counter(self.counter_behind(meaning)?);
        self.metrics().find(|metric| metric.source == source)
    }

    /// How many counters a recorder needs.
    pub fn counters(self) -> usize {
        self.0
            .last()
            .map_or(0, |group| usize::from(group.counters_end))
    }

    /// How many gauges a recorder needs.
    pub fn gauges(self) -> usize {
        self.0
            .last()
            .map_or(0, |group| usize::from(group.gauges_end))
    }

    /// How many distributions a recorder may need.
    pub fn histograms(self) -> usize {
        self.0
            .last()
            .map_or(0, |group| usize::from(group.histograms_end))
    }
}

/// Defines a [`Group`] and a constant for each of its counters, gauges and distributions.
///
/// The doc comment of a metric is its definition: `streamgauge metrics` prints the same text. Four
/// last sections may follow: `table { ... }` says how runs stand in a table, one [`TableColumn`]
/// each, `summary { ... }` what the summary of a run shows, some [`SummaryRow`]s each,
/// `disqualifiers { ... }` what makes a run no candidate for the best, one [`Disqualifier`] each,
/// and `content { ... }` how media is checked, a [`ContentCheck`].
///
/// ```
/// measure::metrics! {
///     /// What a lottery pays.
///     pub LOTTERY after measure::Group::NONE;
///     counters {
///         /// Tickets that lost.
///         LOST = "lost", Count, "";
///         /// Tickets that won.
///         WON = "won", Count, "";
///     }
///     gauges {}
///     distributions {
///         /// From draw to payment.
///         DELAY = "delay", Seconds, "";
///     }
///     derived {
///         /// Share of the tickets that won.
///         "luck", Ratio, "", Share(WON, LOST);
///     }
/// }
/// assert_eq!(WON, measure::CounterId(1));
/// static GROUPS: [&measure::Group; 1] = [&LOTTERY];
/// let lost = measure::Catalogue(&GROUPS).find("lost").unwrap();
/// assert_eq!(lost.doc, "Tickets that lost.");
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$group_meta:meta])*
        $vis:vis $GROUP:ident after $before:path;
        counters { $( $(#[doc = $cdoc:literal])+ $C:ident = $cname:literal, $cunit:ident, $cref:literal; )* }
        gauges { $( $(#[doc = $gdoc:literal])+ $G:ident = $gname:literal, $gunit:ident, $gref:literal, $gjoin:ident; )* }
        distributions { $( $(#[doc = $hdoc:literal])+ $H:ident = $hname:literal, $hunit:ident, $href:literal; )* }
        derived { $( $(#[doc = $ddoc:literal])+ $dname:literal, $dunit:ident, $dref:literal, $dkind:ident($($darg:expr),+); )* }
        $( table { $( $column:expr; )* } )?
        $( summary { $( $rows:expr; )* } )?
        $( disqualifiers { $( $disqualifier:expr; )* } )?
        $( content { $content:expr; } )?
    ) => {
        $crate::metrics!(@number $vis CounterId, $before, counters_end; $( $(#[doc = $cdoc])+ $C )*);
        $crate::metrics!(@number $vis GaugeId, $before, gauges_end; $( $(#[doc = $gdoc])+ $G )*);
        $crate::metrics!(@number $vis HistogramId, $before, histograms_end; $( $(#[doc = $hdoc])+ $H )*);
        $(#[$group_meta])*
        $vis static $GROUP: $crate::metric::Group = $crate::metric::Group {
            metrics: &[
                $( $crate::metric::Metric {
                    name: $cname, unit: $crate::metric::Unit::$cunit,
                    source: $crate::metric::MetricSource::Counter($C),
                    doc: $crate::metric::trim_doc(concat!($($cdoc, "\n"),+)), reference: $cref,
                }, )*
                $( $crate::metric::Metric {
                    name: $gname, unit: $crate::metric::Unit::$gunit,
                    source: $crate::metric::MetricSource::Gauge($G, $crate::metric::Join::$gjoin),
                    doc: $crate::metric::trim_doc(concat!($($gdoc, "\n"),+)), reference: $gref,
                }, )*
                $( $crate::metric::Metric {
                    name: $hname, unit: $crate::metric::Unit::$hunit,
                    source: $crate::metric::MetricSource::Distribution($H),
                    doc: $crate::metric::trim_doc(concat!($($hdoc, "\n"),+)), reference: $href,
                }, )*
                $( $crate::metric::Metric {
                    name: $dname, unit: $crate::metric::Unit::$dunit,
                    source: $crate::metric::MetricSource::$dkind($($darg),+),
                    doc: $crate::metric::trim_doc(concat!($($ddoc, "\n"),+)), reference: $dref,
                }, )*
            ],
            counters_end: $before.counters_end + $crate::metrics!(@count $($C)*),
            gauges_end: $before.gauges_end + $crate::metrics!(@count $($G)*),
            histograms_end: $before.histograms_end + $crate::metrics!(@count $($H)*),
            table: &[ $( $( $column, )* )? ],
            summary: &[ $( $( $rows, )* )? ],
            disqualifiers: &[ $( $( $disqualifier, )* )? ],
            content: &[ $( $content )? ],
        };
    };
    (@count) => { 0u16 };
    (@count $first:ident $($rest:ident)*) => { 1u16 + $crate::metrics!(@count $($rest)*) };
    (@number $vis:vis $Id:ident, $before:path, $end:ident; ) => {};
    (@number $vis:vis $Id:ident, $before:path, $end:ident;
        $(#[$meta:meta])+ $First:ident $( $(#[$more:meta])+ $Rest:ident )*
    ) => {
        $(#[$meta])+
        $vis const $First: $crate::metric::$Id = $crate::metric::$Id($before.$end);
        $crate::metrics!(@next $vis $Id, $First; $( $(#[$more])+ $Rest )*);
    };
    (@next $vis:vis $Id:ident, $last:ident; ) => {};
    (@next $vis:vis $Id:ident, $last:ident;
        $(#[$meta:meta])+ $First:ident $( $(#[$more:meta])+ $Rest:ident )*
    ) => {
        $(#[$meta])+
        $vis const $First: $crate::metric::$Id = $crate::metric::$Id($last.0 + 1);
        $crate::metrics!(@next $vis $Id, $First; $( $(#[$more])+ $Rest )*);
    };
}

/// Takes the blank at the beginning and the line end at the end off a doc comment's text.
pub const fn trim_doc(text: &'static str) -> &'static str {
    text.trim_ascii()
}
