//! The outcome of a gRPC call as an HTTP status, which is what the audit log holds.

use audit::Status;
use tonic::Code;

/// The HTTP status of the same meaning, with the name of the gRPC code as its reason.
pub(crate) fn status(code: Code) -> Status {
    let (code, reason) = match code {
        Code::Ok => (200, ""),
        Code::InvalidArgument => (400, "InvalidArgument"),
        Code::OutOfRange => (400, "OutOfRange"),
        Code::Unauthenticated => (401, "Unauthenticated"),
        Code::PermissionDenied => (403, "PermissionDenied"),
        Code::NotFound => (404, "NotFound"),
        Code::AlreadyExists => (409, "AlreadyExists"),
        Code::Aborted => (409, "Aborted"),
        Code::FailedPrecondition => (412, "FailedPrecondition"),
        Code::ResourceExhausted => (429, "ResourceExhausted"),
        Code::Cancelled => (499, "Cancelled"),
        Code::Unknown => (500, "Unknown"),
        Code::Internal => (500, "Internal"),
        Code::DataLoss => (500, "DataLoss"),
        Code::Unimplemented => (501, "Unimplemented"),
        Code::Unavailable => (503, "Unavailable"),
        Code::DeadlineExceeded => (504, "DeadlineExceeded"),
    };
    Status { code, reason }
}
