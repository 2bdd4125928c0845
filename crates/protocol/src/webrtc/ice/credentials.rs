//! User fragment and password.

use is::IceCreds;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Letters that both may consist of (RFC 8839, 5.4: `ice-char`).
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How long our user fragment is, and the other side's may be. RFC 8839 allows 256, but the library
/// panics over checks whose user name, which is both with a colon between, is longer than 128.
const OWN_UFRAG: usize = 8;
const UFRAG_MAX: usize = 128 - 1 - OWN_UFRAG;

/// What a side's checks are known and authenticated by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User fragment.
    pub ufrag: String,
    /// Password.
    pub pwd: String,
}

impl Credentials {
    /// New ones: 48 and 144 random bits (RFC 8445, 5.3 demands 24 and 128).
    pub(super) fn draw(random: &mut Pcg64) -> Credentials {
        let mut draw = |length: usize| -> String {
            let letter = |_| char::from(LETTERS[random.random_range(0..LETTERS.len())]);
            (0..length).map(letter).collect()
        };
        Credentials {
            ufrag: draw(OWN_UFRAG),
            pwd: draw(24),
        }
    }

    /// Whether both are made as they must be (RFC 8839, 5.4), and can be used.
    pub fn are_valid(&self) -> bool {
        let consists = |text: &str| text.bytes().all(|letter| LETTERS.contains(&letter));
        (4..=UFRAG_MAX).contains(&self.ufrag.len())
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
