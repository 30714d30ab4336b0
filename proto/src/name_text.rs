//! Characters that a reader cannot see in a name, or that change how the text around them is shown.
//!
//! Two names that look alike are one name to the person who reads a policy, a table or an audit log. Source: the
//! property `Default_Ignorable_Code_Point` of Unicode's `DerivedCoreProperties.txt`, and `Bidi_Control` of its
//! `PropList.txt`, version 16.0.0.
//! <https://www.unicode.org/Public/16.0.0/ucd/DerivedCoreProperties.txt>

use std::ops::RangeInclusive;

/// Every default-ignorable code point. All characters of `Bidi_Control` are among them.
const DEFAULT_IGNORABLE: [RangeInclusive<u32>; 17] = [
    0x00AD..=0x00AD,
    0x034F..=0x034F,
    0x061C..=0x061C,
    0x115F..=0x1160,
    0x17B4..=0x17B5,
    0x180B..=0x180F,
    0x200B..=0x200F,
    0x202A..=0x202E,
    0x2060..=0x206F,
    0x3164..=0x3164,
    0xFE00..=0xFE0F,
    0xFEFF..=0xFEFF,
    0xFFA0..=0xFFA0,
    0xFFF0..=0xFFF8,
    0x1_BCA0..=0x1_BCA3,
    0x1_D173..=0x1_D17A,
    0xE_0000..=0xE_0FFF,
];

/// Unicode's line and paragraph separators, which are no control characters to `char::is_control`.
const SEPARATORS: [char; 2] = ['\u{2028}', '\u{2029}'];

/// Returns true if a name may have no such character: a control character, a line or paragraph separator, or a
/// character that Unicode calls default-ignorable or a bidirectional format character.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    let code = u32::from(character);
    character.is_control()
        || SEPARATORS.contains(&character)
        || DEFAULT_IGNORABLE.iter().any(|range| range.contains(&code))
}

/// Returns true if a name has no character for which [`is_invisible`] holds, and no white space at an end.
#[must_use]
pub fn is_readable(name: &str) -> bool {
    name.trim() == name && !name.chars().any(is_invisible)
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{Class, HirKind};

    use super::*;

    /// The table is compared with another copy of Unicode's data, for every character there is.
    #[test]
    fn the_table_is_unicodes_default_ignorable_and_bidi_controls() {
        let theirs = class(r"[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Cc}\x{2028}\x{2029}]");
        let mut refused = 0;
        for character in '\0'..=char::MAX {
            let expected = theirs.iter().any(|range| range.contains(&character));
            assert_eq!(is_invisible(character), expected, "U+{:04X}", u32::from(character));
            refused += usize::from(expected);
        }
        assert!(refused > 4_000, "{refused}");
    }

    #[test]
    fn a_name_is_readable_if_everybody_sees_all_of_it() {
        for name in ["ann", "Olga Ö.", "a b", "名前", "e\u{301}", "a'b\"c", "😀"] {
            assert!(is_readable(name), "{name:?}");
        }
        for hidden in
            ['\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{ad}', '\u{feff}', '\u{3164}', '\u{85}', '\0']
        {
            for name in [format!("{hidden}ann"), format!("a{hidden}nn"), format!("ann{hidden}")] {
                assert!(!is_readable(&name), "{name:?}");
            }
        }
        for name in [" ann", "ann\t", "ann\u{a0}"] {
            assert!(!is_readable(name), "{name:?}");
        }
    }

    fn class(pattern: &str) -> Vec<RangeInclusive<char>> {
        let hir = regex_syntax::parse(pattern).expect("a class");
        let HirKind::Class(Class::Unicode(class)) = hir.into_kind() else { panic!("no class") };
        class.ranges().iter().map(|range| range.start()..=range.end()).collect()
    }
}
