//! What everything of ours carries.

/// Whose store it belongs to.
pub const HOME: &str = "org.envharness.home";
/// The context, replica or build it serves.
pub const OWNER: &str = "org.envharness.owner";
/// What it is: `context`, `replica` or `probe`.
pub const ROLE: &str = "org.envharness.role";
/// When it may be removed whatever its owner does, in seconds since 1970.
pub const DEADLINE: &str = "org.envharness.deadline";
