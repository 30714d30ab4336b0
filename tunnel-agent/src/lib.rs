//! The cluster side: dials out, takes streams off the tunnel, hands them to its API server.
