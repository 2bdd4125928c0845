//! Command-line options that set keys of a protocol's clients.

#[derive(Debug)]
pub struct ClientOptions {
    /// Heading in `--help`.
    pub heading: &'static str,
    /// Options in the order of `--help`.
    pub options: &'static [ClientOption],
}

/// A command-line option that sets one key.
#[derive(Debug)]
pub struct ClientOption {
    /// Name without dashes.
    pub name: &'static str,
    /// Key of the population that the option sets, such as `plan.every`.
    pub key: &'static str,
    /// Placeholder of the value in `--help`, such as `BYTES`.
    pub value: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Options that must not be given with it.
    pub conflicts: &'static [&'static str],
    /// `true` if `\n`, `\r`, `\t` and `\0` in the value are escape sequences.
    pub is_escaped: bool,
}

impl ClientOptions {
    /// No options.
    pub const NONE: ClientOptions = ClientOptions {
        heading: "",
        options: &[],
    };
}

impl ClientOption {
    /// An option without conflicts, whose value is used verbatim.
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

    /// Sets the options that must not be given with this one.
    pub const fn conflicts(mut self, others: &'static [&'static str]) -> ClientOption {
        self.conflicts = others;
        self
    }
}
