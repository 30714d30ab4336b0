//! Patterns in which `*` stands for any text, also for none.

/// Whether the whole of `text` fits `pattern`. Takes time in proportion to both, whatever they are.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').map_or((None, rest), |(middle, last)| (Some(middle), last));
    // The leftmost place of each part leaves most to the parts behind it.
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        let Some(place) = text.find(part) else {
            return false;
        };
        text = &text[place + part.len()..];
    }
    text.ends_with(last)
}
