//! A macro for enums whose variants each have one text, such as the values of a metric's label.

/// Declares an enum, its texts (`as_str`) and the lists of its variants (`ALL`) and of their texts (`VALUES`)
/// from one table. A variant without a text does not compile.
///
/// ```
/// proto::text_enum! {
///     /// A side of the tunnel.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Side {
///         /// The cloud's side of it.
///         Server = "server",
///         /// The cluster's side of it.
///         Agent = "agent",
///     }
/// }
/// assert_eq!(Side::ALL.map(Side::as_str), ["server", "agent"]);
/// assert_eq!(Side::VALUES, ["server", "agent"]);
/// ```
#[macro_export]
macro_rules! text_enum {
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

        #[allow(dead_code, reason = "most enums need one of the two lists")]
        impl $name {
            /// Every variant, in the order of their declaration.
            $visibility const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The texts of all variants, in the same order.
            $visibility const VALUES: &'static [&'static str] = &[$($text),+];

            /// The text of this variant.
            #[must_use]
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}
