//! The Helm charts of deploy/charts, rendered without a cluster.

/// The pinned helm. The calling test is skipped if it is missing.
macro_rules! helm {
    ($test:literal) => {
        match tests::helm::Helm::find() {
            Ok(helm) => helm,
            Err(missing) => return tests::skip::skip($test, &missing.to_string()),
        }
    };
}

mod files;
mod rights;
mod schemas;
mod templates;
mod values;
