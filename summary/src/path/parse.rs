//! Reads the text of a path, and says at which byte it is wrong.

use serde_json::Value;

use super::{Filter, PATH_BYTES_MAX, STEPS_MAX, Step};

/// The reason why a text is no path, with the byte at which it shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPath {
    /// The path exceeds [`PATH_BYTES_MAX`] or the limit of steps.
    #[error("a path has at most {PATH_BYTES_MAX} bytes and {STEPS_MAX} steps")]
    TooLong,
    /// A brace has no counterpart, or there is more than one expression.
    #[error("a path is one expression, with or without braces around all of it")]
    Braces,
    /// The path searches at every depth.
    #[error("byte {0}: '..' searches at every depth and is not served: name the fields in full")]
    Recursive(usize),
    /// A name is missing behind a point.
    #[error("byte {0}: the name of a field is missing")]
    NoName(usize),
    /// The brackets are not closed, or have something else in them.
    #[error(
        "byte {0}: brackets take a name in quotes, a number, '*', or a filter such as ?(@.type==\"Ready\")"
    )]
    Brackets(usize),
    /// A character stands where a step begins.
    #[error("byte {0}: '.' or '[' is expected here")]
    NoStep(usize),
}

/// A place in the text of a path.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// The steps of a path: `.a.b`, `a.b`, `{.a.b}` and `{a.b}` are the same.
pub(super) fn steps(text: &str) -> Result<Vec<Step>, NotAPath> {
    if text.len() > PATH_BYTES_MAX {
        return Err(NotAPath::TooLong);
    }
    let inner = match (text.strip_prefix('{'), text.strip_suffix('}')) {
        (Some(_), Some(_)) if text.len() >= 2 => &text[1..text.len() - 1],
        (None, None) => text,
        _ => return Err(NotAPath::Braces),
    };
    let offset = usize::from(inner.len() < text.len());
    let mut cursor = Cursor { text: inner, at: 0 };
    // kubectl takes a path without its first point, too, and `$` for the object.
    cursor.take('$');
    let steps = match cursor.peek() {
        Some('.' | '[') => cursor.steps(),
        Some(_) => cursor.field().and_then(|first| {
            let mut steps = vec![first];
            steps.extend(cursor.steps()?);
            Ok(steps)
        }),
        None => Err(NotAPath::NoName(0)),
    };
    let steps = steps.map_err(|fault| fault.moved(offset))?;
    match (cursor.peek(), steps.len() > STEPS_MAX) {
        (Some(_), _) => Err(NotAPath::NoStep(cursor.at + offset)),
        (None, true) => Err(NotAPath::TooLong),
        (None, false) => Ok(steps),
    }
}

impl Cursor<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.at += wanted.len_utf8();
        }
        is_there
    }

    /// The steps from here to the first character that begins none.
    fn steps(&mut self) -> Result<Vec<Step>, NotAPath> {
        let mut steps = Vec::new();
        loop {
            let start = self.at;
            if self.take('.') {
                match self.peek() {
                    Some('.') => return Err(NotAPath::Recursive(start)),
                    // The point before brackets is optional.
                    Some('[') => {}
                    Some('*') => {
                        self.at += 1;
                        steps.push(Step::All);
                    }
                    _ => steps.push(self.field()?),
                }
            } else if self.take('[') {
                let step = self.bracketed().ok_or(NotAPath::Brackets(start))?;
                steps.push(step);
            } else {
                return Ok(steps);
            }
        }
    }

    /// The name of a field, in which `\` takes away the meaning of the next character.
    fn field(&mut self) -> Result<Step, NotAPath> {
        let (start, mut name) = (self.at, String::new());
        while let Some(next) = self.peek() {
            match next {
                '.' | '[' | ']' | '{' | '}' | '(' | ')' | '=' | '!' | ' ' | '"' | '\'' | ',' | '*' => break,
                '\\' => {
                    self.at += 1;
                    name.push(self.next().ok_or(NotAPath::NoName(start))?);
                }
                _ => {
                    self.at += next.len_utf8();
                    name.push(next);
                }
            }
        }
        if name.is_empty() { Err(NotAPath::NoName(start)) } else { Ok(Step::Field(name)) }
    }

    /// The step in brackets, behind the opening one.
    fn bracketed(&mut self) -> Option<Step> {
        let step = match self.peek()? {
            '*' => {
                self.at += 1;
                Step::All
            }
            '\'' | '"' => Step::Field(self.quoted()?),
            '?' => {
                self.at += 1;
                Step::Filter(self.filter()?)
            }
            _ => {
                let end = self.text[self.at..].find(']')?;
                let index = self.text[self.at..self.at + end].trim().parse().ok()?;
                self.at += end;
                Step::Index(index)
            }
        };
        self.take(']').then_some(step)
    }

    /// The condition of a filter, with its parentheses.
    fn filter(&mut self) -> Option<Filter> {
        if !(self.take('(') && self.take('@')) {
            return None;
        }
        let steps = self.steps().ok().filter(|steps| steps.len() <= STEPS_MAX)?;
        self.spaces();
        let is_equal = match (self.next()?, self.next()?) {
            ('=', '=') => true,
            ('!', '=') => false,
            _ => return None,
        };
        self.spaces();
        let value = match self.peek()? {
            '\'' | '"' => Value::String(self.quoted()?),
            _ => {
                let end = self.text[self.at..].find(')')?;
                let value = serde_json::from_str(self.text[self.at..self.at + end].trim()).ok()?;
                self.at += end;
                value
            }
        };
        self.spaces();
        self.take(')').then_some(Filter { steps, is_equal, value })
    }

    /// A text in quotation marks of either kind. `\` takes away the meaning of the next character.
    fn quoted(&mut self) -> Option<String> {
        let (mark, mut text) = (self.next()?, String::new());
        loop {
            match self.next()? {
                '\\' => text.push(self.next()?),
                next if next == mark => return Some(text),
                next => text.push(next),
            }
        }
    }

    fn spaces(&mut self) {
        while self.take(' ') {}
    }
}

impl NotAPath {
    /// The same at a place that is `by` bytes further on.
    fn moved(self, by: usize) -> Self {
        match self {
            Self::TooLong | Self::Braces => self,
            Self::Recursive(at) => Self::Recursive(at + by),
            Self::NoName(at) => Self::NoName(at + by),
            Self::Brackets(at) => Self::Brackets(at + by),
            Self::NoStep(at) => Self::NoStep(at + by),
        }
    }
}
