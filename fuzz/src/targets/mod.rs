//! The fuzz targets. A target accepts any bytes and panics if an invariant does not hold.

mod hls;
mod http;
mod media;
mod messages;
mod rtmp;
mod rtsp;
mod runs;
mod srt;
mod srt_handshake;
mod srt_session;
mod texts;
mod webrtc;
mod webrtc_client;
mod webrtc_room;
mod webrtc_server;
mod webrtc_turn;

/// Processes any bytes.
pub(crate) type Target = fn(&[u8]);

/// All targets by name.
pub(crate) const TARGETS: [(&str, Target); 45] = [
    ("apart_lines", runs::apart_lines),
    ("apart_session", runs::apart_session),
    ("exporter_text", runs::exporter_text),
    ("frames", messages::frames),
    ("hls_client", hls::client),
    ("hls_playlist", hls::playlist),
    ("hls_server", hls::server),
    ("http1", http::http1),
    ("media_file", media::media_file),
    ("netlink", runs::netlink),
    ("relay_request", http::relay_request),
    ("ring_block", net::ring::read_any),
    ("rtcp", media::rtcp),
    ("rtmp_amf", rtmp::amf),
    ("rtmp_chunks", rtmp::chunks),
    ("rtmp_handshake", rtmp::handshake),
    ("rtmp_session", rtmp::session),
    ("rtp", media::rtp),
    ("rtsp", rtsp::rtsp),
    ("rtsp_headers", rtsp::headers),
    ("runfile", runs::runfile),
    ("runfile_blob", runs::blob),
    ("scenario", texts::scenario),
    ("sdp", rtsp::sdp),
    ("server_entry", texts::server_entry),
    ("srt_handshake", srt_handshake::handshake),
    ("srt_packets", srt::packets),
    ("srt_receiver", srt::receiver),
    ("srt_sender", srt::sender),
    ("srt_session", srt_session::session),
    ("templates", messages::templates),
    ("thresholds", texts::thresholds),
    ("ts", media::ts),
    ("ts_file", media::ts_file),
    ("ts_sections", kit::mediagen::ts::read_any),
    ("urls", texts::urls),
    ("webrtc_client", webrtc_client::client),
    ("webrtc_feedback", webrtc::feedback),
    ("webrtc_peer", webrtc::peer),
    ("webrtc_room", webrtc_room::room),
    ("webrtc_sdp", webrtc::sdp),
    ("webrtc_server", webrtc_server::server),
    ("webrtc_srtp", webrtc::srtp),
    ("webrtc_turn", webrtc_turn::turn),
    ("websocket", messages::websocket),
];
