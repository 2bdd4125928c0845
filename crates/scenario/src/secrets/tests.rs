use proptest::prelude::*;

use super::*;
use crate::masking::{is_secret_key, mask_in_place};
use crate::overrides::Overrides;

#[test]
fn recognizable_secrets_are_masked() {
    for (text, masked) in [
        ("rtsp://me:p%40ss@h:554/a", "rtsp://me:***@h:554/a"),
        ("`http://u:a@b@h/` failed", "`http://u:***@h/` failed"),
        ("rtsp://me@h/a", "rtsp://me@h/a"),
        ("rtsp://:only@h/a", "rtsp://:***@h/a"),
        ("rtsp://h/a@b:c", "rtsp://h/a@b:c"),
        (
            "http://h/a?x=1&token=abc&y=2",
            "http://h/a?x=1&token=***&y=2",
        ),
        (
            "http://h/?X-Amz-Signature=0f#t",
            "http://h/?X-Amz-Signature=***#t",
        ),
        (
            "GET /a?key=1;auth=2 said 401",
            "GET /a?key=***;auth=*** said 401",
        ),
        ("http://u:p@h/?password=", "http://u:***@h/?password="),
        (
            "a\r\nauthorization: Basic bTpw\r\nb",
            "a\r\nauthorization: ***\r\nb",
        ),
        (
            "http://h/?keyframe=1&tokens=2",
            "http://h/?keyframe=1&tokens=***",
        ),
        ("viewers.loss < 1%", "viewers.loss < 1%"),
        ("`rtsp://u:s/p#w@t@h:1/a`: no", "`rtsp://u:***@h:1/a`: no"),
        (
            "rtsp://h:554/a@b rtsp://[::1]/a@b",
            "rtsp://h:554/a@b rtsp://[::1]/a@b",
        ),
        ("http://h/a:b@c", "http://h/a:b@c"),
        (
            "http://h/?authkey=1&access=2&st=3&sid=4&state=5",
            "http://h/?authkey=***&access=***&st=***&sid=***&state=5",
        ),
        ("turn:me:S@host:3478 failed", "turn:me:***@host:3478 failed"),
        ("turn:host:3478", "turn:host:3478"),
        (
            "srt://h:8890?streamid=read:x:user:PASS",
            "srt://h:8890?streamid=read:x:user:***",
        ),
        (
            "srt://h?streamid=publish%3Ax%3Auser%3AP%40S&latency=1",
            "srt://h?streamid=publish%3Ax%3Auser%3A***&latency=1",
        ),
        ("srt://h?streamid=read:x", "srt://h?streamid=read:x"),
        (
            "srt://h?streamid=#!::r=x,token=abc,m=request",
            "srt://h?streamid=#!::r=x,token=***,m=request",
        ),
        ("x Password='a b' pwd=c, d", "x Password='***' pwd=***, d"),
        (
            "said Bearer ab.c1, Basic bTpw",
            "said Bearer ***, Basic ***",
        ),
        (
            "Basic authentication, Basic realm=\"x\"",
            "Basic authentication, Basic realm=\"x\"",
        ),
    ] {
        assert_eq!(mask_text(text), masked);
        assert_eq!(mask_in_place(text).len(), text.len());
    }
    assert_eq!(mask_in_place("rtsp://u:pé@h/a"), "rtsp://u:***@h/a");
}

#[test]
fn command_options_are_masked() {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    for (command, masked) in [
        ("s --password x --port 1", "s --password *** --port 1"),
        ("s --api-key=x -v", "s --api-key=*** -v"),
        ("s --token -v", "s --token -v"),
        (
            "s --user me:x -u you:y --user=z:w",
            "s --user me:*** -u you:*** --user=z:***",
        ),
        ("s --user me --port 1", "s --user me --port 1"),
        ("env TOKEN=x s", "env TOKEN=*** s"),
        ("s -i rtsp://u:x@h/a?b=1", "s -i rtsp://u:***@h/a?b=1"),
    ] {
        assert_eq!(mask_command(&words(command)).join(" "), masked);
    }
}

#[test]
fn secret_keys_are_recognized() {
    for (key, secret) in [
        ("server.environment.MODE", true),
        ("server.environment", false),
        ("clients.viewers.headers.X-Any", true),
        ("clients.viewers.headers.Range", false),
        ("clients.viewers.media.secret", true),
        ("clients.chat.greeting.0.send", true),
        ("clients.viewers.load.clients", false),
        ("clients.environment.load.clients", false),
    ] {
        assert_eq!(is_secret_key(key), secret, "{key}");
    }
}

/// A scenario with a secret in every place that can have one.
pub(crate) const EVERYWHERE: &str = r#"
server:
  command: [ffmpeg, -i, "rtsp://me:SECRET01@h/a", --password, SECRET02, --token=SECRET03]
  environment: {ANY: SECRET04, API_KEY: S05!, SIZE: "4096"}
clients:
  viewers:
    urls: ["rtsp://me:SECRET%306@127.0.0.1:9/a?token=SECRET07"]
    load: {clients: 1}
    media: {receiver: "127.0.0.1:9", secret: SECRET08}
  relay:
    urls: ["http://127.0.0.1:9/a"]
    headers: {Authorization: Bearer SECRET09, X-Any: SECRET10, Range: bytes=0-}
    load: {clients: 1}
  chat:
    urls: ["tcp://127.0.0.1:9"]
    greeting: [{send: "LOGIN SECRET11"}, {expect: OK}]
    load: {clients: 1}
"#;

fn everywhere() -> Scenario {
    protocols::install();
    Scenario::parse("test", EVERYWHERE, &Overrides::default())
        .unwrap_or_else(|error| panic!("{:?}", error.problems()))
}

fn secrets() -> impl Iterator<Item = String> {
    (1..12).map(|n| match n {
        5 => "S05!".to_owned(),
        6 => "SECRET%306".to_owned(),
        n => format!("SECRET{n:02}"),
    })
}

#[test]
fn shown_scenario_has_no_secrets() {
    let shown = everywhere().shown();
    let text = shown.to_string() + &everywhere().describe().lines().join("\n");
    for secret in secrets().chain(["SECRET06".to_owned()]) {
        assert!(!text.contains(&secret), "{secret} in {text}");
    }
    assert_eq!(shown["server"]["environment"]["ANY"], MASK);
    assert_eq!(
        shown["populations"][1]["config"]["http-ts"]["headers"]["Range"],
        "bytes=0-"
    );
    assert_eq!(
        shown["populations"][0]["urls"][0],
        "rtsp://me:***@127.0.0.1:9/a?token=***"
    );
}

#[test]
fn server_output_is_masked() {
    let secrets_of = everywhere().secrets();
    let masked: Vec<String> = secrets()
        .filter(|secret| secret != "SECRET08")
        .chain(["SECRET06".to_owned()])
        .collect();
    for secret in masked {
        let masked = secrets_of.mask(&format!("login with ({secret}) failed"));
        assert_eq!(masked, "login with (***) failed");
    }
    let open = "4096 bytes of S05!x, ANY more";
    assert_eq!(secrets_of.mask(open), open);
}

#[test]
fn varied_secrets_are_masked_and_numbered() {
    protocols::install();
    let text = "vary: {server.environment.TOKEN: [SECRET01, SECRET02], \
                clients.a.urls: [['rtsp://u:SECRET03@h/a']]}\n\
                server: {command: [x]}\n\
                clients: {a: {protocol: rtsp, urls: [], load: {clients: 1}}}\n";
    let plan = crate::Plan::parse("test", text, &Overrides::default());
    let crate::Plan::Series(series) = plan.unwrap_or_else(|e| panic!("{:?}", e.problems())) else {
        panic!("it varies");
    };
    let values: Vec<String> = (0..2)
        .map(|run| series.settings(run)[0].value.clone())
        .collect();
    assert_eq!(values, ["***1", "***2"]);
    let lines = series.lines().join("\n");
    let kept = series.scenario(1).unwrap().shown().to_string();
    assert!(
        !lines.contains("SECRET") && !kept.contains("SECRET"),
        "{lines}\n{kept}"
    );
    let server = series.scenario(1).unwrap().server.unwrap();
    assert_eq!(server.environment["TOKEN"], "SECRET02");
}

#[test]
fn one_liner_name_has_no_secrets() {
    protocols::install();
    let line = crate::OneLiner {
        urls: vec!["rtsp://me:SECRET01@h/a?token=SECRET02".to_owned()],
        ..crate::OneLiner::default()
    };
    let scenario = Scenario::from_one_liner(&line, &Overrides::default()).unwrap();
    assert!(!scenario.shown().to_string().contains("SECRET"));
    assert!(scenario.populations[0].urls[0].contains("SECRET01"));
}

#[test]
fn unencoded_password_is_reported_as_the_mistake() {
    protocols::install();
    let text = "clients: {a: {urls: ['rtsp://u:sec/SECRET@h:1/a'], load: {clients: 1}}}";
    let error = Scenario::parse("test", text, &Overrides::default()).unwrap_err();
    let [problem] = error.problems() else {
        panic!("{error:?}");
    };
    assert!(
        problem.message().contains("rtsp://u:***@h:1/a"),
        "{problem:?}"
    );
    let help = problem.help_text().unwrap();
    assert!(help.contains("%2F") && help.contains("%23") && help.contains("%40"));
}

#[test]
fn error_messages_contain_no_password() {
    protocols::install();
    let text =
        "clients: {a: {urls: ['rtspx://u:SECRET01@h/a?token=SECRET02'], load: {clients: 1}}}";
    let error = Scenario::parse("test", text, &Overrides::default()).unwrap_err();
    assert!(
        !format!("{error} {error:?}").contains("SECRET"),
        "{error:?}"
    );
    let overrides = Overrides {
        set: vec!["server.environment.A.B=SECRET01".to_owned()],
        ..Overrides::default()
    };
    let text = "server: {command: [x], environment: {A: b}}\n\
                clients: {a: {urls: ['rtsp://h/a'], load: {clients: 1}}}";
    let error = Scenario::parse("test", text, &overrides).unwrap_err();
    assert!(
        !format!("{error} {error:?}").contains("SECRET"),
        "{error:?}"
    );
}

#[test]
fn masked_part_that_joins_its_neighbours_is_masked_again() {
    assert_eq!(mask_text("?token=://:;@"), "?token=***");
}

proptest! {
    #[test]
    fn masking_is_idempotent(
        text in "([a-z]{0,3}(://|:|@|/|\\?|&|token=|;|Authorization: |\\*{3}|é| ){0,3}){0,8}"
    ) {
        let masked = mask_text(&text);
        prop_assert_eq!(mask_text(&masked), masked);
    }

    #[test]
    fn no_password_is_left(password in "[!-.0-9:;=A-Z_a-z~]{4,20}", path in "[a-z/]{0,8}") {
        let url = format!("rtsp://user:{password}@host/{path}");
        let text = format!("cannot play {url}: 404");
        prop_assume!(!password.contains(['"', '`', '<', '>', '#', '?', '/']));
        let left = mask_text(&text).contains(&format!("{password}@"));
        prop_assert!(!left, "{}", text);
    }
}

#[test]
fn misspelt_keys_of_secrets_are_masked_in_excerpts() {
    use crate::masking::mask_excerpt;
    for line in [
        "pasword: hunter2",
        "tokn: hunter2",
        "pin: hunter2",
        "connect: { a: hunter2 }",
    ] {
        let shown = mask_excerpt(line);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(mask_excerpt("duration: 10s"), "duration: 10s");
}
