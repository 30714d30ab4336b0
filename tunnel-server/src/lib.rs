//! The cloud side: a door for callers, a door for agents, and the hall between.
