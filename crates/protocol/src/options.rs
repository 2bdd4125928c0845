//! Options of a command line that set keys of a protocol's clients.

/// The options for clients of a protocol.
#[derive(Debug)]
pub struct ClientOptions {
    /// The heading in help.
    pub heading: &'static str,
    /// The options, in the order in which help shows them.
    pub options: &'static [ClientOption],
}

/// An option that sets one key.
#[derive(Debug)]
pub struct ClientOption {
    /// Its name, without dashes.
    pub name: &'static str,
    /// The key of the population that it sets, such as `plan.every`.
    pub key: &'static str,
    /// What its value is, as help shows it, such as `BYTES`.
    pub value: &'static str,
    /// What it does, in a sentence.
    pub help: &'static str,
    /// Options that may not be given with it.
    pub conflicts: &'static [&'static str],
    /// Whether `\n`, `\r`, `\t` and `\0` in its value stand for that character.
    pub is_escaped: bool,
}

impl ClientOptions {
    /// None.
    pub const NONE: ClientOptions = ClientOptions {
        heading: "",
        options: &[],
    };
}

impl ClientOption {
    /// An option that may be given with all others, whose value is taken as it is written.
    pub const fn new(
        name: &'static str,
        key: &'static str,
        value: &'static str,
        help: &'static str,
    ) -> ClientOption {
        ClientOption {
            name,
            key,
            value,
            help,
            conflicts: &[],
            is_escaped: false,
        }
    }

    /// The same, not to be given with any of these.
    pub const fn conflicts(self, others: &'static [&'static str]) -> ClientOption {
        ClientOption {
            conflicts: others,
            ..self
        }
    }
}
