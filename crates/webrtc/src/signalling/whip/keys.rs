//! Scenario keys of WHIP and WHEP.

use crate::config::ClientConfig;
use kit::keys::KeyError;

impl ClientConfig {
    /// Checks the keys for WHIP, or, if `is_whip` is false, for WHEP: a client publishes with the
    /// one, and plays with the other. Returns the invalid key and the reason.
    pub(crate) fn check_direction(&self, is_whip: bool) -> Result<(), KeyError> {
        let text = match (is_whip, self.publish.is_some()) {
            (true, false) => {
                "clients publish to `whip+http://`: add `publish: {}` (in one line `--publish`), or \
                 play from `whep+http://`"
            }
            (false, true) => "clients play from `whep+http://`: publish to `whip+http://`",
            (true, true) | (false, false) => return Ok(()),
        };
        Err(("publish", text.to_owned()))
    }
}
