//! The HTTP and WebSocket front of environment servers.
