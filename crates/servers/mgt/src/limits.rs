//! Bounds of the MGT. Together they keep a configuration below [`wire::config::CONFIG_BYTES_MAX`].

/// Persistent parameters of one file system.
pub(crate) const PARAMS_MAX: usize = 1_024;
/// Bytes of a parameter's name.
pub(crate) const PARAM_NAME_BYTES_MAX: usize = 256;
/// Bytes of a parameter's value.
pub(crate) const PARAM_VALUE_BYTES_MAX: usize = 512;
/// Pools of one file system, each a parameter.
pub(crate) const POOLS_MAX: usize = 256;
/// Targets of one file system; about 30 bytes each. A client has 4,096 lanes (`LANES_MAX` of
/// `ptlrpc`): one for the MGS, one for each OST, and two for each MDT, its records and its data.
pub(crate) const TARGETS_MAX: usize = 2_047;
/// File systems of one MGS, some times as many as large sites have. All configurations are read for
/// each permanent parameter, and on a node of the MGS alone each second.
pub(crate) const FILE_SYSTEMS_MAX: usize = 64;

const PARAMS_BYTES: usize = PARAMS_MAX * (PARAM_NAME_BYTES_MAX + PARAM_VALUE_BYTES_MAX + 8);
const _: () = assert!(PARAMS_BYTES + TARGETS_MAX * 30 < wire::config::CONFIG_BYTES_MAX);
const _: () = assert!(PARAM_NAME_BYTES_MAX + 9 <= osd::KEY_BYTES_MAX);
