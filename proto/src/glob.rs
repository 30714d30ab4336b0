//! Patterns in which `*` stands for any text, the empty one included.

/// Returns true if the whole of `text` fits `pattern`. Takes time in proportion to both, whatever they are.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').map_or((None, rest), |(middle, last)| (Some(middle), last));
    // The leftmost match of each part leaves most of the text to the parts behind it.
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        let Some(index) = text.find(part) else {
            return false;
        };
        text = &text[index + part.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_text_fits_or_none_of_it() {
        for (pattern, fits, fits_not) in [
            ("exact", &["exact"][..], &["exactly", "inexact", "Exact", ""][..]),
            ("tombolo:*", &["tombolo:", "tombolo:a:b"], &["tombolo", "xtombolo:a", "Tombolo:a"]),
            ("*@example.org", &["ann@example.org", "@example.org"], &["ann@example.org.evil", "ann"]),
            ("a*b*c", &["abc", "a-b-b-c"], &["ac", "acb", "abcd"]),
            // Beginning and end share no letter.
            ("aba*ba", &["ababa", "abaxba"], &["aba"]),
            ("*b*", &["abc", "b"], &["ac"]),
            // The next part cannot use text that a part has matched already.
            ("*ab*b", &["xxxabb"], &["ab", "xab"]),
            ("a**c", &["abc", "ac"], &["ab"]),
            ("ab*bc", &["abbc"], &["abc"]),
            ("a*a", &["aa"], &["a"]),
            ("**", &["", "x"], &[]),
            ("*", &["", "a", "*"], &[]),
            ("", &[""], &["a"]),
        ] {
            assert!(fits.iter().all(|text| matches(pattern, text)), "{pattern}");
            assert!(!fits_not.iter().any(|text| matches(pattern, text)), "{pattern}");
        }
    }
}
