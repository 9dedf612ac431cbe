//! env-os
