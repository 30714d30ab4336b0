//! A macro for enums whose variants each have one text.

/// Declares an enum, its texts (`as_str`) and the list of its variants (`ALL`) from one table. A variant
/// without a text does not compile.
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
/// ```
#[macro_export]
macro_rules! text_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$documentation:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[$documentation])* $variant,)+
        }

        impl $name {
            /// Every variant, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The text of this variant.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}
