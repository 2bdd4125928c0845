//! Messages of LiveKit's signalling, as far as they are used here. Numbers and types of fields are
//! those of `livekit_rtc.proto` and `livekit_models.proto` in livekit/protocol. Undeclared fields
//! are ignored.

use prost::{Enumeration, Message, Oneof};

/// Message of a client.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SignalRequest {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4, 7, 8, 16")]
    pub(super) message: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    /// Offer of the publisher's PeerConnection.
    #[prost(message, tag = "1")]
    Offer(SessionDescription),
    /// Answer of the subscriber's PeerConnection.
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    #[prost(message, tag = "3")]
    Trickle(TrickleRequest),
    #[prost(message, tag = "4")]
    AddTrack(AddTrackRequest),
    #[prost(message, tag = "7")]
    TrackSettings(UpdateTrackSettings),
    #[prost(message, tag = "8")]
    Leave(LeaveRequest),
    #[prost(message, tag = "16")]
    Ping(Ping),
}

/// Message of a server.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SignalResponse {
    #[prost(
        oneof = "Response",
        tags = "1, 2, 3, 4, 5, 6, 8, 9, 13, 17, 20, 21, 22"
    )]
    pub(super) message: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Join(JoinResponse),
    /// Answer of the publisher's PeerConnection.
    #[prost(message, tag = "2")]
    Answer(SessionDescription),
    /// Offer of the subscriber's PeerConnection.
    #[prost(message, tag = "3")]
    Offer(SessionDescription),
    #[prost(message, tag = "4")]
    Trickle(TrickleRequest),
    #[prost(message, tag = "5")]
    Update(ParticipantUpdate),
    #[prost(message, tag = "6")]
    TrackPublished(TrackPublishedResponse),
    #[prost(message, tag = "8")]
    Leave(LeaveRequest),
    /// Mutes or unmutes a track of the client.
    #[prost(message, tag = "9")]
    Mute(MuteTrackRequest),
    #[prost(message, tag = "13")]
    StreamState(StreamStateUpdate),
    /// A track of the client was unpublished.
    #[prost(message, tag = "17")]
    TrackUnpublished(TrackUnpublishedResponse),
    #[prost(message, tag = "20")]
    Pong(Pong),
    /// Reason why a track of another participant is not delivered.
    #[prost(message, tag = "21")]
    SubscriptionFailed(SubscriptionResponse),
    #[prost(message, tag = "22")]
    RequestResult(RequestResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionDescription {
    /// `offer` or `answer`.
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) sdp: String,
    /// Number of the offer, repeated by its answer.
    #[prost(uint32, tag = "3")]
    pub(super) id: u32,
}

/// PeerConnection that a message is about, from the client's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum SignalTarget {
    Publisher = 0,
    Subscriber = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrickleRequest {
    /// `RTCIceCandidateInit` in JSON.
    #[prost(string, tag = "1")]
    pub(super) candidate_init: String,
    #[prost(enumeration = "SignalTarget", tag = "2")]
    pub(super) target: i32,
    /// True if no more candidates follow.
    #[prost(bool, tag = "3")]
    pub(super) is_final: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum TrackType {
    Audio = 0,
    Video = 1,
    Data = 2,
}

/// Source of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum TrackSource {
    Unknown = 0,
    Camera = 1,
    Microphone = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AddTrackRequest {
    /// Name of the track in the description (`a=msid`).
    #[prost(string, tag = "1")]
    pub(super) cid: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(enumeration = "TrackType", tag = "3")]
    pub(super) kind: i32,
    #[prost(uint32, tag = "4")]
    pub(super) width: u32,
    #[prost(uint32, tag = "5")]
    pub(super) height: u32,
    #[prost(enumeration = "TrackSource", tag = "8")]
    pub(super) source: i32,
    #[prost(message, repeated, tag = "9")]
    pub(super) layers: Vec<VideoLayer>,
}

/// Layer of a simulcast.
#[derive(Clone, PartialEq, Message)]
pub(super) struct VideoLayer {
    /// 0 is low, 2 high.
    #[prost(int32, tag = "1")]
    pub(super) quality: i32,
    #[prost(uint32, tag = "2")]
    pub(super) width: u32,
    #[prost(uint32, tag = "3")]
    pub(super) height: u32,
    /// In bits per second.
    #[prost(uint32, tag = "4")]
    pub(super) bitrate: u32,
    #[prost(int32, tag = "6")]
    pub(super) spatial_layer: i32,
    #[prost(string, tag = "7")]
    pub(super) rid: String,
}

/// Settings of the tracks that the client receives.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateTrackSettings {
    #[prost(string, repeated, tag = "1")]
    pub(super) track_sids: Vec<String>,
    /// Quality as in [`VideoLayer`].
    #[prost(int32, tag = "4")]
    pub(super) quality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct JoinResponse {
    #[prost(message, optional, tag = "2")]
    pub(super) participant: Option<ParticipantInfo>,
    #[prost(message, repeated, tag = "3")]
    pub(super) other_participants: Vec<ParticipantInfo>,
    #[prost(string, tag = "4")]
    pub(super) server_version: String,
    /// In seconds.
    #[prost(int32, tag = "11")]
    pub(super) ping_interval: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ParticipantUpdate {
    #[prost(message, repeated, tag = "1")]
    pub(super) participants: Vec<ParticipantInfo>,
}

/// State of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum ParticipantState {
    Joining = 0,
    Joined = 1,
    Active = 2,
    Disconnected = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ParticipantInfo {
    #[prost(string, tag = "1")]
    pub(super) sid: String,
    #[prost(enumeration = "ParticipantState", tag = "3")]
    pub(super) state: i32,
    #[prost(message, repeated, tag = "4")]
    pub(super) tracks: Vec<TrackInfo>,
    #[prost(message, optional, tag = "11")]
    pub(super) permission: Option<ParticipantPermission>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ParticipantPermission {
    #[prost(bool, tag = "1")]
    pub(super) can_subscribe: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackInfo {
    #[prost(string, tag = "1")]
    pub(super) sid: String,
    #[prost(enumeration = "TrackType", tag = "2")]
    pub(super) kind: i32,
    #[prost(bool, tag = "4")]
    pub(super) muted: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackPublishedResponse {
    #[prost(string, tag = "1")]
    pub(super) cid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackUnpublishedResponse {
    #[prost(string, tag = "1")]
    pub(super) track_sid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MuteTrackRequest {
    #[prost(string, tag = "1")]
    pub(super) sid: String,
    #[prost(bool, tag = "2")]
    pub(super) muted: bool,
}

/// Reason why a track is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum SubscriptionError {
    Unknown = 0,
    CodecUnsupported = 1,
    TrackNotFound = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SubscriptionResponse {
    #[prost(string, tag = "1")]
    pub(super) track_sid: String,
    #[prost(enumeration = "SubscriptionError", tag = "2")]
    pub(super) error: i32,
}

/// Reason why a participant leaves, or has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum DisconnectReason {
    UnknownReason = 0,
    ClientInitiated = 1,
    DuplicateIdentity = 2,
    ServerShutdown = 3,
    ParticipantRemoved = 4,
    RoomDeleted = 5,
    StateMismatch = 6,
    JoinFailure = 7,
    Migration = 8,
    SignalClose = 9,
    RoomClosed = 10,
    UserUnavailable = 11,
    UserRejected = 12,
    SipTrunkFailure = 13,
    ConnectionTimeout = 14,
    MediaFailure = 15,
    AgentError = 16,
}

/// Reaction to a leave request that the server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum LeaveAction {
    Disconnect = 0,
    Resume = 1,
    Reconnect = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaveRequest {
    #[prost(enumeration = "DisconnectReason", tag = "2")]
    pub(super) reason: i32,
    #[prost(enumeration = "LeaveAction", tag = "3")]
    pub(super) action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamStateUpdate {
    #[prost(message, repeated, tag = "1")]
    pub(super) states: Vec<StreamStateInfo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum StreamState {
    Active = 0,
    Paused = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamStateInfo {
    #[prost(enumeration = "StreamState", tag = "3")]
    pub(super) state: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ping {
    /// In milliseconds. The answer repeats it.
    #[prost(int64, tag = "1")]
    pub(super) timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pong {
    #[prost(int64, tag = "1")]
    pub(super) last_ping_timestamp: i64,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum RequestReason {
    Ok = 0,
    NotFound = 1,
    NotAllowed = 2,
    LimitExceeded = 3,
    Queued = 4,
    UnsupportedType = 5,
    UnclassifiedError = 6,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestResponse {
    #[prost(enumeration = "RequestReason", tag = "2")]
    pub(super) reason: i32,
    #[prost(string, tag = "3")]
    pub(super) message: String,
}
