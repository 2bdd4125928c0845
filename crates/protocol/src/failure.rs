//! What protocols share of the ways in which a client can fail.

use std::fmt::Write as _;

/// The longest detail of a failure, in bytes.
pub(crate) const MAX_DETAIL: usize = 400;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $Reason:ident = $name:literal;)*) => {
        /// Why a client failed: a row of the report.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Failure {
            $($(#[doc = $doc])+ $Reason,)*
        }

        impl Failure {
            /// Every reason there is.
            pub const ALL: &'static [Failure] = &[$(Failure::$Reason),*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Failure::$Reason => $name,)*
                }
            }

            /// What it means.
            pub const fn doc(self) -> &'static str {
                match self {
                    $(Failure::$Reason => measure::metric::trim_doc(concat!($($doc),+)),)*
                }
            }
        }
    };
}

pub(crate) use reasons;

/// Cuts a detail to what the run file takes, and leaves no control character in it.
pub(crate) fn bounded(detail: String) -> String {
    let mut out = String::with_capacity(detail.len().min(MAX_DETAIL));
    for c in detail.chars() {
        if out.len() + c.len_utf8() > MAX_DETAIL - "…".len() {
            out.push('…');
            break;
        }
        if c.is_control() {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
