//! Enums that are words in a scenario.

/// Implements the names and the JSON Schema of an enum without data. The names are those of serde.
macro_rules! words {
    ($Word:ident: $count:literal { $($Variant:ident = $name:literal),* }) => {
        impl $Word {
            /// All variants.
            pub const ALL: [$Word; $count] = [$($Word::$Variant),*];

            /// Returns the name in the file.
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
