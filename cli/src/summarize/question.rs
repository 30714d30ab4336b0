//! The question of a summary, from the flags of the command.

use serde_json::{Value, json};
use summary::{NotAQuestion, Question};

use crate::args::SummarizeArgs;

/// The flags are no question.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotASummaryQuestion {
    #[error("--top must be a number and a path, as in 10:.spec.replicas, not {0:?}")]
    Top(String),
    #[error("the flags are no question: {0}")]
    Question(#[from] NotAQuestion),
}

/// The JSON of the question, which the gateway will read as well.
///
/// # Errors
/// [`NotASummaryQuestion`]
pub(super) fn of_args(args: &SummarizeArgs) -> Result<String, NotASummaryQuestion> {
    let figures = |word: &str, paths: &[String]| -> Vec<Value> {
        paths.iter().map(|path| json!({ word: path })).collect()
    };
    let values = [
        figures("count", &args.count),
        figures("sum", &args.sum),
        figures("min", &args.min),
        figures("max", &args.max),
        figures("avg", &args.avg),
    ];
    let conditions: Vec<Value> = args.conditions.iter().map(|text| condition(text)).collect();
    let mut question = json!({
        "groupBy": args.by,
        "where": conditions,
        "values": values.concat(),
        "select": args.select,
    });
    if let Some(top) = &args.top {
        let wrong = || NotASummaryQuestion::Top(top.clone());
        let (count, by) = top.split_once(':').ok_or_else(wrong)?;
        let count: usize = count.parse().map_err(|_| wrong())?;
        question["top"] = json!({ "count": count, "by": by });
    }
    let text = question.to_string();
    Question::parse(&text)?;
    Ok(text)
}

/// `PATH=A,B`, `PATH!=A,B`, `PATH` or `!PATH`. An equals sign in brackets belongs to the path.
fn condition(text: &str) -> Value {
    let mut depth = 0_usize;
    let sign = text.char_indices().find(|(_, character)| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *character == '=' && depth == 0
    });
    let Some((at, _)) = sign else {
        return match text.strip_prefix('!') {
            Some(path) => json!({ "path": path, "operator": "DoesNotExist" }),
            None => json!({ "path": text, "operator": "Exists" }),
        };
    };
    let values: Vec<&str> = text[at + 1..].split(',').collect();
    match text[..at].strip_suffix('!') {
        Some(path) => json!({ "path": path, "operator": "NotIn", "values": values }),
        None => json!({ "path": &text[..at], "operator": "In", "values": values }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_in_all_four_forms() {
        for (text, expected) in [
            (".a=x,y", json!({ "path": ".a", "operator": "In", "values": ["x", "y"] })),
            (".a!=x", json!({ "path": ".a", "operator": "NotIn", "values": ["x"] })),
            (".a", json!({ "path": ".a", "operator": "Exists" })),
            ("!.a", json!({ "path": ".a", "operator": "DoesNotExist" })),
            (
                ".c[?(@.type==\"Ready\")].status=True",
                json!({ "path": ".c[?(@.type==\"Ready\")].status", "operator": "In", "values": ["True"] }),
            ),
        ] {
            assert_eq!(condition(text), expected, "{text}");
        }
    }
}
