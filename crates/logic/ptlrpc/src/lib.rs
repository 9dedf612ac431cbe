//! ptlrpc
