//! The trait of the services that the layers of the stack wrap.

use std::convert::Infallible;

use http::{Request, Response};
use tower::Service;

/// An HTTP service that always answers, and whose clones are equivalent.
pub(super) trait HttpService<In, Out>:
    Service<Request<In>, Response = Response<Out>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<T, In, Out> HttpService<In, Out> for T where
    T: Service<Request<In>, Response = Response<Out>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}
