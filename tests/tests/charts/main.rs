//! The Helm charts of deploy/charts, rendered without a cluster.

mod files;
mod rights;
mod schemas;
mod templates;
mod values;
