//! A macro for enums whose variants each have one text in the log.

/// Declares an enum, its texts (`as_str`) and the list of its variants (`ALL`) from one table. A variant without a text
/// does not compile.
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

            /// The text of this variant in the log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

pub(crate) use text_enum;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::event::{Annotation, EndReason};
    use crate::unauthenticated::FailureCause;

    #[test]
    fn no_two_variants_of_an_enum_have_the_same_text() {
        for texts in [
            Annotation::ALL.iter().map(|one| one.as_str()).collect::<Vec<_>>(),
            EndReason::ALL.iter().map(|one| one.as_str()).collect(),
            FailureCause::ALL.iter().map(|one| one.as_str()).collect(),
        ] {
            assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), texts.len(), "{texts:?}");
        }
    }
}
