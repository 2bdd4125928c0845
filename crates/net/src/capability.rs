//! CAP_NET_RAW, the capability that packet rings need.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, no_new_privs,
    set_capabilities,
};

/// Reason why this process may not open a packet ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetRawMissing {
    /// The bounding set lacks it, as in most containers: no program can gain it.
    Forbidden,
    /// `no_new_privs` is set, so the program cannot gain the capability of its file.
    NoNewPrivileges,
    /// The process has it, but not in the user namespace of its network.
    OtherNamespace,
    /// Neither the user nor the program's file grants it.
    NotGranted,
}

/// Makes CAP_NET_RAW effective in this thread, and in threads that it starts later, if it is
/// permitted.
///
/// A program whose file grants a capability as permitted, but not as effective (`setcap
/// cap_net_raw+p`), must ask for it. Such a file also starts where the bounding set lacks the
/// capability. With `+ep`, execve(2) fails there.
pub fn raise_net_raw() {
    let Ok(sets) = capabilities(None) else {
        return;
    };
    let permitted = sets.permitted.contains(CapabilitySet::NET_RAW);
    if permitted && !sets.effective.contains(CapabilitySet::NET_RAW) {
        let effective = sets.effective | CapabilitySet::NET_RAW;
        // Without it, sockets are used.
        let _ = set_capabilities(None, CapabilitySets { effective, ..sets });
    }
}

/// Returns why this thread may not open a packet ring, after the kernel has refused it one.
pub fn why_no_net_raw() -> NetRawMissing {
    let sets = capabilities(None);
    if sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_RAW)) {
        return NetRawMissing::OtherNamespace;
    }
    if !capability_is_in_bounding_set(CapabilitySet::NET_RAW).unwrap_or(true) {
        return NetRawMissing::Forbidden;
    }
    match no_new_privs() {
        Ok(true) => NetRawMissing::NoNewPrivileges,
        Ok(false) | Err(_) => NetRawMissing::NotGranted,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::thread;

    use rustix::thread::{remove_capability_from_bounding_set, set_no_new_privs};

    use super::*;

    /// Runs `check` in a thread of its own, whose capabilities it may change. Does nothing without
    /// the capabilities of root.
    fn in_thread(check: fn(CapabilitySets)) {
        let checked = thread::spawn(move || {
            let sets = capabilities(None).expect("a thread may read its own");
            let needed = CapabilitySet::NET_RAW | CapabilitySet::SETPCAP;
            match sets.effective.contains(needed) {
                true => check(sets),
                false => print_skipped(),
            }
        });
        checked.join().expect("the check passes");
    }

    /// Prints past the harness, which hides the output of passing tests.
    fn print_skipped() {
        let _ = writeln!(
            io::stderr(),
            "left out: only root can drop the capabilities of a thread"
        );
    }

    fn drop_net_raw(sets: CapabilitySets, permitted: bool) {
        let mut fewer = sets;
        fewer.effective.remove(CapabilitySet::NET_RAW);
        if !permitted {
            fewer.permitted.remove(CapabilitySet::NET_RAW);
        }
        set_capabilities(None, fewer).expect("capabilities can be dropped");
    }

    fn is_effective() -> bool {
        let sets = capabilities(None).expect("a thread may read its own");
        sets.effective.contains(CapabilitySet::NET_RAW)
    }

    #[test]
    fn permitted_capability_becomes_effective() {
        in_thread(|sets| {
            drop_net_raw(sets, true);
            assert!(!is_effective());
            raise_net_raw();
            assert!(is_effective());
            assert!(
                thread::spawn(is_effective)
                    .join()
                    .expect("it does not panic")
            );
        });
    }

    #[test]
    fn reason_for_the_missing_capability_is_found() {
        in_thread(|_| assert_eq!(why_no_net_raw(), NetRawMissing::OtherNamespace));
        in_thread(|sets| {
            drop_net_raw(sets, false);
            raise_net_raw();
            assert_eq!(why_no_net_raw(), NetRawMissing::NotGranted);
            set_no_new_privs(true).expect("a thread may set it");
            assert_eq!(why_no_net_raw(), NetRawMissing::NoNewPrivileges);
        });
        in_thread(|sets| {
            remove_capability_from_bounding_set(CapabilitySet::NET_RAW).expect("root may do that");
            drop_net_raw(sets, false);
            assert_eq!(why_no_net_raw(), NetRawMissing::Forbidden);
        });
    }
}
