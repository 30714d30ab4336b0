//! Reads a list of objects in pieces, and holds no more than one of its objects.

use serde::Deserialize;
use serde_json::Value;

/// The largest object of a list, in bytes. etcd takes objects of 1.5 MiB.
pub const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Most bytes of a list apart from its objects.
pub const SKELETON_BYTES_MAX: usize = 64 * 1024;

/// A buffer that is larger than this after an object is given back.
const BUFFER_KEPT_MAX: usize = 64 * 1024;

/// The list's depth, and that of its objects.
const LIST_DEPTH: usize = 1;
const ITEM_DEPTH: usize = 2;

/// The deepest nesting of an object.
const DEPTH_MAX: usize = 100;

/// A reader of one list, which gets its bytes in any pieces.
///
/// It tells objects apart by brackets and quotation marks alone. Each object, and what remains without them, is then read by
/// `serde_json`, which finds every other fault.
#[derive(Debug, Default)]
pub struct ListReader {
    /// The list without its objects.
    skeleton: Vec<u8>,
    /// The bytes of the object that is being read.
    item: Vec<u8>,
    depth: usize,
    in_items: bool,
    expects: Expected,
    in_text: bool,
    is_escaped: bool,
    /// The start in the skeleton of the last text of the list itself.
    text_start: usize,
    /// The last text of the list itself is `items`, and a value follows.
    at_items: bool,
    /// The list has a field `items`, whatever it is.
    has_items: bool,
}

/// The next thing between the objects of a list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expected {
    #[default]
    ItemOrEnd,
    Item,
    CommaOrEnd,
}

/// The facts of a list that has been read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListHead {
    /// The kind of the list: `PodList`.
    pub kind: String,
    /// The token of the next page; empty for the last one.
    pub continue_token: String,
}

/// The reason why bytes are no list of objects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAList {
    /// The bytes are no JSON at all.
    #[error("the API server answered what is no JSON")]
    NotJson,
    /// The bytes are JSON, and no list of Kubernetes.
    #[error("the API server answered JSON that is no list of objects")]
    NotAList,
    /// One object has more bytes than [`ITEM_BYTES_MAX`].
    #[error("the API server answered an object of more than {max} MiB", max = ITEM_BYTES_MAX >> 20)]
    ItemTooLarge,
    /// The list has too much apart from its objects.
    #[error("the API server answered a list with more than {max} KiB apart from its objects", max = SKELETON_BYTES_MAX >> 10)]
    SkeletonTooLarge,
}

#[derive(Deserialize)]
struct Skeleton {
    kind: String,
    #[serde(default)]
    metadata: Option<ListMetadata>,
    items: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue", default)]
    next: String,
}

impl ListReader {
    /// Takes the next bytes of the list, and hands each object on that ends in them.
    ///
    /// # Errors
    ///
    /// [`NotAList`], or the error of `each`. The reader is of no more use then.
    pub fn push<E: From<NotAList>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&Value) -> Result<(), E>,
    ) -> Result<(), E> {
        for byte in bytes {
            if self.in_items && self.depth >= ITEM_DEPTH {
                if self.push_item(*byte)? {
                    let object = serde_json::from_slice(&self.item).map_err(|_| NotAList::NotJson)?;
                    self.clear_item();
                    each(&object)?;
                }
            } else {
                self.push_skeleton(*byte)?;
            }
        }
        Ok(())
    }

    /// The facts of the list once all its bytes have come.
    ///
    /// # Errors
    ///
    /// [`NotAList`], also for a list that is not complete.
    pub fn finish(self) -> Result<ListHead, NotAList> {
        if self.in_items {
            return Err(NotAList::NotJson);
        }
        let skeleton: Skeleton = serde_json::from_slice(&self.skeleton)
            .map_err(|error| if error.is_data() { NotAList::NotAList } else { NotAList::NotJson })?;
        // Go writes `null` for an empty list, too.
        let is_empty_or_read = skeleton.items.is_none_or(|items| items.is_empty());
        if !self.has_items || !is_empty_or_read || !skeleton.kind.ends_with("List") {
            return Err(NotAList::NotAList);
        }
        let continue_token = skeleton.metadata.unwrap_or_default().next;
        Ok(ListHead { kind: skeleton.kind, continue_token })
    }

    /// Takes a byte of the list itself.
    fn push_skeleton(&mut self, byte: u8) -> Result<(), NotAList> {
        if self.skeleton.len() >= SKELETON_BYTES_MAX {
            return Err(NotAList::SkeletonTooLarge);
        }
        self.skeleton.push(byte);
        if self.in_text {
            if self.end_of_text(byte) && self.depth == LIST_DEPTH {
                self.at_items = self.skeleton.get(self.text_start..) == Some(b"\"items\"");
                self.has_items |= self.at_items;
            }
            return Ok(());
        }
        match byte {
            b'"' => {
                (self.in_text, self.at_items) = (true, false);
                self.text_start = self.skeleton.len() - 1;
            }
            b'{' | b'[' => {
                if byte == b'[' && self.depth == LIST_DEPTH && self.at_items {
                    (self.in_items, self.expects) = (true, Expected::ItemOrEnd);
                }
                self.at_items = false;
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(NotAList::NotAList);
                }
            }
            b'}' | b']' => self.depth = self.depth.checked_sub(1).ok_or(NotAList::NotJson)?,
            b',' => self.at_items = false,
            _ => {}
        }
        Ok(())
    }

    /// Takes a byte of the list's objects. Returns true if an object ends with it.
    fn push_item(&mut self, byte: u8) -> Result<bool, NotAList> {
        if self.depth == ITEM_DEPTH {
            return self.between_items(byte).map(|()| false);
        }
        if self.item.len() >= ITEM_BYTES_MAX {
            return Err(NotAList::ItemTooLarge);
        }
        self.item.push(byte);
        if self.in_text {
            self.end_of_text(byte);
            return Ok(false);
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(NotAList::NotAList);
                }
            }
            b'}' | b']' => {
                self.depth -= 1;
                return Ok(self.depth == ITEM_DEPTH);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Takes a byte between two objects.
    fn between_items(&mut self, byte: u8) -> Result<(), NotAList> {
        match (byte, self.expects) {
            (b' ' | b'\t' | b'\r' | b'\n', _) => {}
            (b'{', Expected::ItemOrEnd | Expected::Item) => {
                self.item.push(byte);
                self.depth += 1;
                self.expects = Expected::CommaOrEnd;
            }
            (b',', Expected::CommaOrEnd) => self.expects = Expected::Item,
            (b']', Expected::ItemOrEnd | Expected::CommaOrEnd) => {
                self.skeleton.push(byte);
                self.depth -= 1;
                self.in_items = false;
            }
            _ => return Err(NotAList::NotAList),
        }
        Ok(())
    }

    /// Takes a byte of a text. Returns true if the text ends with it.
    fn end_of_text(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_text = false,
            _ => {}
        }
        !self.in_text
    }

    fn clear_item(&mut self) {
        self.item.clear();
        self.item.shrink_to(BUFFER_KEPT_MAX);
    }
}

#[cfg(test)]
mod tests;
