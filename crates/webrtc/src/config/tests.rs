//! Keys of WebRTC clients.

use super::*;

fn read(text: &str) -> Result<ClientConfig, String> {
    let config: ClientConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
    config.check().map_err(|(key, _)| key.to_owned())?;
    Ok(config)
}

#[test]
fn valid_keys_parse_and_inconsistent_ones_are_refused() {
    assert_eq!(read("{}"), Ok(ClientConfig::default()));
    let config = read(
        r#"{"receive":"decrypted","room":{"publishers":30},"participate":{"bitrate":"256kbps"},
            "subscribe":"each"}"#,
    )
    .expect("valid");
    assert_eq!(config.room.as_ref().map(|room| room.publishers), Some(30));
    let written = serde_json::to_string(&config).expect("plain data");
    assert_eq!(read(&written), Ok(config));
    for (wrong, key) in [
        (r#"{"silence":"0s"}"#, "silence"),
        (r#"{"token":"two words"}"#, "token"),
        (r#"{"tokens":["one","two words"]}"#, "tokens"),
        (r#"{"tokens":["one"],"token":"two"}"#, "tokens"),
        (r#"{"user_agent":"a\nb"}"#, "user_agent"),
        (r#"{"headers":{"a":"b\r\nc: d"}}"#, "headers"),
        (r#"{"headers":{"host":"h"}}"#, "headers"),
        (r#"{"zap":{"every":"1s"}}"#, "zap"),
        (
            r#"{"zap":{"every":"1s"},"receive":"decrypted","participate":{}}"#,
            "zap",
        ),
        (r#"{"headers":{"content-length":"1"}}"#, "headers"),
        (r#"{"headers":{"User-Agent":"a"}}"#, "headers"),
        (r#"{"headers":{"sec-websocket-key":"a"}}"#, "headers"),
        (r#"{"time_codes":true}"#, "time_codes"),
        (r#"{"congestion":"follow"}"#, "congestion"),
        (
            r#"{"congestion":"follow","publish":{"file":"a.mp4"}}"#,
            "congestion",
        ),
        (
            r#"{"congestion":"follow","participate":{"simulcast":true}}"#,
            "congestion",
        ),
        (r#"{"last_n":0}"#, "last_n"),
        (r#"{"layer":"low","subscribe":"nobody"}"#, "layer"),
        (r#"{"participate":{"bitrate":"10kbps"}}"#, "participate"),
        (
            r#"{"participate":{"bitrate":"256kbps","simulcast":true}}"#,
            "participate",
        ),
        (
            r#"{"participate":{"bitrate":"2Mbps","size":"160x90","simulcast":true}}"#,
            "participate",
        ),
        (r#"{"last_n":3,"subscribe":"each"}"#, "last_n"),
        (
            r#"{"participate":{"file":"a.mp4","simulcast":true}}"#,
            "participate",
        ),
        (r#"{"rtx":true,"nack":false}"#, "rtx"),
        (r#"{"publish":{"mtu":10}}"#, "publish"),
        (r#"{"publish":{},"participate":{}}"#, "participate"),
        (r#"{"feed":{},"participate":{}}"#, "participate"),
        (r#"{"feed":{},"golden":{"chromium":1}}"#, "golden"),
        (r#"{"feed":{},"congestion":"follow"}"#, "congestion"),
        (r#"{"feed":{"simulcast":true}}"#, "feed"),
        (r#"{"publish":{"audio_codec":"opus"}}"#, "publish"),
        (
            r#"{"publish":{"video_codec":"vp8","profile":"main"}}"#,
            "publish",
        ),
        (
            r#"{"publish":{"file":"a.webm","video_codec":"vp8"}}"#,
            "publish",
        ),
        (
            r#"{"publish":{"audio":true,"audio_codec":"pcmu","talk":{}}}"#,
            "publish",
        ),
        (
            r#"{"publish":{"audio":true,"audio_codec":"opus","talk":{"speakers":0}}}"#,
            "publish",
        ),
        (
            r#"{"publish":{"audio":true,"audio_codec":"opus","talk":{"turn":"0s"}}}"#,
            "publish",
        ),
        (r#"{"golden":{"chromium":0}}"#, "golden"),
        (
            r#"{"turn":{"url":"stun:h","user":"u","password":"p"}}"#,
            "turn",
        ),
        (
            r#"{"turn":{"url":"turn:h","user":"","password":"p"}}"#,
            "turn",
        ),
    ] {
        assert_eq!(read(wrong), Err(key.to_owned()), "{wrong}");
    }
    assert!(read(r#"{"recieve":"headers"}"#).is_err());
}

#[test]
fn livekit_rooms_refuse_keys_of_other_signalling() {
    let wrong = |text: &str| {
        let config: ClientConfig = serde_json::from_str(text).expect(text);
        config.check_for_livekit().err().map(|(key, _)| key)
    };
    for (keys, key) in [
        (r#""token":"a""#, None),
        (
            r#""api_key":"a","api_secret":"b","subscribe":"nobody""#,
            None,
        ),
        (r#""api_secret":"b""#, Some("api_key")),
        (r#""token":"a","subscribe":"each""#, Some("subscribe")),
        (r#""token":"a","room":{}"#, Some("room")),
        (r#""token":"a","pin":"1""#, Some("pin")),
        (r#""token":"a","publish":{}"#, Some("publish")),
        (
            r#""token":"a","participate":{"simulcast":true},"layer":"low""#,
            None,
        ),
    ] {
        assert_eq!(wrong(&format!("{{{keys}}}")), key, "{keys}");
    }
}

#[test]
fn key_frame_feedback_depends_on_keys_and_source() {
    let config =
        |text: &str| -> ClientConfig { serde_json::from_str(text).expect("it is a configuration") };
    for (text, asks) in [
        ("{}", (true, true)),
        (r#"{"pli":false}"#, (false, true)),
        (r#"{"fir":false}"#, (true, false)),
        (r#"{"nack":false}"#, (false, false)),
    ] {
        let given = config(text).receive_feedback();
        assert_eq!((given.pli, given.fir), asks, "{text}");
    }
    for (text, makes) in [
        (r#"{"publish":{}}"#, true),
        (r#"{"participate":{},"retransmit":false}"#, true),
        (r#"{"publish":{"file":"a.webm"}}"#, false),
    ] {
        let heeded = config(text).send_feedback();
        assert_eq!((heeded.pli, heeded.fir), (makes, makes), "{text}");
    }
}
