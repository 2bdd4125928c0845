//! Rows of the run summary in the terminal, declared by the protocol of a population.
//!
//! A row is a label and a text with metrics in braces, or the columns of a distribution. Its label
//! is a metric's name, as a threshold is written. The code that prints a summary reads these rows
//! and knows no metric by name.

/// A row of the summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SummaryRow {
    /// Label on the left: the metric of the first figure, so that a reader can write a threshold
    /// for it. Only a row without a figure, or a list of faults, has another label.
    pub label: &'static str,
    /// Conditions under which the row is shown. All must hold.
    pub when: &'static [RowCondition],
    /// Content on the right.
    pub shows: RowContent,
}

/// Condition of a row. Names are those of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowCondition {
    /// The value is above zero.
    Above(&'static str),
    /// The value is not above zero, or is unknown.
    NotAbove(&'static str),
    /// The value is known and zero.
    Zero(&'static str),
    /// The value is known and not zero.
    NotZero(&'static str),
    /// The distribution has at least one value.
    HasData(&'static str),
    /// The distribution has no values.
    NoData(&'static str),
    /// The first is more than one percent of the second.
    MoreThanPercentOf(&'static str, &'static str),
    /// At least one client started after the warm-up, or no client started at all.
    StartedAfterWarmUp,
    /// All clients started during the warm-up.
    OnlyStartedInWarmUp,
}

/// Content of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowContent {
    /// Parts of a text, concatenated. The row is omitted if all are empty.
    Text(&'static [Part]),
    /// Mean or median of a distribution, as named by the second field, and its tail. The row is
    /// omitted if the catalogue does not contain the metric.
    Distribution(&'static str, &'static str),
    /// Breakdown of lost packets by where they were lost.
    WhereLost,
    /// Nothing. This and all following rows are omitted.
    End,
}

/// Part of a row's text. Metrics are written in braces:
///
/// | in braces | replaced by |
/// |---|---|
/// | `name` | its figure in its unit, or 0 for an unknown count |
/// | (nothing) | the figure of the metric of this part |
/// | `name:0` | the figure without decimals |
/// | `name:one\|many` | the figure with the singular or plural word |
/// | `name-other` | the first minus the second, but at least zero |
/// | `name/other` | the first as a whole percentage of the second |
/// | `name.p50` | the median of a distribution |
/// | `name.max` | the largest value of a distribution |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A text.
    Text(&'static str),
    /// A text if this metric is above zero.
    If(&'static str, &'static str),
    /// A text if this distribution has at least one value.
    IfData(&'static str, &'static str),
    /// Texts of the metrics that are above zero, separated by commas.
    List(&'static [(&'static str, &'static str)]),
    /// Like `List`, with a semicolon before it unless it is empty.
    Further(&'static [(&'static str, &'static str)]),
    /// Like `List`, with a text for the case that none is above zero.
    ListOr(&'static [(&'static str, &'static str)], &'static str),
}

impl SummaryRow {
    /// Creates a row with one text.
    pub const fn text(
        label: &'static str,
        when: &'static [RowCondition],
        parts: &'static [Part],
    ) -> SummaryRow {
        SummaryRow {
            label,
            when,
            shows: RowContent::Text(parts),
        }
    }

    /// Creates a row for a distribution with its `first` figure, `mean` or `p50`. Its label is the
    /// name of the metric.
    pub const fn distribution(
        when: &'static [RowCondition],
        metric: &'static str,
        first: &'static str,
    ) -> SummaryRow {
        SummaryRow {
            label: metric,
            when,
            shows: RowContent::Distribution(metric, first),
        }
    }

    /// Ends the summary if all conditions hold.
    pub const fn end(when: &'static [RowCondition]) -> SummaryRow {
        SummaryRow {
            label: "",
            when,
            shows: RowContent::End,
        }
    }

    /// Names of all metrics that the row reads.
    pub fn metrics(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for when in self.when {
            match *when {
                RowCondition::Above(name)
                | RowCondition::NotAbove(name)
                | RowCondition::Zero(name)
                | RowCondition::NotZero(name)
                | RowCondition::HasData(name)
                | RowCondition::NoData(name) => names.push(name),
                RowCondition::MoreThanPercentOf(name, other) => names.extend([name, other]),
                RowCondition::StartedAfterWarmUp | RowCondition::OnlyStartedInWarmUp => {}
            }
        }
        match self.shows {
            RowContent::Text(parts) => parts.iter().for_each(|part| part.metrics(&mut names)),
            RowContent::Distribution(name, _) => names.push(name),
            RowContent::WhereLost | RowContent::End => {}
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
            Part::List(items) | Part::Further(items) | Part::ListOr(items, _) => {
                for &(name, text) in items {
                    names.extend(named_in(text));
                    names.push(name);
                }
            }
        }
    }
}

fn named_in(text: &'static str) -> impl Iterator<Item = &'static str> {
    let names = tokens(text).flat_map(|piece| match piece {
        Token::Text(_) | Token::Figure("", _) => [None, None],
        Token::Figure(name, FigureFormat::Less(other) | FigureFormat::Of(other)) => {
            [Some(name), Some(other)]
        }
        Token::Figure(name, _) => [Some(name), None],
    });
    names.flatten()
}

/// A token of a part's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// Literal text.
    Text(&'a str),
    /// A metric, empty for the metric of the part, and its format.
    Figure(&'a str, FigureFormat<'a>),
}

/// Format of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureFormat<'a> {
    /// With its unit.
    Plain,
    /// Without decimals.
    Whole,
    /// With a singular and a plural word.
    Counted(&'a str, &'a str),
    /// Minus another metric.
    Less(&'a str),
    /// As a share of another metric.
    Of(&'a str),
    /// Median of a distribution.
    Median,
    /// Largest value of a distribution.
    Max,
}

/// Splits a part's text into tokens.
pub fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
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
        (!plain.is_empty()).then_some(Token::Text(plain))
    })
}

fn figure(inside: &str) -> Token<'_> {
    let end = inside.find([':', '-', '/', '.']).unwrap_or(inside.len());
    let (name, how) = inside.split_at(end);
    let how = match (how.get(..1), how.get(1..)) {
        (Some(":"), Some("0")) => FigureFormat::Whole,
        (Some(":"), Some(words)) => {
            let (one, many) = words.split_once('|').unwrap_or((words, words));
            FigureFormat::Counted(one, many)
        }
        (Some("-"), Some(other)) => FigureFormat::Less(other),
        (Some("/"), Some(other)) => FigureFormat::Of(other),
        (Some("."), Some("p50")) => FigureFormat::Median,
        (Some("."), Some("max")) => FigureFormat::Max,
        _ => FigureFormat::Plain,
    };
    Token::Figure(name, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_into_tokens() {
        let found: Vec<Token<'_>> =
            tokens("{} of {a-b}, {c:0}/s {d:one|two things}{e.max}{f.p50}{g.p95}").collect();
        assert_eq!(
            found,
            [
                Token::Figure("", FigureFormat::Plain),
                Token::Text(" of "),
                Token::Figure("a", FigureFormat::Less("b")),
                Token::Text(", "),
                Token::Figure("c", FigureFormat::Whole),
                Token::Text("/s "),
                Token::Figure("d", FigureFormat::Counted("one", "two things")),
                Token::Figure("e", FigureFormat::Max),
                Token::Figure("f", FigureFormat::Median),
                // An unknown suffix does not show another figure.
                Token::Figure("g", FigureFormat::Plain),
            ]
        );
        assert_eq!(
            tokens("{a/b}").collect::<Vec<_>>(),
            [Token::Figure("a", FigureFormat::Of("b"))]
        );
    }

    #[test]
    fn rows_list_the_metrics_they_read() {
        const ROW: SummaryRow = SummaryRow::text(
            "lost",
            &[RowCondition::Above("a")],
            &[Part::List(&[("b", "{} of {c}")]), Part::Text("{d-e}")],
        );
        assert_eq!(ROW.metrics(), ["a", "c", "b", "d", "e"]);
    }
}
