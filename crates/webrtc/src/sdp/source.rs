//! Source that this side describes in a section.

use super::description::{MediaSection, Rid, SourceAttributes, SourceGroup};

/// A source of this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSource {
    pub ssrc: u32,
    /// SSRC of its retransmissions.
    pub rtx_ssrc: Option<u32>,
    /// Canonical name, the same for all sources of a client (RFC 7022).
    pub cname: String,
    /// Media stream ID, the first part of the msid.
    pub stream_id: String,
    /// Track ID, the second part of the msid.
    pub track_id: String,
    /// Simulcast layers by RID, best first; empty without simulcast.
    pub layers: Vec<String>,
}

impl LocalSource {
    /// Adds the attributes of the source to a section. Simulcast layers are identified by RID, and
    /// their SSRCs are not signalled (RFC 8853).
    pub(super) fn add_to_section(&self, section: &mut MediaSection) {
        let msid = format!("{} {}", self.stream_id, self.track_id);
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
            .filter(|_| section.codecs.iter().any(|codec| codec.has_name("rtx")))
        {
            section.ssrcs.push(source(rtx));
            section.ssrc_groups.push(SourceGroup {
                semantics: "FID".to_owned(),
                ssrcs: vec![self.ssrc, rtx],
            });
        }
    }
}
