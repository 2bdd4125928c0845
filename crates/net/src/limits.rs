//! What the operating system lets this process have.

use rustix::process::{Resource, getrlimit};

/// How many file descriptors this process may have open: the soft limit (getrlimit(2), RLIMIT_NOFILE).
/// `None` is without limit. Where threads have tables of descriptors of their own, it holds for each.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
