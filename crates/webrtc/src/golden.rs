//! Web pages with which a real browser does what the clients of a population do: it plays from
//! WHEP, watches a mount point of Janus, or joins a room of Janus. Each page is one document that
//! needs only the server.

use serde_json::{Value, json};

use super::config::ClientConfig;
use super::url::{Resource, Url};
use kit::browser::Page;

const HEAD: &str = include_str!("golden/page.html");
const COMMON: &str = include_str!("golden/page.js");
const WHEP: &str = include_str!("golden/whep.js");
const JANUS: &str = include_str!("golden/janus.js");

/// Placeholder in the head for the page's plan.
const PLAN_PLACEHOLDER: &str = "{PLAN}";

/// Video size if the scenario gives none.
const WIDTH: u32 = 640;
const HEIGHT: u32 = 360;

/// Returns the page for a browser that connects to this URL.
///
/// # Errors
/// A browser cannot do what the population does.
pub(super) fn page(config: &ClientConfig, url: &str) -> Result<Page, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    if config.tls.ca.is_some() && url.endpoint.is_secure() {
        return Err(
            "golden browsers do not use `tls.ca`: add the CA to the trusted certificates of this \
             machine, or set `tls: {verify: false}`"
                .to_owned(),
        );
    }
    if !config.headers.is_empty() {
        return Err(
            "golden browsers do not send `headers`: put them into another population".to_owned(),
        );
    }
    if url.long_poll {
        return Err("golden browsers join rooms over a WebSocket: use janus+ws".to_owned());
    }
    let (authority, target) = (url.endpoint.authority(), url.endpoint.target());
    let address = |scheme: &str| {
        let secure = if url.endpoint.is_secure() { "s" } else { "" };
        format!("{scheme}{secure}://{authority}{target}")
    };
    let (script, mut plan) = match &url.resource {
        Resource::Whip => {
            return Err(
                "golden browsers do not publish over WHIP: they play or join rooms".to_owned(),
            );
        }
        Resource::LiveKit(_) => {
            return Err("golden browsers do not support LiveKit rooms".to_owned());
        }
        Resource::Whep => (WHEP, json!({"url": address("http")})),
        Resource::Mountpoint(id) => (
            JANUS,
            json!({"url": address("ws"), "mountpoint": id.to_json()}),
        ),
        Resource::Room(id) => (JANUS, room(config, id.to_json(), &address("ws"))),
    };
    let token = config.token.as_ref().or(config.tokens.first());
    for (key, secret) in [
        ("token", token),
        ("api_secret", config.api_secret.as_ref()),
        ("pin", config.pin.as_ref()),
    ] {
        if let Some(secret) = secret {
            plan[key] = secret.as_str().into();
        }
    }
    if let Some(turn) = &config.turn {
        plan["turn"] = json!({
            "urls": turn.url,
            "username": turn.user,
            "credential": turn.password,
        });
    }
    Ok(Page {
        html: document(&plan, script),
        is_insecure: !config.tls.verify,
    })
}

fn room(config: &ClientConfig, id: Value, url: &str) -> Value {
    let publish = config.participate.as_ref().map(|source| {
        let size = source.size.map(|size| (size.width, size.height));
        let (width, height) = size.unwrap_or((WIDTH, HEIGHT));
        let rate = source.generated_frame_rate();
        json!({
            "bitrate": source.generated_bitrate(),
            "width": width,
            "height": height,
            "rate": f64::from(rate.numerator()) / f64::from(rate.denominator()),
            "audio": source.audio.unwrap_or(false),
        })
    });
    json!({
        "url": url,
        "room": id,
        "made": config.room_request(),
        "publish": publish,
        "receive": config.receives_others(),
    })
}

fn document(plan: &Value, script: &str) -> String {
    // The plan must not contain the end tag of the script.
    let plan = plan.to_string().replace('<', "\\u003c");
    let head = HEAD.replace(PLAN_PLACEHOLDER, &plan);
    format!("{head}{COMMON}{script}</script>\n</body>\n</html>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ClientConfig {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn page_contains_its_url_and_plan() {
        let whep = page(
            &config(r#"{"token":"a<b"}"#),
            "whep+http://127.0.0.1:8889/cam/whep",
        );
        let html = whep.expect("it plays").html;
        assert!(html.contains(r#""url":"http://127.0.0.1:8889/cam/whep""#));
        assert!(html.contains(r#""token":"a\u003cb""#), "no tag begins");
        assert!(html.contains("main(join);") && !html.contains(PLAN_PLACEHOLDER));
        let room = page(
            &config(
                r#"{"participate":{"bitrate":"256kbps","audio":true},"room":{},"pin":"1",
                    "tls":{"verify":false}}"#,
            ),
            "janus+wss://h/j/videoroom/77",
        );
        let room = room.expect("it takes part");
        assert!(room.is_insecure);
        for part in [
            r#""room":77"#,
            r#""url":"wss://h/j""#,
            r#""bitrate":256000"#,
            r#""videocodec":"h264,vp8,vp9""#,
            r#""pin":"1""#,
            r#""receive":true"#,
        ] {
            assert!(room.html.contains(part), "{part}");
        }
        let turn = r#"{"turn":{"url":"turn:t:9","user":"u","password":"p"}}"#;
        let relayed = page(&config(turn), "whep+http://h/a/whep").expect("it plays");
        let server = r#""turn":{"credential":"p","urls":"turn:t:9","username":"u"}"#;
        assert!(relayed.html.contains(server));
        let mount = page(&config("{}"), "janus+ws://h/streaming/1");
        assert!(
            mount
                .expect("it watches")
                .html
                .contains(r#""mountpoint":1"#)
        );
    }

    #[test]
    fn unsupported_population_is_refused() {
        for (keys, url) in [
            ("{}", "whip+http://h/a/whip"),
            (r#"{"token":"a"}"#, "livekit+ws://h/room"),
            (r#"{"tls":{"ca":"ca.pem"}}"#, "whep+https://h/a/whep"),
            ("{}", "http://h/"),
            ("{}", "janus+http://h/videoroom/1"),
            (r#"{"headers":{"a":"b"}}"#, "whep+http://h/a/whep"),
        ] {
            assert!(page(&config(keys), url).is_err(), "{url}");
        }
    }
}
