//! What this side sends in a section.

use super::description::{MediaSection, Rid, SourceAttributes, SourceGroup};

/// A source of this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSource {
    /// Its synchronisation source.
    pub ssrc: u32,
    /// That of its retransmissions.
    pub rtx_ssrc: Option<u32>,
    /// The canonical name, alike for all sources of a client (RFC 7022).
    pub cname: String,
    /// The stream that it belongs to.
    pub stream: String,
    /// The track that it is.
    pub track: String,
    /// Layers of a simulcast, the best first; empty where there is one alone.
    pub layers: Vec<String>,
}

impl LocalSource {
    /// Says it in a section. Layers of a simulcast are named by RID: their sources are not said
    /// (RFC 8853).
    pub(super) fn describe(&self, section: &mut MediaSection) {
        let msid = format!("{} {}", self.stream, self.track);
        section.msid = Some(msid.clone());
        if !self.layers.is_empty() {
            let rid = |id: &String| Rid {
                id: id.clone(),
                sends: true,
                restrictions: String::new(),
            };
            section.rids = self.layers.iter().map(rid).collect();
            section.simulcast = Some(format!("send {}", self.layers.join(";")));
            return;
        }
        let source = |ssrc| SourceAttributes {
            ssrc,
            cname: Some(self.cname.clone()),
            msid: Some(msid.clone()),
        };
        section.ssrcs.push(source(self.ssrc));
        if let Some(rtx) = self
            .rtx_ssrc
            .filter(|_| section.codecs.iter().any(|codec| codec.is("rtx")))
        {
            section.ssrcs.push(source(rtx));
            section.ssrc_groups.push(SourceGroup {
                semantics: "FID".to_owned(),
                ssrcs: vec![self.ssrc, rtx],
            });
        }
    }
}
