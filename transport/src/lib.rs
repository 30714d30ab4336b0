//! A carrier as a tunnel: dial, greet, open streams, notice death, tell the truth about how a stream ended.
