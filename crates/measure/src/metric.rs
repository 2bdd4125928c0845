//! The metric catalogue: name, definition and storage of each metric.
//!
//! Metrics are declared in [`Group`]s by the [`crate::metrics!`] macro. A subject (a population,
//! the server, the tester) has a [`Catalogue`]: a chain of groups with consecutive numbers. The
//! index of a counter is therefore a constant, and adding to it is one indexed addition. A protocol
//! declares its group in its own crate; no other code needs to know it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::summary::SummaryRow;

/// Unit of a metric's values, in SI base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A count.
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
    /// Symbol of the unit; empty for counts and shares.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Count | Unit::Ratio => "",
            Unit::Seconds => "s",
            Unit::BitsPerSecond => "bit/s",
            Unit::Bytes => "B",
            Unit::Cores => "cores",
        }
    }

    /// True if a gauge of this unit is an average over a window (cores in use, a share of the time)
    /// instead of a value at one moment (clients, bytes held). A window of a few milliseconds has
    /// no meaningful peak of such a gauge.
    pub const fn is_over_time(self) -> bool {
        matches!(self, Unit::Cores | Unit::Ratio | Unit::BitsPerSecond)
    }

    /// Value of one recorded step of a distribution in this unit.
    pub const fn scale(self) -> f64 {
        match self {
            Unit::Seconds => 1e-9,
            _ => 1.0,
        }
    }
}

/// Index of a counter in a [`crate::Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u16);

/// Index of a gauge in a [`crate::Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GaugeId(pub u16);

/// Index of a distribution in a [`crate::Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HistogramId(pub u16);

/// How the gauges of several workers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaugeMerge {
    /// The sum.
    Sum,
    /// The maximum.
    Max,
}

/// Source of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricSource {
    /// A counter.
    Counter(CounterId),
    /// A gauge, sampled once a window. Over the run it has a mean, a minimum and a maximum.
    /// Messages and reports call it a level.
    Gauge(GaugeId, GaugeMerge),
    /// A distribution of single values.
    Distribution(HistogramId),
    /// The sum of two counters.
    Sum(CounterId, CounterId),
    /// The first counter minus the second.
    Difference(CounterId, CounterId),
    /// The first counter minus the second, as a share of the first.
    LossRatio(CounterId, CounterId),
    /// The first counter, as a share of the sum of both.
    Share(CounterId, CounterId),
    /// The share of the sum of the first counters that is not correct. Correct is the second
    /// counter minus the third.
    WrongShare(&'static [CounterId], CounterId, CounterId),
    /// A counter times a factor, per second.
    Rate(CounterId, u32),
    /// A counter times a power of ten: -9 shows nanoseconds in seconds.
    Scaled(CounterId, i32),
}

/// A metric: its name and its definition.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Stable name, as thresholds and reports use it.
    pub name: &'static str,
    /// Unit of the values.
    pub unit: Unit,
    /// Source of the value.
    pub source: MetricSource,
    /// Definition.
    pub doc: &'static str,
    /// Origin of the definition, such as an RFC and its section; empty if it is specific to
    /// streamgauge.
    pub reference: &'static str,
    /// True for a delay from one client to another, which compares the clocks of both. If they are
    /// on different runners, it is as wrong as their clocks: see [`crate::ClockError`].
    pub between_clients: bool,
}

/// Metrics that belong together. Declared by [`crate::metrics!`].
#[derive(Debug)]
pub struct Group {
    /// Metrics, in the order of reports.
    pub metrics: &'static [Metric],
    /// Number of the last counter plus one.
    pub counters_end: u16,
    /// Number of the last gauge plus one.
    pub gauges_end: u16,
    /// Number of the last distribution plus one.
    pub histograms_end: u16,
    /// Columns of a table of runs with this group. The columns of all groups of a catalogue are
    /// shown.
    pub table: &'static [TableColumn],
    /// Consecutive rows of the run summary for a population with this group. The rows of all groups
    /// of a catalogue are shown.
    pub summary: &'static [&'static [SummaryRow]],
    /// Conditions that exclude a run with this group from the best of a column. The first that
    /// holds is reported.
    pub disqualifiers: &'static [Disqualifier],
    /// How received media is checked. If several groups of a catalogue declare it, the first
    /// counts.
    pub content: &'static [ContentCheck],
    /// Distributions that are measured only while a client starts.
    pub starts: &'static [HistogramId],
    /// Counters that cover the whole run, including its warm-up.
    pub whole_run: &'static [CounterId],
    /// Figures that matter most, in order of importance. The key figures of all groups of a
    /// catalogue count.
    pub key_figures: &'static [KeyFigure],
    /// Counters of features that not every run uses, feature by feature. If all counters of a
    /// feature are zero, it was not used.
    pub features: &'static [&'static [CounterId]],
}

/// Metrics that compare received media with sent media. The streams of a client in the run file
/// contain some of them under the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentCheck {
    /// Bytes of media received.
    pub payload: &'static str,
    /// Media that should have been received.
    pub expected: &'static str,
    /// The part of `expected` that was received, without duplicates.
    pub received: &'static str,
    /// Received but unwanted: duplicates, late packets, packets of other streams.
    pub unwanted: &'static [&'static str],
    /// Received with different content than sent.
    pub damaged: &'static str,
    /// Gaps in the packets, if no other source tells what was sent.
    pub gaps: &'static str,
    /// Minimum number of packets missing in those gaps.
    pub missing: &'static str,
    /// Packets received.
    pub packets: &'static str,
    /// JSON pointer to `unwanted` and `damaged` in a stream of a client.
    pub unwanted_at: &'static str,
    /// JSON pointer to `gaps`, `missing` and `packets` in a stream of a client.
    pub packets_at: &'static str,
    /// Metrics whose thresholds set the allowed share of wrong content, in order of preference.
    pub allowed_by: &'static [&'static str],
}

/// Exclusion of runs in which too large a share went wrong: such a run did not serve what was
/// requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disqualifier {
    /// Counters that should be zero. Their sum is compared.
    pub parts: &'static [&'static str],
    /// Metric of which the sum is a share.
    pub of: &'static str,
    /// Description of what happened to that share.
    pub description: &'static str,
    /// Metric whose threshold may allow a larger share than the default.
    pub allowed_by: Option<&'static str>,
}

/// Figure of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The metric's own value, for counters and derived metrics. The mean, for distributions and
    /// gauges.
    Value,
    /// Arithmetic mean.
    Mean,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Quantile (0 to 1) of a distribution.
    Quantile(f64),
    /// Number of values in a distribution.
    Count,
}

/// A figure that matters most for a protocol. The first ones that are known head the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyFigure {
    /// Metric to show.
    pub metric: &'static str,
    /// Figure of the metric.
    pub statistic: Statistic,
}

impl KeyFigure {
    /// Creates a figure of a counter or a derived metric.
    pub const fn value(metric: &'static str) -> KeyFigure {
        KeyFigure {
            metric,
            statistic: Statistic::Value,
        }
    }

    /// Creates the 95th percentile of a distribution.
    pub const fn p95(metric: &'static str) -> KeyFigure {
        KeyFigure {
            metric,
            statistic: Statistic::Quantile(0.95),
        }
    }
}

/// A column of a table that compares runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableColumn {
    /// Stable name, such as `datagram_delay_p50`.
    pub name: &'static str,
    /// Metric to show. The column is omitted if the catalogue does not contain it.
    pub metric: &'static str,
    /// Figure of the metric.
    pub statistic: Statistic,
    /// Heading, in two lines. Seconds are shown in milliseconds, shares in percent, bit rates in
    /// Mb/s, bytes in MiB.
    pub heading: [&'static str; 2],
    /// Direction of improvement.
    pub better: BetterWhen,
    /// Counters of which at least one must be above zero; otherwise the figure is unknown instead
    /// of zero. Empty: always known.
    pub known_with: &'static [&'static str],
    /// Counters that must all be zero; otherwise the figure is omitted because another one is more
    /// accurate. Empty: always shown.
    pub only_without: &'static [&'static str],
    /// True if the figure is computed from packets' arrival times, some of which may be times of
    /// reading (`timed_by_reading`).
    pub from_arrival_times: bool,
    /// Meaning of the column, in addition to or instead of its metric.
    pub meaning: Meaning,
    /// True if a run with media shows the column as unknown when it has no value.
    pub shows_unknown: bool,
    /// Order in which columns are dropped from a table that is too wide, smallest first. `None`:
    /// dropped only if it is zero in every run.
    pub drop_order: Option<u8>,
}

/// Meaning of a column when runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A figure of its metric without further meaning.
    Figure,
    /// Rate of media or messages: half of the seconds had at least this much.
    BitRate,
    /// Rate of operations that are counted as a whole, such as acknowledged messages: half of the
    /// seconds had at least this much.
    Operations,
    /// Clients that were served, of those that requested something.
    Served,
    /// The server's processor time per Gb/s of correctly received media, in cores.
    CpuPerGbit,
    /// The server's processor time per operation of [`Meaning::Operations`].
    CpuPerOperation,
}

/// Direction in which a column improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterWhen {
    /// The largest figure is the best.
    Larger,
    /// The smallest figure is the best.
    Smaller,
}

impl TableColumn {
    /// Creates a column of which the smallest figure is the best.
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
            better: BetterWhen::Smaller,
            known_with: &[],
            only_without: &[],
            from_arrival_times: false,
            meaning: Meaning::Figure,
            shows_unknown: false,
            drop_order: None,
        }
    }

    /// Creates a column of which the largest figure is the best.
    pub const fn larger(
        name: &'static str,
        metric: &'static str,
        statistic: Statistic,
        heading: [&'static str; 2],
    ) -> TableColumn {
        TableColumn {
            better: BetterWhen::Larger,
            ..TableColumn::smaller(name, metric, statistic, heading)
        }
    }

    /// Makes the figure unknown if all these counters are zero.
    pub const fn known_with(mut self, counters: &'static [&'static str]) -> TableColumn {
        self.known_with = counters;
        self
    }

    /// Shows the figure only if all these counters are zero.
    pub const fn only_without(mut self, counters: &'static [&'static str]) -> TableColumn {
        self.only_without = counters;
        self
    }

    /// Marks the figure as computed from packets' arrival times.
    pub const fn from_arrival_times(mut self) -> TableColumn {
        self.from_arrival_times = true;
        self
    }

    /// Sets the meaning.
    pub const fn means(self, meaning: Meaning) -> TableColumn {
        TableColumn { meaning, ..self }
    }

    /// Shows the figure as unknown in runs with media that have no value.
    pub const fn shows_unknown(mut self) -> TableColumn {
        self.shows_unknown = true;
        self
    }

    /// Sets the order in which the column is dropped from a table that is too wide.
    pub const fn drop_order(mut self, order: u8) -> TableColumn {
        self.drop_order = Some(order);
        self
    }
}

impl Group {
    /// The empty group, before all others.
    pub const NONE: Group = Group {
        metrics: &[],
        counters_end: 0,
        gauges_end: 0,
        histograms_end: 0,
        table: &[],
        summary: &[],
        disqualifiers: &[],
        content: &[],
        starts: &[],
        whole_run: &[],
        key_figures: &[],
        features: &[],
    };
}

/// All metrics of a subject: groups, each declared `after` the previous one.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [&'static Group]);

impl Catalogue {
    /// Iterates over all metrics, in the order of reports.
    pub fn metrics(self) -> impl Iterator<Item = &'static Metric> {
        self.0.iter().flat_map(|group| group.metrics.iter())
    }

    /// Returns the metric with this name.
    pub fn find(self, name: &str) -> Option<&'static Metric> {
        self.metrics().find(|metric| metric.name == name)
    }

    /// Iterates over the columns of a table of runs, in order.
    pub fn table(self) -> impl Iterator<Item = &'static TableColumn> {
        self.0.iter().flat_map(|group| group.table.iter())
    }

    /// Iterates over the distributions that are measured only while a client starts.
    pub fn starts(self) -> impl Iterator<Item = HistogramId> {
        self.0.iter().flat_map(|group| group.starts).copied()
    }

    /// Iterates over the counters that cover the whole run, including its warm-up.
    pub fn whole_run(self) -> impl Iterator<Item = CounterId> {
        self.0.iter().flat_map(|group| group.whole_run).copied()
    }

    /// Returns `true` if the metric of this name is measured only while a client starts.
    pub fn is_start(self, name: &str) -> bool {
        match self.find(name).map(|metric| metric.source) {
            Some(MetricSource::Distribution(id)) => self.starts().any(|start| start == id),
            _ => false,
        }
    }

    /// Iterates over the rows of the run summary, in order.
    pub fn summary(self) -> impl Iterator<Item = &'static SummaryRow> {
        let rows = self.0.iter().flat_map(|group| group.summary.iter());
        rows.flat_map(|rows| rows.iter())
    }

    /// Iterates over the counters of features that not every run uses, feature by feature.
    pub fn features(self) -> impl Iterator<Item = &'static [CounterId]> {
        self.0.iter().flat_map(|group| group.features).copied()
    }

    /// Iterates over the figures that matter most, in order of importance.
    pub fn key_figures(self) -> impl Iterator<Item = &'static KeyFigure> {
        self.0.iter().flat_map(|group| group.key_figures.iter())
    }

    /// Iterates over the conditions that exclude a run from the best of a column.
    pub fn disqualifiers(self) -> impl Iterator<Item = &'static Disqualifier> {
        self.0.iter().flat_map(|group| group.disqualifiers.iter())
    }

    /// How received media is checked, or `None` if the subject has no media.
    pub fn content(self) -> Option<&'static ContentCheck> {
        self.0.iter().find_map(|group| group.content.first())
    }

    /// Returns the counter whose rate is shown by the column with this meaning.
    pub fn rate_counter(self, meaning: Meaning) -> Option<CounterId> {
        let column = self.table().find(|shown| shown.meaning == meaning)?;
        match self.find(column.metric)?.source {
            MetricSource::Rate(counter, _) => Some(counter),
            _ => None,
        }
    }

    /// Returns the metric of [`Catalogue::rate_counter`].
    pub fn rate_counter_metric(self, meaning: Meaning) -> Option<&'static Metric> {
        let source = MetricSource::Counter(self.rate_counter(meaning)?);
        self.metrics().find(|metric| metric.source == source)
    }

    fn last(self) -> &'static Group {
        self.0.last().copied().unwrap_or(&Group::NONE)
    }

    /// Number of counters in a recorder.
    pub fn counters(self) -> usize {
        usize::from(self.last().counters_end)
    }

    /// Number of gauges in a recorder.
    pub fn gauges(self) -> usize {
        usize::from(self.last().gauges_end)
    }

    /// Maximum number of distributions in a recorder.
    pub fn histograms(self) -> usize {
        usize::from(self.last().histograms_end)
    }
}

/// Declares a [`Group`] and a constant for each of its counters, gauges and distributions.
///
/// The doc comment of a metric is its definition, which `streamgauge metrics` prints. A
/// distribution that ends with `BetweenClients` is a delay from one client to another. Eight
/// optional sections may follow: `table { ... }` with [`TableColumn`]s for tables of runs, `summary
/// { ... }` with slices of [`SummaryRow`]s for the run summary, `disqualifiers { ... }` with
/// [`Disqualifier`]s that exclude a run from the best, `content { ... }` with a [`ContentCheck`],
/// `starts { ... }` with the distributions that are measured only while a client starts,
/// `whole_run { ... }` with the counters that include the warm-up, `key_figures { ... }` with the
/// [`KeyFigure`]s that head a report, and `features { ... }` with the counters of features that not
/// every run uses.
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
        distributions { $( $(#[doc = $hdoc:literal])+ $H:ident = $hname:literal, $hunit:ident, $href:literal $(, $hclocks:ident)?; )* }
        derived { $( $(#[doc = $ddoc:literal])+ $dname:literal, $dunit:ident, $dref:literal, $dkind:ident($($darg:expr),+); )* }
        $( table { $( $column:expr; )* } )?
        $( summary { $( $rows:expr; )* } )?
        $( disqualifiers { $( $disqualifier:expr; )* } )?
        $( content { $content:expr; } )?
        $( starts { $( $start:expr; )* } )?
        $( whole_run { $( $whole:expr; )* } )?
        $( key_figures { $( $key:expr; )* } )?
        $( features { $( $feature:expr; )* } )?
    ) => {
        $crate::metrics!(@number $vis CounterId, $before, counters_end; $( $(#[doc = $cdoc])+ $C )*);
        $crate::metrics!(@number $vis GaugeId, $before, gauges_end; $( $(#[doc = $gdoc])+ $G )*);
        $crate::metrics!(@number $vis HistogramId, $before, histograms_end; $( $(#[doc = $hdoc])+ $H )*);
        $(#[$group_meta])*
        $vis static $GROUP: $crate::metric::Group = $crate::metric::Group {
            metrics: &[
                $( $crate::metrics!(@metric $cname, $cunit, $cref, $($cdoc)+; Counter($C)), )*
                $( $crate::metrics!(
                    @metric $gname, $gunit, $gref, $($gdoc)+;
                    Gauge($G, $crate::metric::GaugeMerge::$gjoin)
                ), )*
                $( $crate::metrics!(
                    @metric $hname, $hunit, $href, $($hdoc)+; Distribution($H) $(, $hclocks)?
                ), )*
                $( $crate::metrics!(
                    @metric $dname, $dunit, $dref, $($ddoc)+; $dkind($($darg),+)
                ), )*
            ],
            counters_end: $before.counters_end + $crate::metrics!(@count $($C)*),
            gauges_end: $before.gauges_end + $crate::metrics!(@count $($G)*),
            histograms_end: $before.histograms_end + $crate::metrics!(@count $($H)*),
            table: &[ $( $( $column, )* )? ],
            summary: &[ $( $( $rows, )* )? ],
            disqualifiers: &[ $( $( $disqualifier, )* )? ],
            content: &[ $( $content )? ],
            starts: &[ $( $( $start, )* )? ],
            whole_run: &[ $( $( $whole, )* )? ],
            key_figures: &[ $( $( $key, )* )? ],
            features: &[ $( $( $feature, )* )? ],
        };
    };
    (
        @metric $name:literal, $unit:ident, $reference:literal, $($doc:literal)+;
        $kind:ident($($of:expr),+) $(, $clocks:ident)?
    ) => {
        $crate::metric::Metric {
            name: $name,
            unit: $crate::metric::Unit::$unit,
            source: $crate::metric::MetricSource::$kind($($of),+),
            doc: $crate::metric::trim_doc(concat!($($doc, "\n"),+)),
            reference: $reference,
            between_clients: $crate::metrics!(@between $($clocks)?),
        }
    };
    (@between) => { false };
    (@between BetweenClients) => { true };
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

/// Strips the leading space and the trailing line break of a doc comment's text.
pub const fn trim_doc(text: &'static str) -> &'static str {
    text.trim_ascii()
}
