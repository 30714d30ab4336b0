//! A macro for enums whose variants have a fixed text each, such as the values of a metric's label.

/// Defines an enum and derives `ALL`, `VALUES` and `as_str` from the same list, so that no variant can be
/// missing in either.
///
/// ```
/// daemon::label_values! {
///     /// The kind of a request, as a label.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Kind {
///         /// A request that changes nothing.
///         Read = "read",
///         /// A request that changes something.
///         Write = "write",
///     }
/// }
/// assert_eq!(Kind::VALUES, ["read", "write"]);
/// assert_eq!(Kind::ALL[1].as_str(), "write");
/// ```
#[macro_export]
macro_rules! label_values {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $($(#[$variant_attribute])* $variant,)+
        }

        #[allow(dead_code, reason = "a label needs one of the two lists")]
        impl $name {
            /// Every variant, in the order of its definition.
            $visibility const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The texts of all variants, in the same order.
            $visibility const VALUES: &'static [&'static str] = &[$($text),+];

            /// The variant's text in metrics, logs and answers.
            #[must_use]
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

pub use label_values;
