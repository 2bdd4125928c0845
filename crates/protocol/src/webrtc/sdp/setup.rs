//! Who begins with DTLS.

/// Who begins with DTLS (RFC 8842, 5.2; RFC 4145, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setup {
    /// The one who says it: it is DTLS's client.
    Active,
    /// The other.
    Passive,
    /// As the answer says: in offers alone.
    ActPass,
}

impl Setup {
    /// As in `a=setup`.
    pub fn name(self) -> &'static str {
        match self {
            Setup::Active => "active",
            Setup::Passive => "passive",
            Setup::ActPass => "actpass",
        }
    }

    /// Of that name.
    pub(super) fn named(name: &str) -> Option<Setup> {
        let mut all = [Setup::Active, Setup::Passive, Setup::ActPass].into_iter();
        all.find(|setup| setup.name() == name)
    }
}
