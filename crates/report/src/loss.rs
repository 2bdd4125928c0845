//! Attribution of lost packets to the tester, this machine's kernel, or the path beyond it.

use measure::Unit;
use schemars::JsonSchema;

use crate::metrics::{MetricFigures, Metrics};

/// Places where packets were lost. The parts add up to `lost` and are never negative. Null means
/// unknown: with several populations, the kernel's drops cannot be attributed to one of them (nor
/// the ring's, if the run was cut off), and some kernels do not report their drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct WhereLost {
    /// Packets that never arrived: expected minus received, at least zero.
    pub lost: u64,
    /// Part of `lost` that was dropped in the tester's own packet ring or at its sockets.
    pub in_tester: Option<u64>,
    /// Part of `lost` that this machine's kernel dropped before any socket. An upper bound: the
    /// kernel counts for the whole machine, and a server on this machine may have lost its own
    /// packets there.
    pub in_kernel: Option<u64>,
    /// Part of `lost` that the emulated link to the clients dropped, as configured or by its own
    /// fault; 0 without a link. An upper bound: the link may have dropped other packets than media,
    /// or packets of other populations.
    pub on_link: Option<u64>,
    /// Part of `lost` that was lost on the way to the server, for a population that publishes what
    /// it receives. The server's report is multiplied by the number of receivers of each packet; 0
    /// if the population publishes nothing. An upper bound: packets that reached the server as
    /// retransmissions may be included.
    pub on_way_up: Option<u64>,
    /// Remaining part of `lost`: lost in the network or by the server.
    pub elsewhere: Option<u64>,
}

/// Returns a count, or `None` if it is unknown.
fn count(metrics: &Metrics, name: &str) -> Option<u64> {
    match metrics.find(name)?.figures {
        MetricFigures::Value(value) => value.map(|value| value.max(0.0) as u64),
        _ => None,
    }
}

/// Returns the number of expected packets that are missing because they never reached the server.
/// It is the number that the server reports for a population's own packets, times the number of
/// receivers of each packet.
fn on_way_up(metrics: &Metrics) -> u64 {
    let known = |name| count(metrics, name).unwrap_or(0);
    let (reported, sent) = (known("reported_lost"), known("sent_packets"));
    // A population that only publishes expects no packets.
    let (expected, lost) = (known("expected"), known("lost"));
    match (reported, sent) {
        (0, _) | (_, 0) => 0,
        _ if lost == 0 => 0,
        _ => (reported as f64 * expected as f64 / sent as f64).ceil() as u64,
    }
}

/// Emulated link to a population.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PopulationLink {
    /// Number of packets that the link dropped on their way to the clients.
    pub(crate) dropped: u64,
    /// True if no other population uses the link.
    pub(crate) is_exclusive: bool,
}

impl PopulationLink {
    /// Returns the link to a population, if it has one. `dropped` returns the number of packets
    /// that the link with that name dropped.
    pub(crate) fn of(
        population: &str,
        dropped: impl Fn(&str) -> Option<u64>,
    ) -> Option<PopulationLink> {
        let link = |name: &str, is_exclusive| {
            let dropped = dropped(name)?;
            Some(PopulationLink {
                dropped,
                is_exclusive,
            })
        };
        let [_, own] = measure::link::subjects(Some(population));
        link(&own, true).or_else(|| link(measure::link::DOWNLINK, false))
    }
}

/// Attributes the losses of each population, and of all together. Returns `None` for a population
/// without packets.
pub(crate) fn attribute(
    populations: &[(&Metrics, Option<PopulationLink>)],
    tester: &Metrics,
) -> (Vec<Option<WhereLost>>, WhereLost) {
    let own = |name| count(tester, name);
    // Drops of the ring, and those of them whose population is known.
    let (ring, missed) = (
        own("ring_overflow").unwrap_or(0),
        own("ring_missed").unwrap_or(0),
    );
    let kernel = own("softnet_drops");
    let lost: Vec<Option<u64>> = populations
        .iter()
        .map(|(metrics, _)| count(metrics, "lost"))
        .collect();
    let all: u64 = lost.iter().flatten().sum();
    // If the file does not attribute the drops to populations, all drops of the tester count.
    let known: Option<u64> = populations
        .iter()
        .zip(&lost)
        .filter(|(_, lost)| lost.is_some())
        .map(|((metrics, _), _)| count(metrics, "lost_in_tester"))
        .sum();
    let unknown = ring.saturating_sub(missed);
    let in_tester = match known {
        Some(known) => known + unknown,
        None => own("overflow").unwrap_or(0),
    };
    let links = || populations.iter().filter_map(|(_, link)| *link);
    let shared = links().find(|link| !link.is_exclusive);
    let dropped = links().filter(|link| link.is_exclusive).chain(shared);
    let dropped = dropped.map(|link| link.dropped).sum();
    let up: Vec<u64> = populations.iter().map(|(own, _)| on_way_up(own)).collect();
    let way_up = up.iter().sum();
    let whole = attribute_parts(all, Some(in_tester), kernel, Some(dropped), way_up);
    // Drops of a link are attributed to a population only if no other population uses it.
    let sharing = populations.iter().zip(&lost);
    let sharing = sharing
        .filter(|((_, link), lost)| lost.is_some() && link.is_some_and(|link| !link.is_exclusive));
    let sharing = sharing.count();
    let alone = lost.iter().flatten().count() == 1;
    let each = populations
        .iter()
        .zip(lost.iter().zip(&up))
        .map(|((metrics, link), (lost, up))| {
            let lost = (*lost)?;
            if alone {
                return Some(whole);
            }
            let known = count(metrics, "lost_in_tester").filter(|_| ring == 0 || missed > 0);
            let dropped = link.map_or(Some(0), |link| {
                let known = link.is_exclusive || sharing == 1 || link.dropped == 0;
                known.then_some(link.dropped)
            });
            let kernel = kernel.filter(|&drops| drops == 0);
            Some(attribute_parts(lost, known, kernel, dropped, *up))
        });
    (each.collect(), whole)
}

fn attribute_parts(
    lost: u64,
    in_tester: Option<u64>,
    in_kernel: Option<u64>,
    on_link: Option<u64>,
    up: u64,
) -> WhereLost {
    if lost == 0 {
        return WhereLost {
            lost,
            in_tester: Some(0),
            in_kernel: Some(0),
            on_link: Some(0),
            on_way_up: Some(0),
            elsewhere: Some(0),
        };
    }
    let in_tester = in_tester.map(|packets| packets.min(lost));
    let rest = in_tester.map(|packets| lost - packets);
    let in_kernel = in_kernel.map(|packets| packets.min(rest.unwrap_or(lost)));
    let rest_of_kernel = rest.zip(in_kernel).map(|(rest, kernel)| rest - kernel);
    let on_link = on_link.map(|packets| packets.min(rest_of_kernel.or(rest).unwrap_or(lost)));
    let rest_of_link = rest_of_kernel.zip(on_link).map(|(rest, link)| rest - link);
    let on_way_up = match up {
        0 => Some(0),
        up => rest_of_link.map(|rest| up.min(rest)),
    };
    WhereLost {
        lost,
        in_tester,
        in_kernel,
        on_link,
        on_way_up,
        elsewhere: rest_of_link.zip(on_way_up).map(|(rest, up)| rest - up),
    }
}

impl WhereLost {
    /// Describes the places, such as `network or server 100, tester 23`, in a room
    /// `way up 12, server or way down 100, tester 0`, or with an emulated link
    /// `emulated link 490 (98 %), server 10, tester 0`. Returns `None` if nothing was lost on this
    /// machine, on a link or on the way up.
    pub(crate) fn in_words(&self, server_is_here: bool) -> Option<String> {
        let here = self.in_tester != Some(0) || self.in_kernel != Some(0);
        let on_link = self.on_link != Some(0);
        let up = self.on_way_up != Some(0);
        if self.lost == 0 || !(here || on_link || up) {
            return None;
        }
        let shown = |count: Option<u64>| {
            count.map_or_else(
                || "unknown".to_owned(),
                |count| crate::human::figure(Unit::Count, count as f64),
            )
        };
        let way_up = match up {
            true => format!("way up {}, ", shown(self.on_way_up)),
            false => String::new(),
        };
        let beyond = match (on_link, self.on_link) {
            // The run's own network has no other losses.
            (true, on_link) => {
                let share = on_link.map_or_else(String::new, |packets| {
                    let share = packets as f64 / self.lost as f64;
                    format!(" ({})", crate::human::ratio(share))
                });
                format!("emulated link {}{share}, server", shown(on_link))
            }
            (false, _) if up => "server or way down".to_owned(),
            (false, _) => "network or server".to_owned(),
        };
        let mut text = format!(
            "{way_up}{beyond} {}, tester {}",
            shown(self.elsewhere),
            shown(self.in_tester)
        );
        if self.in_kernel != Some(0) {
            text += &format!(", this machine's kernel {}", shown(self.in_kernel));
            if server_is_here && self.in_kernel.is_some() {
                text += " (the server runs here too, and may have lost them itself)";
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::NamedFigures;

    fn metrics(values: &[(&'static str, Option<f64>)]) -> Metrics {
        let named = values.iter().map(|&(name, value)| NamedFigures {
            name,
            unit: Unit::Count,
            figures: MetricFigures::Value(value),
        });
        Metrics(named.collect())
    }

    fn own(ring: f64, sockets: f64, kernel: Option<f64>) -> Metrics {
        own_with(ring, 0.0, sockets, kernel)
    }

    fn own_with(ring: f64, missed: f64, sockets: f64, kernel: Option<f64>) -> Metrics {
        metrics(&[
            ("ring_missed", Some(missed)),
            ("ring_overflow", Some(ring)),
            ("overflow", Some(ring + sockets)),
            ("softnet_drops", kernel),
        ])
    }

    fn population(lost: f64, in_tester: f64) -> Metrics {
        metrics(&[("lost", Some(lost)), ("lost_in_tester", Some(in_tester))])
    }

    #[test]
    fn parts_add_up_and_are_never_negative() {
        let one = population(123.0, 20.0);
        let (each, whole) = attribute(&[(&one, None)], &own(3.0, 20.0, Some(0.0)));
        assert_eq!(each, [Some(whole)]);
        assert_eq!(
            whole.in_words(true).as_deref(),
            Some("network or server 100, tester 23")
        );
        // Drops of packets that nobody missed: duplicates, the last packets, those of other
        // programs.
        let (_, whole) = attribute(
            &[(&population(10.0, 50.0), None)],
            &own(0.0, 50.0, Some(900.0)),
        );
        assert_eq!((whole.in_tester, whole.in_kernel), (Some(10), Some(0)));
        assert_eq!(whole.elsewhere, Some(0));
        let (_, whole) = attribute(&[(&population(-4.0, 2.0), None)], &own(0.0, 2.0, Some(1.0)));
        assert_eq!((whole.lost, whole.elsewhere), (0, Some(0)));
        assert_eq!(whole.in_words(false), None);
    }

    #[test]
    fn loss_on_the_way_up_counts_once_per_receiver() {
        let room = |lost: f64, reported: f64| {
            metrics(&[
                ("lost", Some(lost)),
                ("lost_in_tester", Some(0.0)),
                ("expected", Some(3000.0)),
                ("sent_packets", Some(1000.0)),
                ("reported_lost", Some(reported)),
            ])
        };
        let fit = own(0.0, 0.0, Some(0.0));
        let (each, whole) = attribute(&[(&room(100.0, 20.0), None)], &fit);
        assert_eq!((whole.on_way_up, whole.elsewhere), (Some(60), Some(40)));
        assert_eq!(each, [Some(whole)]);
        let text = whole.in_words(false).expect("there is something to say");
        assert_eq!(text, "way up 60, server or way down 40, tester 0");
        // At most as many as are missing, and none if all were repaired.
        let (_, whole) = attribute(&[(&room(100.0, 90.0), None)], &fit);
        assert_eq!((whole.on_way_up, whole.elsewhere), (Some(100), Some(0)));
        let (_, whole) = attribute(&[(&room(0.0, 90.0), None)], &fit);
        assert_eq!((whole.on_way_up, whole.in_words(false)), (Some(0), None));
        let other = population(50.0, 0.0);
        let (each, whole) = attribute(&[(&room(100.0, 20.0), None), (&other, None)], &fit);
        assert_eq!((whole.on_way_up, whole.elsewhere), (Some(60), Some(90)));
        assert_eq!(each[1].and_then(|lost| lost.on_way_up), Some(0));
    }

    #[test]
    fn kernel_drops_may_be_those_of_a_local_server() {
        let (_, whole) = attribute(&[(&population(10.0, 0.0), None)], &own(0.0, 0.0, Some(4.0)));
        assert_eq!((whole.in_kernel, whole.elsewhere), (Some(4), Some(6)));
        let text = whole.in_words(true).expect("there is something to say");
        assert!(text.contains("kernel 4 (the server runs here"), "{text}");
        assert!(
            !whole
                .in_words(false)
                .expect("the same")
                .contains("server runs")
        );
    }

    #[test]
    fn ring_drops_are_unknown_for_several_populations() {
        let (a, b) = (population(10.0, 1.0), population(5.0, 0.0));
        let none = metrics(&[("active", Some(1.0))]);
        let (each, whole) = attribute(
            &[(&a, None), (&b, None), (&none, None)],
            &own(3.0, 1.0, Some(0.0)),
        );
        assert_eq!(whole.in_tester, Some(4));
        assert_eq!(whole.elsewhere, Some(11));
        let first = each[0].expect("it has packets");
        assert_eq!((first.in_tester, first.elsewhere), (None, None));
        assert!(each[2].is_none());
        // Ring drops per port make the parts of each population known. Drops outside any port only
        // count for all populations together.
        let c = population(15.0, 7.0);
        let (each, whole) = attribute(
            &[(&c, None), (&b, None)],
            &own_with(9.0, 7.0, 0.0, Some(0.0)),
        );
        assert_eq!((whole.lost, whole.in_tester), (20, Some(9)));
        assert_eq!(each[0].and_then(|lost| lost.in_tester), Some(7));
        assert_eq!(each[1].and_then(|lost| lost.elsewhere), Some(5));
        // Without drops of the ring, the parts are known.
        let (each, _) = attribute(&[(&a, None), (&b, None)], &own(0.0, 1.0, Some(0.0)));
        assert_eq!(each[0].and_then(|lost| lost.in_tester), Some(1));
        assert_eq!(each[1].and_then(|lost| lost.elsewhere), Some(5));
    }

    #[test]
    fn unknown_kernel_drops_leave_the_rest_unknown() {
        let (_, whole) = attribute(&[(&population(10.0, 4.0), None)], &own(0.0, 4.0, None));
        assert_eq!((whole.in_tester, whole.in_kernel), (Some(4), None));
        assert_eq!(whole.elsewhere, None);
        let text = whole.in_words(true).expect("there is something to say");
        assert!(text.contains("unknown"), "{text}");
    }

    #[test]
    fn link_drops_are_not_attributed_to_the_server() {
        let link = |dropped, own| {
            Some(PopulationLink {
                dropped,
                is_exclusive: own,
            })
        };
        let (one, other) = (population(500.0, 3.0), population(40.0, 0.0));
        let fit = own(0.0, 3.0, Some(0.0));
        let (each, whole) = attribute(&[(&one, link(490, false))], &fit);
        assert_eq!((whole.on_link, whole.elsewhere), (Some(490), Some(7)));
        let text = whole.in_words(true).expect("there is something to say");
        assert_eq!(text, "emulated link 490 (98 %), server 7, tester 3");
        assert_eq!(each, [Some(whole)]);
        // The link may drop other packets than media.
        let (_, whole) = attribute(&[(&one, link(600, false))], &fit);
        assert_eq!((whole.on_link, whole.elsewhere), (Some(497), Some(0)));
        // Drops of a shared link cannot be attributed to one population.
        let both = [(&one, link(490, false)), (&other, link(490, false))];
        let (each, whole) = attribute(&both, &fit);
        assert_eq!((whole.on_link, whole.elsewhere), (Some(490), Some(47)));
        let first = each[0].expect("it has packets");
        assert_eq!((first.on_link, first.elsewhere), (None, None));
        let both = [(&one, link(490, true)), (&other, link(40, false))];
        let (each, whole) = attribute(&both, &fit);
        assert_eq!(whole.on_link, Some(530));
        assert_eq!(each[0].and_then(|lost| lost.elsewhere), Some(7));
        assert_eq!(each[1].and_then(|lost| lost.elsewhere), Some(0));
    }

    #[test]
    fn population_uses_its_own_link_or_the_shared_one() {
        let dropped = |name: &str| match name {
            "far_downlink" => Some(3),
            "downlink" => Some(2),
            _ => None,
        };
        let of =
            |name| PopulationLink::of(name, dropped).map(|link| (link.dropped, link.is_exclusive));
        assert_eq!(of("far"), Some((3, true)));
        assert_eq!(of("near"), Some((2, false)));
        assert!(PopulationLink::of("far", |_| None).is_none());
    }
}
