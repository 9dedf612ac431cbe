//! mgt
