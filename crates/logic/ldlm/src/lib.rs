//! ldlm
