//! Shared parts of the protocols' failure reasons.

use std::fmt::Write as _;

/// Maximum length of a failure's detail in bytes.
const DETAIL_BYTES_MAX: usize = 400;

/// Declares an enum of failure reasons, each with its meaning and its stable name. `with` names an
/// enum of shared reasons, whose rows come first.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$meta:meta])*
        $Name:ident $(with $Shared:ident($Of:ty))? {
            $($(#[doc = $doc:literal])+ $Reason:ident = $name:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Name {
            $(
                /// A reason shared with other protocols.
                $Shared($Of),
            )?
            $($(#[doc = $doc])+ $Reason,)*
        }

        impl $Name {
            /// All reasons except shared ones.
            pub const ALL: &'static [$Name] = &[$($Name::$Reason),*];

            /// Stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $($Name::$Shared(shared) => shared.name(),)?
                    $($Name::$Reason => $name,)*
                }
            }

            /// Meaning.
            pub const fn doc(self) -> &'static str {
                match self {
                    $($Name::$Shared(shared) => shared.doc(),)?
                    $($Name::$Reason => measure::metric::trim_doc(concat!($($doc),+)),)*
                }
            }
        }

        $(
            impl $Name {
                /// Returns the reason with this name.
                pub fn from_name(name: &str) -> Option<$Name> {
                    let shared = <$Of>::ALL.iter().copied().map($Name::$Shared);
                    let mut all = $Name::ALL.iter().copied().chain(shared);
                    all.find(|reason| reason.name() == name)
                }

                /// Returns a failure with this reason and the given details.
                pub fn with(self, detail: impl Into<String>) -> $crate::failure::Failure {
                    $crate::failure::Failure {
                        reason: self.name(),
                        detail: $crate::failure::truncate_detail(detail.into()),
                    }
                }
            }

            impl From<$Of> for $Name {
                fn from(shared: $Of) -> $Name {
                    $Name::$Shared(shared)
                }
            }
        )?
    };
}

pub use reasons;
pub use session::Failure;

/// Truncates a detail to the limit of the run file and escapes control characters.
pub fn truncate_detail(detail: String) -> String {
    let mut out = String::with_capacity(detail.len().min(DETAIL_BYTES_MAX));
    for c in detail.chars() {
        if out.len() + c.len_utf8() > DETAIL_BYTES_MAX - "…".len() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_bounded_and_plain() {
        let detail = truncate_detail(format!("a\r\n\u{1b}{}", "ä".repeat(1000)));
        assert!(detail.len() <= DETAIL_BYTES_MAX);
        assert!(detail.starts_with("a\\r\\n\\u{1b}ä"));
        assert!(detail.ends_with('…'));
        assert_eq!(truncate_detail("short".to_owned()), "short");
    }
}
