//! What the bytes between server and agent mean, and what each side may do next.
