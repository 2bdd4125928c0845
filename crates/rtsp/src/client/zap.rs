//! The client as the player of one of several channels.

use measure::Time;

use super::Client;
use kit::media::rtp::{RtpReceiver, VideoCodec};
use kit::media::sdp::{MediaKind, MediaSection};
use kit::zapping::Viewer;
use session::Sinks;

/// Returns the video codec of the preferred payload type; `None` if its key frames cannot be
/// detected.
pub(super) fn video_codec(media: &MediaSection) -> Option<VideoCodec> {
    let encoding = media.formats.first()?.encoding.as_deref()?;
    VideoCodec::from_name(encoding)
}

impl Client {
    /// Makes the client play a later channel of a client that changes channel.
    pub fn for_later_channel(mut self) -> Client {
        self.starts.is_later_channel = true;
        self
    }
}

impl Viewer for Client {
    fn first_picture(&self, sinks: &mut Sinks) -> Option<Time> {
        let is_video = |kind| kind == MediaKind::Video;
        let has_video = self.streams.iter().any(|stream| is_video(stream.kind));
        let shown = self.streams.iter();
        let shown = shown.filter(|stream| !has_video || is_video(stream.kind));
        let arrivals = shown.filter_map(|stream| {
            let receiver = sinks.get::<RtpReceiver>(stream.sink);
            receiver.first_picture()
        });
        arrivals.min()
    }
}
