//! Texts that users write or servers send: scenarios, entries of known servers, thresholds,
//! quantities, URLs.

use std::fmt::Display;
use std::str::FromStr;

use kit::http1;
use kit::source::Destination as SourceTarget;
use measure::Threshold;
use measure::units::{BitRate, Frequency, Ratio, Size, TimeSpan, parse_quantity};
use protocols::PROTOCOLS;
use scenario::{Overrides, Plan, ServerEntry};

use crate::input::text;

/// Parses a scenario. If the first line starts with `#set `, it is an override.
pub(super) fn scenario(bytes: &[u8]) {
    let all = text(bytes);
    let mut overrides = Overrides::default();
    let mut body: &str = &all;
    if let Some(rest) = body.strip_prefix("#set ") {
        let (line, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        overrides.set.push(line.to_owned());
        body = rest;
    }
    match Plan::parse("fuzz.yaml", body, &overrides) {
        Ok(Plan::Run(scenario)) => {
            let description = scenario.describe();
            assert!(!description.lines().is_empty());
            let _ = serde_json::to_string(&*scenario).expect("a scenario is plain data");
        }
        Ok(Plan::Series(series)) => {
            assert!(series.runs() > 0);
            let _ = series.scenario(0).expect("each run was checked");
        }
        Ok(Plan::Capacity(search)) => {
            let settings = search.settings();
            let first = search.scenario(0, settings.from, settings.hold);
            let _ = first.expect("the first trial was checked");
            assert!(!search.lines().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses the file of a known server.
pub(super) fn server_entry(bytes: &[u8]) {
    if let Err(error) = ServerEntry::parse("fuzz.yaml", &text(bytes)) {
        assert!(!error.to_string().is_empty());
    }
}

/// Checks that a displayed value parses to the same value.
fn check_round_trip<T: FromStr + Display>(line: &str) {
    if let Ok(value) = line.parse::<T>() {
        let written = value.to_string();
        let Ok(again) = written.parse::<T>() else {
            panic!("{line:?} is displayed as {written:?}, which cannot be parsed");
        };
        assert_eq!(again.to_string(), written, "{line:?}");
    }
}

/// Parses thresholds and quantities, one per line.
pub(super) fn thresholds(bytes: &[u8]) {
    let all = text(bytes);
    let subjects = [
        ("viewers", PROTOCOLS[0].catalogue),
        ("server", measure::SERVER_CATALOGUE),
        ("tester", measure::TESTER_CATALOGUE),
    ];
    for line in all.lines() {
        match Threshold::parse(line) {
            Ok(threshold) => {
                let again = Threshold::parse(threshold.text()).expect("it was parsed before");
                assert_eq!(again.text(), threshold.text());
                let _ = threshold.check(&subjects);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        if let Ok(quantity) = parse_quantity(line) {
            let written = quantity.to_string();
            assert!(parse_quantity(&written).is_ok(), "{line:?}: {written:?}");
        }
        check_round_trip::<TimeSpan>(line);
        check_round_trip::<BitRate>(line);
        check_round_trip::<Size>(line);
        check_round_trip::<Ratio>(line);
        check_round_trip::<Frequency>(line);
    }
}

/// Parses URLs of each protocol, one per line. Each line is also a redirect target of the first
/// one.
pub(super) fn urls(bytes: &[u8]) {
    let all = text(bytes);
    let first = all.lines().next().unwrap_or_default();
    let (rtsp_first, http_first) = (rtsp::url::Url::parse(first), http1::Url::parse(first));
    for line in all.lines() {
        if let Ok(url) = rtsp::url::Url::parse(line) {
            assert!(!url.host().is_empty() && url.port() > 0);
            let again = rtsp::url::Url::parse(url.as_str()).expect("it was parsed before");
            // Requests contain no zone.
            let zone = url.host().strip_prefix(again.host());
            assert!(zone.is_some_and(|zone| zone.is_empty() || zone.starts_with('%')));
            assert_eq!(again.port(), url.port());
            assert!(rtsp::url::same_stream(url.as_str(), url.as_str()));
            let _ = (url.stream_name(), url.target().len());
            let base = rtsp::url::control_base(Some(line), None, &url);
            let control = rtsp::url::resolve_control(&base, Some(line));
            assert!(control.len() <= base.len() + line.len() + 1);
            assert!(!url.to_string().contains('\n'));
        }
        if let Ok(url) = http1::Url::parse(line) {
            let shown = url.to_string();
            let again = http1::Url::parse(&shown).expect("it was parsed before");
            // Requests contain no zone.
            assert!(
                again.is_same_resource(&url) || url.host().contains('%'),
                "{shown}"
            );
            assert_eq!(again.target(), url.target());
            let request = http1::write_request("GET", &url, http1::Version::Http11, &[]);
            let ends = request.windows(2).filter(|end| end == b"\r\n").count();
            assert_eq!(ends, 3, "a URL must not add lines to a request");
        }
        if let Ok(Ok(url)) = rtsp_first.as_ref().map(|url| url.redirect(line)) {
            assert!(url.port() > 0);
        }
        if let Ok(Ok(url)) = http_first.as_ref().map(|url| url.redirect(line)) {
            assert!(url.port() > 0);
        }
        if let Ok(target) = messages::url::Target::parse(line) {
            assert!(!target.to_string().contains('\n'));
            assert!(target.path().is_none() || !target.is_secure());
        }
        check_round_trip::<SourceTarget>(line);
        if let Ok(urls) = scenario::expand_urls(&[line.to_owned()]) {
            assert!(!urls.is_empty());
        }
        let _ = scenario::mask_text(line);
    }
}
