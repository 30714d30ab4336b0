//! Objects of Kubernetes' form as YAML, for programs.

use serde_json::Value;
use serde_saphyr::{SerializeError, ser_options};

/// The object as YAML, without a line end after the last line.
pub(crate) fn document(object: &Value) -> Result<String, SerializeError> {
    let text = serde_saphyr::to_string_with_options(object, ser_options! { prefer_block_scalars: false })?;
    Ok(text.trim_end().to_owned())
}
