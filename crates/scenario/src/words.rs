//! Enums that are words in a scenario.

/// The words of an enum without data, each by the name that serde gives it.
macro_rules! words {
    ($Word:ident: $count:literal { $($Variant:ident = $name:literal),* }) => {
        impl $Word {
            /// All there are.
            pub const ALL: [$Word; $count] = [$($Word::$Variant),*];

            /// As the file writes it.
            pub const fn name(self) -> &'static str {
                match self { $($Word::$Variant => $name),* }
            }
        }

        impl schemars::JsonSchema for $Word {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Word).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "enum": [$($name),*] })
            }
        }
    };
}

pub(crate) use words;
