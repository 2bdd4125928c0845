//! What the summary of a run for a terminal shows of a population: rows that its protocol declares.
//!
//! A row is a label and a text with metrics in braces, or the columns of a distribution. Whoever
//! prints a summary reads these, and knows no metric by name.

/// A row of a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SummaryRow {
    /// What stands on the left.
    pub label: &'static str,
    /// When it is shown: where all of these hold.
    pub when: &'static [When],
    /// What stands on the right.
    pub shows: Shows,
}

/// What has to hold for a row to be shown. A metric is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Its value is above zero.
    Above(&'static str),
    /// It is not, or it is unknown.
    NotAbove(&'static str),
    /// Its value is known, and zero.
    Zero(&'static str),
    /// Its value is known, and not zero.
    NotZero(&'static str),
    /// It is a distribution with any value.
    HasData(&'static str),
    /// It is a distribution without any.
    NoData(&'static str),
    /// The first is more than one in a hundred of the second.
    MoreThanPercentOf(&'static str, &'static str),
    /// Any client began in the time that counts, and not in the warm-up.
    Began,
    /// None did.
    NotBegan,
}

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shows {
    /// Texts, one behind the other. The row is left out where there is none.
    Text(&'static [Part]),
    /// The mean or the median of a distribution, whichever is named, and its tail. The row is left
    /// out where the catalogue does not have it.
    Distribution(&'static str, &'static str),
    /// Where lost packets were lost.
    WhereLost,
    /// Nothing, and neither does any row below it.
    End,
}

/// A part of a row's text. Metrics stand in braces:
///
/// | in braces | stands for |
/// |---|---|
/// | `name` | its figure in its unit, and 0 for a count that is unknown |
/// | (nothing) | the same of the metric that the part is about |
/// | `name:0` | the same without digits behind the point |
/// | `name:one\|many` | the figure with the word that goes with it |
/// | `name-other` | the first less the second, and not below zero |
/// | `name/other` | the first as a whole percentage of the second |
/// | `name.p50` | half of the values of a distribution are at most this |
/// | `name.max` | the largest value of a distribution |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A text.
    Text(&'static str),
    /// A text where this metric is above zero.
    If(&'static str, &'static str),
    /// A text where this distribution has any value.
    IfData(&'static str, &'static str),
    /// Texts of metrics that are above zero, with commas between them.
    List(&'static [(&'static str, &'static str)]),
    /// The same, and a text where none is.
    ListOr(&'static [(&'static str, &'static str)], &'static str),
}

impl SummaryRow {
    /// A row of one text.
    pub const fn text(
        label: &'static str,
        when: &'static [When],
        parts: &'static [Part],
    ) -> SummaryRow {
        SummaryRow {
            label,
            when,
            shows: Shows::Text(parts),
        }
    }

    /// A row of a distribution, with its `first` figure, `mean` or `p50`.
    pub const fn distribution(
        label: &'static str,
        when: &'static [When],
        metric: &'static str,
        first: &'static str,
    ) -> SummaryRow {
        SummaryRow {
            label,
            when,
            shows: Shows::Distribution(metric, first),
        }
    }

    /// The end of the rows where all of these hold.
    pub const fn end(when: &'static [When]) -> SummaryRow {
        SummaryRow {
            label: "",
            when,
            shows: Shows::End,
        }
    }

    /// The names of all metrics that it reads.
    pub fn metrics(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for when in self.when {
            match *when {
                When::Above(name)
                | When::NotAbove(name)
                | When::Zero(name)
                | When::NotZero(name)
                | When::HasData(name)
                | When::NoData(name) => names.push(name),
                When::MoreThanPercentOf(name, other) => names.extend([name, other]),
                When::Began | When::NotBegan => {}
            }
        }
        match self.shows {
            Shows::Text(parts) => parts.iter().for_each(|part| part.metrics(&mut names)),
            Shows::Distribution(name, _) => names.push(name),
            Shows::WhereLost | Shows::End => {}
        }
        names
    }
}

impl Part {
    fn metrics(self, names: &mut Vec<&'static str>) {
        match self {
            Part::Text(text) => names.extend(named_in(text)),
            Part::If(name, text) | Part::IfData(name, text) => {
                names.extend(named_in(text));
                names.push(name);
            }
            Part::List(items) | Part::ListOr(items, _) => {
                for &(name, text) in items {
                    names.extend(named_in(text));
                    names.push(name);
                }
            }
        }
    }
}

fn named_in(text: &'static str) -> impl Iterator<Item = &'static str> {
    let names = pieces(text).flat_map(|piece| match piece {
        Piece::Text(_) | Piece::Figure("", _) => [None, None],
        Piece::Figure(name, How::Less(other) | How::Of(other)) => [Some(name), Some(other)],
        Piece::Figure(name, _) => [Some(name), None],
    });
    names.flatten()
}

/// A piece of a part's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As it is.
    Text(&'a str),
    /// A metric, empty for the one that the part is about, and how it is shown.
    Figure(&'a str, How<'a>),
}

/// How a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How<'a> {
    /// In its unit.
    Plain,
    /// Without digits behind the point.
    Whole,
    /// With a word for one, and a word for several.
    Counted(&'a str, &'a str),
    /// Less another metric.
    Less(&'a str),
    /// As a share of another metric.
    Of(&'a str),
    /// Half of the values are at most this.
    Median,
    /// The largest value.
    Max,
}

/// A part's text, piece by piece.
pub fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let Some(inside) = rest.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').unwrap_or((inside, ""));
            rest = after;
            return Some(figure(inside));
        }
        let end = rest.find('{').unwrap_or(rest.len());
        let (plain, after) = rest.split_at(end);
        rest = after;
        (!plain.is_empty()).then_some(Piece::Text(plain))
    })
}

fn figure(inside: &str) -> Piece<'_> {
    let end = inside.find([':', '-', '/', '.']).unwrap_or(inside.len());
    let (name, how) = inside.split_at(end);
    let how = match (how.get(..1), how.get(1..)) {
        (Some(":"), Some("0")) => How::Whole,
        (Some(":"), Some(words)) => {
            let (one, many) = words.split_once('|').unwrap_or((words, words));
            How::Counted(one, many)
        }
        (Some("-"), Some(other)) => How::Less(other),
        (Some("/"), Some(other)) => How::Of(other),
        (Some("."), Some("p50")) => How::Median,
        (Some("."), Some("max")) => How::Max,
        _ => How::Plain,
    };
    Piece::Figure(name, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_apart() {
        let found: Vec<Piece<'_>> =
            pieces("{} of {a-b}, {c:0}/s {d:one|two things}{e.max}{f.p50}{g.p95}").collect();
        assert_eq!(
            found,
            [
                Piece::Figure("", How::Plain),
                Piece::Text(" of "),
                Piece::Figure("a", How::Less("b")),
                Piece::Text(", "),
                Piece::Figure("c", How::Whole),
                Piece::Text("/s "),
                Piece::Figure("d", How::Counted("one", "two things")),
                Piece::Figure("e", How::Max),
                Piece::Figure("f", How::Median),
                // One that is not known shows no other's value.
                Piece::Figure("g", How::Plain),
            ]
        );
        assert_eq!(
            pieces("{a/b}").collect::<Vec<_>>(),
            [Piece::Figure("a", How::Of("b"))]
        );
    }

    #[test]
    fn rows_name_the_metrics_that_they_read() {
        const ROW: SummaryRow = SummaryRow::text(
            "lost",
            &[When::Above("a")],
            &[Part::List(&[("b", "{} of {c}")]), Part::Text("{d-e}")],
        );
        assert_eq!(ROW.metrics(), ["a", "c", "b", "d", "e"]);
    }
}
