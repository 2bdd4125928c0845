//! Text forms of link settings: one text per setting, the same in scenarios and on the command
//! line.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use measure::Time;
use measure::units::{Ratio, Size, TimeSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::settings::{Discipline, Jitter, Loss, Outage, Queue, QueueLimit, Shape};

/// Maximum number of packets in a list.
const LISTED_MAX: usize = 10_000;

/// Recommended parameters of CoDel (RFC 8289, 4.3 and 4.4).
const CODEL: Discipline = Discipline::CoDel {
    target: Duration::from_millis(5),
    interval: Duration::from_millis(100),
};

/// Share of packets that are held back, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeldBack {
    /// Share of the packets, 0 to 1.
    pub share: f64,
    /// Additional delay.
    pub by: Duration,
}

impl FromStr for Jitter {
    type Err = String;

    fn from_str(text: &str) -> Result<Jitter, String> {
        let mut words = text.split_whitespace();
        let spread = words.next().unwrap_or_default();
        let mut jitter = Jitter {
            spread: span(spread)?,
            ..Jitter::default()
        };
        for word in words {
            match word {
                "uniform" => jitter.shape = Shape::Uniform,
                "normal" => jitter.shape = Shape::Normal,
                "pareto" => jitter.shape = Shape::Pareto,
                "reordering" => jitter.reorders = true,
                _ => {
                    return Err(format!(
                        "`{word}` is unknown for jitter; write `3ms`, `3ms normal` or `3ms pareto reordering`, \
                         for example"
                    ));
                }
            }
        }
        Ok(jitter)
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = match self.shape {
            Shape::Uniform => "",
            Shape::Normal => " normal",
            Shape::Pareto => " pareto",
        };
        let reorders = if self.reorders { " reordering" } else { "" };
        write!(f, "{}{shape}{reorders}", TimeSpan(self.spread))
    }
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Loss, String> {
        let text = text.trim();
        let whole = |text: &str| {
            let number: Result<u64, _> = text.trim().parse();
            number.map_err(|_| format!("`{}` is not a whole number", text.trim()))
        };
        let loss = if let Some(number) = text.strip_prefix("every ") {
            match whole(number)? {
                0 => return Err("write `every 1` to lose all, or `0%` to lose none".to_owned()),
                number => Loss::Every(number),
            }
        } else if let Some(list) = text.strip_prefix("packets ") {
            let mut list: Vec<u64> = list.split(',').map(whole).collect::<Result<_, _>>()?;
            if list.len() > LISTED_MAX {
                return Err(format!("a list names at most {LISTED_MAX} packets"));
            }
            list.sort_unstable();
            Loss::List(list)
        } else if let Some((share, length)) = text.split_once("in bursts of") {
            let length: Result<f64, _> = length.trim().parse();
            let length =
                length.map_err(|_| "the burst length must be a number such as `4` or `2.5`")?;
            Loss::Bursts {
                share: ratio(share)?,
                length,
            }
        } else {
            let help = "write a share such as `0.5%`, `1% in bursts of 4`, `every 100`, or `packets 3, \
                        7, 9`";
            match ratio(text).map_err(|error| format!("{error}; {help}"))? {
                0.0 => Loss::None,
                share => Loss::Random(share),
            }
        };
        loss.check()?;
        Ok(loss)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::None => f.write_str("0%"),
            Loss::Random(share) => Ratio(*share).fmt(f),
            Loss::Bursts { share, length } => {
                write!(f, "{} in bursts of {length}", Ratio(*share))
            }
            Loss::Every(number) => write!(f, "every {number}"),
            Loss::List(list) => {
                let list: Vec<String> = list.iter().map(u64::to_string).collect();
                write!(f, "packets {}", list.join(", "))
            }
        }
    }
}

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Queue, String> {
        let mut words = text.split_whitespace();
        let limit = words.next().unwrap_or_default();
        let limit = match (limit.parse::<TimeSpan>(), limit.parse::<Size>()) {
            (Ok(time), _) => QueueLimit::Time(time.0),
            (_, Ok(size)) => QueueLimit::Bytes(size.0),
            (Err(_), Err(_)) => {
                return Err(format!(
                    "`{limit}` is neither a time nor a size; write a queue such as `100ms`, `64KiB` or \
                     `100ms codel`"
                ));
            }
        };
        let discipline = match words.collect::<Vec<_>>()[..] {
            [] => Discipline::DropTail,
            ["codel"] => CODEL,
            ["codel", target, interval] => Discipline::CoDel {
                target: span(target)?,
                interval: span(interval)?,
            },
            _ => {
                return Err(
                    "after its limit a queue takes nothing, `codel`, or `codel TARGET INTERVAL`"
                        .to_owned(),
                );
            }
        };
        Ok(Queue { limit, discipline })
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            QueueLimit::Bytes(bytes) => Size(bytes).fmt(f)?,
            QueueLimit::Time(time) => TimeSpan(time).fmt(f)?,
        }
        match self.discipline {
            Discipline::DropTail => Ok(()),
            CODEL => f.write_str(" codel"),
            Discipline::CoDel { target, interval } => {
                write!(f, " codel {} {}", TimeSpan(target), TimeSpan(interval))
            }
        }
    }
}

impl FromStr for HeldBack {
    type Err = String;

    fn from_str(text: &str) -> Result<HeldBack, String> {
        let (share, by) = text
            .split_once(" by ")
            .ok_or("write the share that is held back, and the time: `1% by 10ms`")?;
        Ok(HeldBack {
            share: ratio(share)?,
            by: span(by)?,
        })
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", Ratio(self.share), TimeSpan(self.by))
    }
}

impl FromStr for Outage {
    type Err = String;

    fn from_str(text: &str) -> Result<Outage, String> {
        let (from, until) = text
            .split_once("..")
            .ok_or("write the begin and the end of an outage: `10s..12s`")?;
        let (from, until) = (span(from)?, span(until)?);
        if from >= until {
            return Err("an outage must end after its begin".to_owned());
        }
        Ok(Outage {
            from: Time::from_start(from),
            until: Time::from_start(until),
        })
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from, self.until].map(|time| TimeSpan(time.since_start()));
        write!(f, "{from}..{until}")
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let span: Result<TimeSpan, _> = text.parse();
    span.map(|span| span.0).map_err(|error| error.to_string())
}

fn ratio(text: &str) -> Result<f64, String> {
    let share: Result<Ratio, _> = text.parse();
    share
        .map(|share| share.0)
        .map_err(|error| error.to_string())
}

macro_rules! as_text {
    ($($Type:ident, $name:literal, $expecting:literal;)*) => { $(
        impl Serialize for $Type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $Type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$Type, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $Type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$Type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }

        impl JsonSchema for $Type {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $expecting })
            }
        }
    )* };
}

as_text! {
    Jitter, "Jitter", "jitter such as `3ms`, `3ms normal` or `3ms pareto reordering`";
    Loss, "Loss", "a loss such as `0.5%`, `1% in bursts of 4`, `every 100` or `packets 3, 7, 9`";
    Queue, "Queue", "a queue such as `100ms`, `64KiB` or `100ms codel`";
    HeldBack, "HeldBack", "a share and a time such as `1% by 10ms`";
    Outage, "Outage", "two times such as `10s..12s`";
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn as_written<T: FromStr<Err = String> + fmt::Display>(text: &str) {
        let read: T = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read.to_string(), text);
    }

    #[test]
    fn written_settings_are_read_and_written_unchanged() {
        for text in [
            "3ms",
            "1.5ms normal",
            "3ms pareto reordering",
            "3ms reordering",
        ] {
            as_written::<Jitter>(text);
        }
        for text in [
            "0%",
            "0.5%",
            "1% in bursts of 4",
            "every 100",
            "packets 3, 7, 9",
        ] {
            as_written::<Loss>(text);
        }
        for text in ["100ms", "64KiB", "100ms codel", "64KiB codel 10ms 200ms"] {
            as_written::<Queue>(text);
        }
        as_written::<HeldBack>("1% by 10ms");
        as_written::<Outage>("10s..12s");
        assert_eq!("packets 9,3".parse(), Ok(Loss::List(vec![3, 9])));
    }

    #[test]
    fn invalid_texts_are_refused_with_a_hint() {
        let loss = |text: &str| text.parse::<Loss>().expect_err(text);
        assert!(loss("0.5").contains("0.5%"));
        assert!(loss("101%").contains("100%"));
        assert!(loss("every 0").contains("every 1"));
        assert!(loss("packets 1, x").contains("`x` is not a whole number"));
        assert!(loss("99% in bursts of 1").contains("at least 99.00 packets"));
        assert!("3".parse::<Jitter>().is_err());
        assert!(
            "3ms poisson"
                .parse::<Jitter>()
                .expect_err("no")
                .contains("`poisson`")
        );
        assert!("100".parse::<Queue>().is_err());
        assert!("100ms red".parse::<Queue>().is_err());
        assert!("1%".parse::<HeldBack>().is_err());
        assert!("12s..10s".parse::<Outage>().is_err());
    }

    proptest! {
        /// Any text is parsed or refused. A parsed text is written in a form that parses to the
        /// same.
        #[test]
        fn any_text_is_read_or_refused(
            text in prop_oneof![
                any::<String>(),
                "[0-9.]{1,6}(%|ms|s|KiB)?( in bursts of |\\.\\.| by | codel | normal | )[0-9.]{0,6}(%|ms|s)?",
                "(every|packets) [0-9, ]{0,20}",
            ],
        ) {
            fn again<T: FromStr<Err = String> + fmt::Display + PartialEq + fmt::Debug>(text: &str) {
                let Ok(read) = text.parse::<T>() else { return };
                let written = read.to_string();
                let back: T = written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
                assert_eq!(back.to_string(), written, "{text}");
            }
            again::<Jitter>(&text);
            again::<Loss>(&text);
            again::<Queue>(&text);
            again::<HeldBack>(&text);
            again::<Outage>(&text);
        }
    }
}
