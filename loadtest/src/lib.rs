//! Many callers through the tunnel, beside direct access to the same API server.
