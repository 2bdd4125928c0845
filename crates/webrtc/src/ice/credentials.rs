//! User fragment and password of ICE.

use is::IceCreds;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Characters of user fragments and passwords (RFC 8839, 5.4: `ice-char`).
const ICE_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Length of the local user fragment, and maximum length of the remote one. RFC 8839 allows 256,
/// but the library panics on checks whose user name (both fragments, joined by a colon) is longer
/// than 128.
const LOCAL_UFRAG_LENGTH: usize = 8;
const REMOTE_UFRAG_MAX: usize = 128 - 1 - LOCAL_UFRAG_LENGTH;

/// Credentials that identify and authenticate the checks of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User fragment.
    pub ufrag: String,
    /// Password.
    pub pwd: String,
}

impl Credentials {
    /// Draws new credentials of 48 and 144 random bits (RFC 8445, 5.3 requires 24 and 128).
    pub(super) fn draw(random: &mut Pcg64) -> Credentials {
        let mut draw = |length: usize| -> String {
            let letter = |_| char::from(ICE_CHARS[random.random_range(0..ICE_CHARS.len())]);
            (0..length).map(letter).collect()
        };
        Credentials {
            ufrag: draw(LOCAL_UFRAG_LENGTH),
            pwd: draw(24),
        }
    }

    /// Returns true if both are well-formed (RFC 8839, 5.4) and usable.
    pub fn are_valid(&self) -> bool {
        let consists = |text: &str| text.bytes().all(|letter| ICE_CHARS.contains(&letter));
        (4..=REMOTE_UFRAG_MAX).contains(&self.ufrag.len())
            && (22..=256).contains(&self.pwd.len())
            && consists(&self.ufrag)
            && consists(&self.pwd)
    }

    pub(super) fn for_agent(&self) -> IceCreds {
        IceCreds {
            ufrag: self.ufrag.clone(),
            pass: self.pwd.clone(),
        }
    }
}
