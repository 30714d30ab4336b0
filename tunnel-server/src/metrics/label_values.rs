//! A macro for enums whose variants have a fixed text each, such as the values of a metric's label.

/// Defines an enum and derives `ALL` and `as_str` from the same list, so that no variant can be missing in either.
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

        impl $name {
            /// Every variant, in the order of its definition.
            $visibility const ALL: &'static [Self] = &[$(Self::$variant),+];

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

pub(crate) use label_values;
