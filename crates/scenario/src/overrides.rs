//! Single settings from the command line and the environment.

/// What every variable begins with that sets a key: `STREAMGAUGE_DURATION=60s`,
/// `STREAMGAUGE_CLIENTS__VIEWERS__LOAD__CLIENTS=500`. Two underscores stand for the dot of a path,
/// and letters become lower case.
pub const ENVIRONMENT_PREFIX: &str = "STREAMGAUGE_";

/// Variables that tests of this program read set no key.
const TEST_PREFIX: &str = "STREAMGAUGE_TEST_";

/// What is put over a scenario file, and what the caller knows that the file does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Settings of the command line, in order: `clients.viewers.load.clients=500`. The value is
    /// YAML. Nothing after the `=` takes the key out. These win over the environment.
    pub set: Vec<String>,
    /// Settings that have an option of their own. These win over all others.
    pub options: Vec<OptionSetting>,
    /// Settings of the environment: name (with [`ENVIRONMENT_PREFIX`]) and value.
    pub environment: Vec<(String, String)>,
    /// Variables with that prefix that mean something else: they may have been meant by one that is
    /// not known.
    pub reserved: Vec<String>,
    /// Thresholds of the command line, beside those of the file.
    pub thresholds: Vec<String>,
    /// The seed where neither file nor settings name one.
    pub default_seed: u64,
    /// The names of the servers that can be launched; where empty, any name is taken.
    pub known_servers: Vec<String>,
}

/// A key that an option of the command line sets, which messages then name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionSetting {
    /// The option, such as `--receive`.
    pub option: String,
    /// The key, such as `tester.receive`.
    pub key: String,
    /// What it is set to.
    pub value: String,
}

impl OptionSetting {
    /// A key that `option` sets to `value`.
    pub fn new(option: &str, key: &str, value: &str) -> OptionSetting {
        OptionSetting {
            option: option.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }
}

impl Overrides {
    /// Those of `variables` that set a key: they begin with [`ENVIRONMENT_PREFIX`] and are none of
    /// `reserved`, which mean something else to the program. Those of the program's own tests
    /// (`STREAMGAUGE_TEST_...`) are left out too.
    #[must_use]
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        reserved: &[&str],
    ) -> Overrides {
        // Two underscores are a dot: that is a key, wrong as it may be.
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
        // The environment has no order; a message about it should.
        self.environment.sort();
        self
    }
}
