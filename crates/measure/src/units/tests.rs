use proptest::prelude::*;

use super::*;

fn error_text(text: &str) -> String {
    parse_quantity(text).expect_err(text).to_string()
}

#[test]
fn quantities_are_read_in_base_units() {
    for (text, value, unit) in [
        ("2s", 2.0, Unit::Seconds),
        ("500ms", 0.5, Unit::Seconds),
        ("20us", 20e-6, Unit::Seconds),
        ("20µs", 20e-6, Unit::Seconds),
        ("1m30s", 90.0, Unit::Seconds),
        ("2h", 7200.0, Unit::Seconds),
        ("1h 2m 3.5s", 3723.5, Unit::Seconds),
        ("7%", 0.07, Unit::Ratio),
        ("0.5 %", 0.005, Unit::Ratio),
        ("250%", 2.5, Unit::Ratio),
        ("20Mbps", 20e6, Unit::BitsPerSecond),
        ("100kbps", 1e5, Unit::BitsPerSecond),
        ("1.5Mb/s", 1.5e6, Unit::BitsPerSecond),
        ("2136kbit/s", 2.136e6, Unit::BitsPerSecond),
        ("8bit/s", 8.0, Unit::BitsPerSecond),
        ("64KiB", 65536.0, Unit::Bytes),
        ("4MB", 4e6, Unit::Bytes),
        ("1GiB", 1_073_741_824.0, Unit::Bytes),
        ("100", 100.0, Unit::Count),
        ("0.07", 0.07, Unit::Count),
        ("1.5cores", 1.5, Unit::Cores),
    ] {
        assert_eq!(parse_quantity(text), Ok(Quantity { value, unit }), "{text}");
    }
}

#[test]
fn invalid_quantities_state_the_reason() {
    assert_eq!(error_text(""), "a quantity is missing");
    assert_eq!(error_text("-5s"), "`-5s` is below zero");
    for text in ["s", "-", ".5s", "5.s", "1m-2s", "1mx", "NaN", "inf", "--1"] {
        assert!(parse_quantity(text).is_err(), "{text}");
    }
    assert!(error_text("5 apples").starts_with("`5 apples`: unknown unit `apples`; units are"));
    assert!(error_text("5MB/s").contains("multiply bytes per second by 8"));
    assert!(error_text("1m30").contains("a unit is missing"));
    assert!(error_text("9999999999h").contains("too large"));
    assert!(error_text(&"9".repeat(1000)).len() < 200);
}

#[test]
fn each_kind_accepts_only_its_own_units() {
    let missing = "20".parse::<TimeSpan>().expect_err("no unit").to_string();
    assert_eq!(
        missing,
        "`20`: a unit is missing; a duration is written with ns, us, ms, s, m or h, such as \
         `500ms`, `60s` or `1m30s`"
    );
    let wrong = "5MB".parse::<TimeSpan>().expect_err("a size").to_string();
    assert!(wrong.starts_with("`5MB` is not a duration; "), "{wrong}");
    assert!("20".parse::<BitRate>().is_err());
    assert!("20s".parse::<BitRate>().is_err());
    assert!("20MB/s".parse::<BitRate>().is_err());
    assert!("20Mbps".parse::<Size>().is_err());
    assert!("101%".parse::<Ratio>().is_err());
    assert!("1s".parse::<Ratio>().is_err());
    assert!("5".parse::<Frequency>().is_err());
    assert!("5/d".parse::<Frequency>().is_err());
    assert_eq!("300/m".parse(), Ok(Frequency(5.0)));
    assert_eq!("5 /s".parse(), Ok(Frequency(5.0)));
    assert_eq!("7%".parse(), Ok(Ratio(0.07)));
    assert_eq!("0".parse(), Ok(Ratio(0.0)));
    for bare in ["0.07", "1", "50"] {
        let error = bare.parse::<Ratio>().expect_err(bare).to_string();
        assert!(error.contains("a unit is missing"), "{error}");
    }
    assert_eq!("1.5Mb/s".parse(), Ok(BitRate(1_500_000)));
    assert_eq!("64KiB".parse(), Ok(Size(65_536)));
    assert_eq!("0.1s".parse(), Ok(TimeSpan(Duration::from_millis(100))));
}

#[test]
fn quantities_are_formatted_as_people_write_them() {
    let span = |nanos| TimeSpan(Duration::from_nanos(nanos)).to_string();
    assert_eq!(span(0), "0s");
    assert_eq!(span(20_000), "20us");
    assert_eq!(span(1_500_000), "1.5ms");
    assert_eq!(span(90_000_000_000), "90s");
    assert_eq!(span(150_500_000_000), "2m30.5s");
    assert_eq!(span(3_600_000_000_000), "1h");
    assert_eq!(BitRate(2_136_000).to_string(), "2.136Mbps");
    assert_eq!(BitRate(1_234_567).to_string(), "1234.567kbps");
    assert_eq!(Size(65_536).to_string(), "64KiB");
    assert_eq!(Size(4_000_000).to_string(), "4MB");
    for (share, written) in [
        (0.0, "0%"),
        (0.07, "7%"),
        (1.0, "100%"),
        (0.5, "50%"),
        (0.123, "12.3%"),
        (1e-7, "0.00001%"),
        (0.007_370_957_615_074_369, "0.7370957615074369%"),
    ] {
        assert_eq!(Ratio(share).to_string(), written);
        assert_eq!(written.parse(), Ok(Ratio(share)));
    }
    assert_eq!(Ratio(0.005).to_string(), "0.5%");
    assert_eq!(Ratio(1.0).to_string(), "100%");
    // Rounds up to the next power of ten, which has too many digits.
    for text in ["999999999999999999", "999999999999999999%"] {
        let error = parse_quantity(text).expect_err("too large");
        assert!(matches!(error, QuantityError::TooLarge { .. }), "{error:?}");
    }
    assert!(parse_quantity("999999999999999000").is_ok());
    for text in ["2s", "7%", "20Mbps", "64KiB", "4MB", "100", "1.5cores"] {
        assert_eq!(
            parse_quantity(text).expect("valid").to_string(),
            text,
            "{text}"
        );
    }
}

#[test]
fn formatted_frequencies_have_no_more_digits_than_are_parsed() {
    for (text, written) in [
        ("0.0000016155/h", "0.00000000044875/s"),
        ("0.000000000000000000000001/h", "0/s"),
        ("0.0001/h", "0.00000002777777777777778/s"),
        ("1/h", "0.0002777777777777778/s"),
    ] {
        let frequency: Frequency = text.parse().expect("a frequency");
        assert_eq!(frequency.to_string(), written);
        let again: Frequency = written.parse().expect("what is written is read");
        assert_eq!(again.to_string(), written);
    }
}

proptest! {
    #[test]
    fn formatted_quantities_parse_back(nanos in 0..u64::MAX / 2, rate: u64, size: u64, often in 1e-6..1e6f64) {
        let span = TimeSpan(Duration::from_nanos(nanos));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
        let small = TimeSpan(Duration::from_nanos(nanos % 2_000_000_000));
        prop_assert_eq!(small.to_string().parse(), Ok(small));
        prop_assert_eq!(BitRate(rate).to_string().parse(), Ok(BitRate(rate)));
        prop_assert_eq!(Size(size).to_string().parse(), Ok(Size(size)));
        prop_assert_eq!(Frequency(often).to_string().parse(), Ok(Frequency(often)));
    }

    #[test]
    fn small_frequencies_parse_back(power in -30.0..-4f64) {
        let written = Frequency(10f64.powf(power)).to_string();
        let again: Frequency = written.parse().expect("what is written is read");
        prop_assert_eq!(again.to_string(), written);
    }

    #[test]
    fn ratios_with_few_digits_parse_back(digits in 0..=1_000_000_000u64) {
        let ratio = Ratio(digits as f64 / 1e9);
        prop_assert_eq!(ratio.to_string().parse(), Ok(ratio));
    }

    #[test]
    fn no_text_causes_a_panic(text in "\\PC{0,20}", number in "[0-9]{0,30}\\.?[0-9]{0,30}[a-zA-Z/%µ]{0,5}") {
        for text in [&text, &number] {
            // Both results are valid. The parser only must not panic.
            drop(parse_quantity(text));
            drop(text.parse::<TimeSpan>());
            drop(text.parse::<BitRate>());
            drop(text.parse::<Size>());
            drop(text.parse::<Ratio>());
            drop(text.parse::<Frequency>());
        }
    }
}
