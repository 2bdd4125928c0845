//! Exchange of offer and answer between a subscriber and a server.

use std::time::Duration;

use serde_json::{Value, json};
use str0m::Rtc;
use str0m::change::{SdpAnswer, SdpOffer};
use str0m::media::{Direction, MediaKind};
use ureq::Agent;

use crate::Failure;

/// Time limit of a server's answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of answers without an offer: Janus may send keep-alives first.
const IDLE: usize = 3;

pub struct Signalling {
    agent: Agent,
    kind: Kind,
}

enum Kind {
    Whep { url: String },
    Janus { api: String, mount_point: u64 },
}

impl Signalling {
    pub fn new(kind: &str, url: &str) -> Result<Self, Failure> {
        let kind = match kind {
            "whep" => Kind::Whep { url: url.into() },
            "janus" => {
                let (api, mount_point) = url.rsplit_once('/').ok_or("no mount point in the URL")?;
                Kind::Janus {
                    api: api.into(),
                    mount_point: mount_point.parse()?,
                }
            }
            other => return Err(format!("`{other}` is neither `whep` nor `janus`").into()),
        };
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .build()
            .into();
        Ok(Self { agent, kind })
    }

    /// Exchanges offer and answer. Does not wait for ICE and DTLS.
    pub fn connect(&self, rtc: &mut Rtc) -> Result<(), Failure> {
        match &self.kind {
            Kind::Whep { url } => self.whep(rtc, url),
            Kind::Janus { api, mount_point } => self.janus(rtc, api, *mount_point),
        }
    }

    fn whep(&self, rtc: &mut Rtc, url: &str) -> Result<(), Failure> {
        let mut change = rtc.sdp_api();
        change.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        let (offer, pending) = change.apply().ok_or("there is nothing to offer")?;
        let request = self
            .agent
            .post(url)
            .header("Content-Type", "application/sdp");
        let answer = request
            .send(offer.to_sdp_string())?
            .body_mut()
            .read_to_string()?;
        rtc.sdp_api()
            .accept_answer(pending, SdpAnswer::from_sdp_string(&answer)?)?;
        Ok(())
    }

    /// The server ends the session after a minute without a request.
    fn janus(&self, rtc: &mut Rtc, api: &str, mount_point: u64) -> Result<(), Failure> {
        let session = self.ask(api, json!({ "janus": "create" }))?;
        let session = format!("{api}/{}", id(&session)?);
        let plugin = "janus.plugin.streaming";
        let handle = self.ask(&session, json!({ "janus": "attach", "plugin": plugin }))?;
        let handle = format!("{session}/{}", id(&handle)?);
        let watch = json!({ "request": "watch", "id": mount_point });
        self.ask(&handle, json!({ "janus": "message", "body": watch }))?;
        let offer = self.offer(&session)?;
        let answer = rtc
            .sdp_api()
            .accept_offer(SdpOffer::from_sdp_string(&offer)?)?;
        let answer = json!({ "type": "answer", "sdp": answer.to_sdp_string() });
        let start = json!({ "janus": "message", "body": { "request": "start" }, "jsep": answer });
        self.ask(&handle, start)?;
        Ok(())
    }

    /// Polls for events until one contains an offer.
    fn offer(&self, session: &str) -> Result<String, Failure> {
        for _ in 0..IDLE {
            let text = self
                .agent
                .get(session)
                .call()?
                .body_mut()
                .read_to_string()?;
            let event: Value = serde_json::from_str(&text)?;
            if let Some(offer) = event["jsep"]["sdp"].as_str() {
                return Ok(offer.into());
            }
            if event["janus"] != "keepalive" {
                return Err(format!("Janus offers nothing: {text}").into());
            }
        }
        Err("Janus offers nothing".into())
    }

    fn ask(&self, url: &str, mut request: Value) -> Result<Value, Failure> {
        request["transaction"] = "peer".into();
        let text = self
            .agent
            .post(url)
            .send(request.to_string())?
            .body_mut()
            .read_to_string()?;
        let answer: Value = serde_json::from_str(&text)?;
        match answer["janus"].as_str() {
            Some("success" | "ack") => Ok(answer),
            _ => Err(format!("Janus answers {text}").into()),
        }
    }
}

fn id(answer: &Value) -> Result<u64, Failure> {
    answer["data"]["id"]
        .as_u64()
        .ok_or_else(|| "Janus gives no id".into())
}
