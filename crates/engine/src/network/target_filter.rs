//! Targets that clients may send to, if the owner of the machine is not the user who runs them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of addresses of permitted host names that are remembered.
const ADDRESSES_MAX: usize = 10_000;

/// Decides which targets are permitted.
pub trait TargetPolicy: Send + Sync {
    /// Returns `true` if clients may send to a host of this name, at whatever address.
    fn permits_name(&self, host: &str) -> bool;

    /// Returns `true` if clients may send to this address.
    fn permits_address(&self, address: IpAddr) -> bool;
}

/// Filter of the targets of all clients. Without a policy, everything is permitted.
#[derive(Clone, Default)]
pub struct TargetFilter(Option<Arc<Filter>>);

struct Filter {
    policy: Box<dyn TargetPolicy>,
    /// Addresses of permitted names, which also send and receive media.
    known: Mutex<HashSet<IpAddr>>,
}

impl std::fmt::Debug for TargetFilter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "TargetFilter({})", self.0.is_some())
    }
}

impl TargetFilter {
    /// Permits what `policy` permits.
    pub fn new(policy: impl TargetPolicy + 'static) -> TargetFilter {
        TargetFilter(Some(Arc::new(Filter {
            policy: Box::new(policy),
            known: Mutex::default(),
        })))
    }

    /// Returns `true` if a client may send to this address.
    #[inline]
    pub(crate) fn permits(&self, address: IpAddr) -> bool {
        match &self.0 {
            None => true,
            Some(filter) => filter.permits(address),
        }
    }

    /// Returns those addresses of a host that a client may send to.
    pub(crate) fn permitted<T>(
        &self,
        host: &str,
        addresses: Vec<T>,
        ip: impl Fn(&T) -> IpAddr,
    ) -> Vec<T> {
        let Some(filter) = &self.0 else {
            return addresses;
        };
        if filter.policy.permits_name(host) {
            let mut known = filter.known.lock().unwrap_or_else(PoisonError::into_inner);
            for address in addresses
                .iter()
                .take(ADDRESSES_MAX - known.len().min(ADDRESSES_MAX))
            {
                known.insert(ip(address));
            }
            return addresses;
        }
        let permitted = addresses.into_iter();
        permitted
            .filter(|address| filter.permits(ip(address)))
            .collect()
    }
}

impl Filter {
    fn permits(&self, address: IpAddr) -> bool {
        self.policy.permits_address(address) || {
            let known = self.known.lock();
            known
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&address)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OnlyA;

    impl TargetPolicy for OnlyA {
        fn permits_name(&self, host: &str) -> bool {
            host == "a"
        }

        fn permits_address(&self, address: IpAddr) -> bool {
            address.is_loopback()
        }
    }

    #[test]
    fn addresses_of_a_permitted_name_are_permitted_for_media() {
        let filter = TargetFilter::new(OnlyA);
        let ip = |text: &str| -> IpAddr { text.parse().expect(text) };
        let all = vec![ip("192.0.2.1"), ip("127.0.0.1")];
        assert!(!filter.permits(ip("192.0.2.1")) && filter.permits(ip("127.0.0.2")));
        let some = filter.permitted("b", all.clone(), |ip| *ip);
        assert_eq!(some, [ip("127.0.0.1")]);
        assert_eq!(filter.permitted("a", all.clone(), |ip| *ip), all);
        assert!(filter.permits(ip("192.0.2.1")) && !filter.permits(ip("192.0.2.2")));
        assert!(TargetFilter::default().permits(ip("192.0.2.2")));
    }
}
