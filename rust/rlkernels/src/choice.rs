//! Choices by name: enums whose variants have the names that users write.

/// Defines an enum with the names of its variants; a name behind `|` is another library's spelling. Its
/// [`FromStr`](std::str::FromStr) takes `-` and `_` for each other; the error names `$argument` and the legal names.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $argument:literal {
            $(#[$first_doc:meta])* $first:ident = $first_text:literal
            $(, $(#[$each_doc:meta])* $each:ident = $text:literal $(| $other:literal)?)* $(,)?
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
                let is = |legal| $crate::choice::is_same_name(name, legal);
                $($(if is($other) {
                    return Ok(Self::$each);
                })?)*
                Self::ALL.into_iter().find(|choice| is(choice.name())).ok_or_else(|| {
                    $crate::Error::UnknownChoice {
                        argument: $argument,
                        found: name.into(),
                        legal: concat!("\"", $first_text, "\"" $(, ", \"", $text, "\"")*),
                    }
                })
            }
        }
    };
}
pub(crate) use choice;

/// Whether two names are equal, `-` and `_` aside: "dr-grpo" is "dr_grpo".
pub(crate) fn is_same_name(found: &str, legal: &str) -> bool {
    let hyphen = |byte: u8| if byte == b'_' { b'-' } else { byte };
    found.bytes().map(hyphen).eq(legal.bytes().map(hyphen))
}

/// Gives a convention its builders: `setters! { Convention { with_beta: beta = f64 } }`.
macro_rules! setters {
    ($type:ty { $($with:ident: $field:ident = $kind:ty),* $(,)? }) => {
        impl $type {
            $(
                #[doc = concat!("With another `", stringify!($field), "`.")]
                #[must_use]
                #[allow(clippy::useless_conversion)] // a number becomes itself or `Some`
                pub fn $with(mut self, $field: $kind) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}
pub(crate) use setters;
