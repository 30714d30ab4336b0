//! HTTP status codes as label values, from a closed set.

/// Codes with a value of their own in the label `code`: ours, and those of Kubernetes' components. All others
/// are counted by class, so that an API server cannot create series.
const CODES: [(u16, &str); 32] = [
    (101, "101"),
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (204, "204"),
    (206, "206"),
    (301, "301"),
    (302, "302"),
    (304, "304"),
    (307, "307"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (406, "406"),
    (409, "409"),
    (410, "410"),
    (412, "412"),
    (413, "413"),
    (414, "414"),
    (415, "415"),
    (421, "421"),
    (422, "422"),
    (429, "429"),
    (431, "431"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
    (507, "507"),
];

/// Values of the label `code` for codes without one of their own, by their first digit.
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The number of label values.
pub(super) const LABELS: usize = CODES.len() + CLASSES.len();

/// The index and the label value of a code.
pub(super) fn label(code: u16) -> (usize, &'static str) {
    let own = CODES.iter().enumerate().find(|(_, (known, _))| *known == code);
    if let Some((index, (_, label))) = own {
        return (index, label);
    }
    let class = usize::from(code / 100);
    let class = if class < CLASSES.len() { class } else { 0 };
    (CODES.len() + class, CLASSES[class])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_code_has_a_label_of_a_closed_set() {
        let labels: BTreeSet<&str> = (0..=u16::MAX).map(|code| label(code).1).collect();

        assert_eq!(labels.len(), LABELS);
        assert_eq!(label(404).1, "404");
        assert_eq!(label(299).1, "2xx");
        assert_eq!(label(999).1, "other");
        assert!(CODES.iter().all(|(code, label)| code.to_string() == *label));
    }
}
