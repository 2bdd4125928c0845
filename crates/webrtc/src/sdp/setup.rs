//! DTLS roles.

/// DTLS role of a side (RFC 8842, 5.2; RFC 4145, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setup {
    /// The author of the description is the DTLS client.
    Active,
    /// The other side is the DTLS client.
    Passive,
    /// The answer decides. Only valid in offers.
    ActPass,
}

impl Setup {
    /// Returns the value of `a=setup`.
    pub fn name(self) -> &'static str {
        match self {
            Setup::Active => "active",
            Setup::Passive => "passive",
            Setup::ActPass => "actpass",
        }
    }

    /// Parses the value of `a=setup`.
    pub(super) fn parse(name: &str) -> Option<Setup> {
        let mut all = [Setup::Active, Setup::Passive, Setup::ActPass].into_iter();
        all.find(|setup| setup.name() == name)
    }
}
