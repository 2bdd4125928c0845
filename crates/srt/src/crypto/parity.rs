//! The two keys of a sender, which alternate.

use crate::codec::packet::KeyFlag;

/// Even or odd key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parity {
    Even,
    Odd,
}

impl Parity {
    pub(super) fn of(key: KeyFlag) -> Option<Parity> {
        match key {
            KeyFlag::Even => Some(Parity::Even),
            KeyFlag::Odd => Some(Parity::Odd),
            KeyFlag::None | KeyFlag::Both => None,
        }
    }

    pub(super) fn other(self) -> Parity {
        match self {
            Parity::Even => Parity::Odd,
            Parity::Odd => Parity::Even,
        }
    }

    pub(super) fn key(self) -> KeyFlag {
        match self {
            Parity::Even => KeyFlag::Even,
            Parity::Odd => KeyFlag::Odd,
        }
    }
}
