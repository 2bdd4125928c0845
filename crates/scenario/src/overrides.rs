//! Settings from the command line and the environment.

/// Prefix of every variable that sets a key: `STREAMGAUGE_DURATION=60s`,
/// `STREAMGAUGE_CLIENTS__VIEWERS__LOAD__CLIENTS=500`. Two underscores stand for the dot of a path,
/// and letters become lower case.
pub const ENVIRONMENT_PREFIX: &str = "STREAMGAUGE_";

/// Prefix of variables that this program's tests read. They set no key.
const TEST_PREFIX: &str = "STREAMGAUGE_TEST_";

/// Settings that override a scenario file, and facts that the file does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Settings of the command line, in order: `clients.viewers.load.clients=500`. The value is
    /// YAML; an empty one removes the key. They win over the environment.
    pub set: Vec<String>,
    /// Settings with an option of their own. They win over all others.
    pub options: Vec<OptionSetting>,
    /// Settings of the environment: name (with [`ENVIRONMENT_PREFIX`]) and value.
    pub environment: Vec<(String, String)>,
    /// Variables with that prefix that set no key. An unknown variable may be a misspelling of one
    /// of them.
    pub reserved: Vec<String>,
    /// Thresholds of the command line, in addition to those of the file.
    pub thresholds: Vec<String>,
    /// Seed if neither the file nor a setting has one.
    pub default_seed: u64,
    /// Names of the servers that can be launched. If empty, any name is accepted.
    pub known_servers: Vec<String>,
}

/// A key set by an option of the command line. Messages name the option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionSetting {
    /// The option, such as `--receive`.
    pub option: String,
    /// The key, such as `tester.receive`.
    pub key: String,
    pub value: String,
}

impl OptionSetting {
    pub fn new(option: &str, key: &str, value: &str) -> OptionSetting {
        OptionSetting {
            option: option.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }
}

impl Overrides {
    /// Adds the variables that set a key: all with [`ENVIRONMENT_PREFIX`], except those in
    /// `reserved`, which have another meaning, and those of the program's own tests
    /// (`STREAMGAUGE_TEST_...`).
    #[must_use]
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        reserved: &[&str],
    ) -> Overrides {
        // Two underscores are a dot: `STREAMGAUGE_TEST__X` is a key, even if an unknown one.
        let of_tests = |name: &str| {
            let rest = name.strip_prefix(TEST_PREFIX);
            rest.is_some_and(|rest| !rest.starts_with('_'))
        };
        self.environment
            .extend(variables.into_iter().filter(|(name, _)| {
                name.strip_prefix(ENVIRONMENT_PREFIX)
                    .is_some_and(|key| !key.is_empty())
                    && !reserved.contains(&name.as_str())
                    && !of_tests(name)
            }));
        self.reserved
            .extend(reserved.iter().map(|&name| name.to_owned()));
        // Sorted, so that messages have a stable order.
        self.environment.sort();
        self
    }
}
