//! What holds on HTTP/2 alone.
