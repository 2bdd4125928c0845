//! Rejection reasons of a handshake.

use std::fmt;

/// Rejection reason: the word in the packet, from 1000 on. Codes from 1000 to 1999 are SRT's own
/// (SRT, 4.3, table 7), from 2000 to 2999 those of access control (libsrt's access_control.h), and
/// from 3000 on those of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rejection(u32);

macro_rules! reasons {
    ($($constant:ident = $code:literal, $name:literal, $meaning:literal;)*) => {
        impl Rejection {
            $(
                #[doc = $meaning]
                pub const $constant: Rejection = Rejection($code);
            )*

            /// Name in libsrt, or `None` if libsrt has none for this code.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }

            pub fn meaning(self) -> &'static str {
                match self.0 {
                    $($code => $meaning,)*
                    _ => "application-defined reason",
                }
            }

            /// All reasons that have a name.
            pub const ALL: &'static [Rejection] = &[$(Rejection::$constant),*];
        }
    };
}

reasons! {
    UNKNOWN = 1000, "SRT_REJ_UNKNOWN", "unknown";
    SYSTEM = 1001, "SRT_REJ_SYSTEM", "a system call failed";
    PEER = 1002, "SRT_REJ_PEER", "rejected by the peer";
    RESOURCE = 1003, "SRT_REJ_RESOURCE", "out of resources";
    ROGUE = 1004, "SRT_REJ_ROGUE", "malformed handshake";
    BACKLOG = 1005, "SRT_REJ_BACKLOG", "listener's backlog exceeded";
    IPE = 1006, "SRT_REJ_IPE", "internal error";
    CLOSE = 1007, "SRT_REJ_CLOSE", "the socket is closing";
    VERSION = 1008, "SRT_REJ_VERSION", "version too old";
    RDVCOOKIE = 1009, "SRT_REJ_RDVCOOKIE", "equal cookies in a rendezvous";
    BADSECRET = 1010, "SRT_REJ_BADSECRET", "wrong passphrase";
    UNSECURE = 1011, "SRT_REJ_UNSECURE", "passphrase required or unexpected";
    MESSAGEAPI = 1012, "SRT_REJ_MESSAGEAPI", "stream mode against message mode";
    CONGESTION = 1013, "SRT_REJ_CONGESTION", "incompatible congestion control";
    FILTER = 1014, "SRT_REJ_FILTER", "incompatible packet filter";
    GROUP = 1015, "SRT_REJ_GROUP", "incompatible group";
    TIMEOUT = 1016, "SRT_REJ_TIMEOUT", "timed out";
    CRYPTO = 1017, "SRT_REJ_CRYPTO", "incompatible cipher";
    FALLBACK = 2000, "SRT_REJX_FALLBACK", "application error";
    KEY_NOTSUP = 2001, "SRT_REJX_KEY_NOTSUP", "unsupported key in the stream id";
    FILEPATH = 2002, "SRT_REJX_FILEPATH", "bad path";
    HOSTNOTFOUND = 2003, "SRT_REJX_HOSTNOTFOUND", "unknown host";
    BAD_REQUEST = 2400, "SRT_REJX_BAD_REQUEST", "bad request";
    UNAUTHORIZED = 2401, "SRT_REJX_UNAUTHORIZED", "unauthorized";
    OVERLOAD = 2402, "SRT_REJX_OVERLOAD", "overloaded";
    FORBIDDEN = 2403, "SRT_REJX_FORBIDDEN", "forbidden";
    NOTFOUND = 2404, "SRT_REJX_NOTFOUND", "not found";
    BAD_MODE = 2405, "SRT_REJX_BAD_MODE", "unsupported mode";
    UNACCEPTABLE = 2406, "SRT_REJX_UNACCEPTABLE", "unacceptable parameters";
    CONFLICT = 2409, "SRT_REJX_CONFLICT", "already published";
    NOTSUP_MEDIA = 2415, "SRT_REJX_NOTSUP_MEDIA", "unsupported media";
    LOCKED = 2423, "SRT_REJX_LOCKED", "locked";
    FAILED_DEPEND = 2424, "SRT_REJX_FAILED_DEPEND", "a session that it depends on has ended";
    ISE = 2500, "SRT_REJX_ISE", "internal server error";
    UNIMPLEMENTED = 2501, "SRT_REJX_UNIMPLEMENTED", "not implemented";
    GW = 2502, "SRT_REJX_GW", "rejected behind a gateway";
    DOWN = 2503, "SRT_REJX_DOWN", "service down";
    VERSION_NOTSUP = 2505, "SRT_REJX_VERSION", "unsupported version";
    NOROOM = 2507, "SRT_REJX_NOROOM", "no room to store";
}

impl Rejection {
    /// Converts the word of a packet. Codes below 1000 become [`Rejection::UNKNOWN`].
    pub const fn new(code: u32) -> Rejection {
        match code {
            0..1000 => Rejection::UNKNOWN,
            _ => Rejection(code),
        }
    }

    pub const fn code(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({}): {}", self.0, self.meaning()),
            None => write!(f, "{}: {}", self.0, self.meaning()),
        }
    }
}
