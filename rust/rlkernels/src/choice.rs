//! Choices by name: enums whose variants have the names that users write.

/// Defines an enum with the names of its variants. The error of its [`FromStr`](std::str::FromStr) names `$argument` and
/// the legal names.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $argument:literal {
            $(#[$first_doc:meta])* $first:ident = $first_text:literal
            $(, $(#[$each_doc:meta])* $each:ident = $text:literal)* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $(#[$first_doc])* $first $(, $(#[$each_doc])* $each)* }

        impl $name {
            /// All variants, in the order of their definition.
            pub const ALL: [Self; [$first_text $(, $text)*].len()] = [Self::$first $(, Self::$each)*];

            /// The name by which users choose it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$each => $text,)*
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;

            fn from_str(name: &str) -> $crate::Result<Self> {
                match name {
                    $first_text => Ok(Self::$first),
                    $($text => Ok(Self::$each),)*
                    _ => Err($crate::Error::UnknownChoice {
                        argument: $argument,
                        found: name.into(),
                        legal: concat!("\"", $first_text, "\"" $(, ", \"", $text, "\"")*),
                    }),
                }
            }
        }
    };
}
pub(crate) use choice;
