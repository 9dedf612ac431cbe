//! Every family of metrics: its name, its kind and its help. Names with `lustre_` are those of
//! `lustre_exporter`.

/// Whether a value may fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It grows until the daemon ends or the counter is cleared.
    Counter,
    Gauge,
    /// Three kinds of series: buckets, their sum, and how many samples there are.
    Histogram,
}

/// Series of one name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

macro_rules! families {
    ($($id:ident = $kind:ident $name:literal, $help:literal;)*) => {
        $(pub(crate) const $id: &Family =
            &Family { name: $name, kind: Kind::$kind, help: $help };)*

        /// All of them.
        #[cfg(test)]
        pub(crate) const ALL: &[&Family] = &[$($id,)*];
    };
}

families! {
    BUILD = Gauge "nacre_build_info", "Version of the daemon, as a label";
    HEALTH = Gauge "lustre_health_check", "Current health status: 1 is healthy, 0 is unhealthy";
    REQUEST_MEMORY = Gauge "nacre_request_memory_bytes",
        "Memory of the requests that wait or are handled";
    REQUEST_MEMORY_MAX = Gauge "nacre_request_memory_maximum_bytes",
        "Memory that these requests may take";
    DROPPED = Gauge "nacre_metrics_dropped_series",
        "Series that were left out because there are too many";

    PROCESS_INFO = Gauge "nacre_process_info", "Name and number of the process, as labels";
    PROCESS_CPU = Counter "process_cpu_seconds_total", "CPU time in user mode and in the kernel";
    PROCESS_START = Gauge "process_start_time_seconds", "Start of the process, since 1970";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes", "Memory that is resident";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes", "Address space in use";
    PROCESS_THREADS = Gauge "process_threads", "Threads";
    PROCESS_FDS = Gauge "process_open_fds", "Open file descriptors";
    PROCESS_FDS_MAX = Gauge "process_max_fds", "File descriptors that may be open";

    CAPACITY = Gauge "lustre_capacity_kibibytes", "Capacity of the pool in kibibytes";
    FREE = Gauge "lustre_free_kibibytes", "Number of kibibytes free in the pool";
    AVAILABLE = Gauge "lustre_available_kibibytes",
        "Number of kibibytes readily available in the pool";
    INODES = Gauge "lustre_inodes_maximum",
        "The maximum number of inodes (objects) the filesystem can hold";
    INODES_FREE = Gauge "lustre_inodes_free", "The number of inodes (objects) available";
    DIRTY = Gauge "nacre_dirty_data_bytes", "Bytes written that are not durable yet";
    COMMITTED = Gauge "nacre_last_committed",
        "Transaction number up to which everything is durable";
    DAMAGED = Gauge "nacre_scrub_damaged", "1 if the scrub has found a damaged page of records";

    EXPORTS = Gauge "lustre_exports_total", "Number of clients that are connected";
    EVICTIONS = Counter "nacre_evictions_total", "Clients that were evicted";
    CALLBACK_TIMEOUTS = Counter "nacre_callback_timeouts_total",
        "Callbacks that a client did not answer in time";
    RECOVERY = Gauge "nacre_recovery_state",
        "Recovery: 0 is complete, 1 waits for the first client, 2 is under way";
    RECOVERY_REMAINING = Gauge "nacre_recovery_remaining_seconds",
        "Time left for recovery without further progress";
    RECOVERY_CLIENTS = Gauge "nacre_recovery_clients",
        "Clients of the recovery: all that it knows, those that are back, those that are done";
    RECOVERY_QUEUED = Gauge "nacre_recovery_queued_requests",
        "Replayed requests that wait for their turn";
    RECOVERY_REPLAYED = Counter "nacre_recovery_replayed_requests_total",
        "Requests that were replayed since the target started";

    OPEN_HANDLES = Gauge "nacre_open_handles", "Files held open by clients";
    LOCKS_HELD = Gauge "nacre_locks_held", "File locks held";
    LOCKS_WAITING = Gauge "nacre_locks_waiting", "File locks waited for";
    LEASES_HELD = Gauge "nacre_leases_held", "Short leases held by clients";
    LEASE_WAITS = Counter "nacre_lease_waits_total", "Changes that waited for a short lease";
    GRANTS_HELD = Gauge "nacre_grants_held", "Grants of clients that can be called back";
    GRANTS_RECALLED = Counter "nacre_grants_recalled_total", "Grants that were called back";
    GRANT_WAITS = Counter "nacre_grant_waits_total", "Changes that waited for a recall";
    GRANTS_EXPELLED = Counter "nacre_grants_expelled_total",
        "Clients whose lease ended while a change waited for them";
    SIZES_REPAIRED = Counter "nacre_sizes_repaired_total",
        "Files whose size an MDT has asked of their objects because no client writes them";
    SIZES_QUEUED = Gauge "nacre_sizes_queued", "Files whose size an MDT is to ask for";
    GRANT_HITS = Counter "nacre_grant_hits_total", "Calls of a mount that a grant has answered";
    LOCK_COUNT = Gauge "lustre_lock_count_total", "Number of locks";

    LOST = Counter "nacre_lost_changes_total", "Acknowledged changes of a mount that are lost";
    AWAITED = Gauge "nacre_awaited_servers", "Servers that operations of a mount wait for";
    IMPORT_UP = Gauge "nacre_import_up",
        "1 if a mount's session with a target is up, 0 if it is not";
    KEPT_BYTES = Gauge "nacre_writeback_bytes",
        "Bytes of small writes that a mount has acknowledged and not sent yet";
    KEPT_WRITES = Counter "nacre_writeback_writes_total",
        "Small writes that a mount acknowledged before it sent them";
    KEPT_WRITTEN = Counter "nacre_writeback_written_bytes_total",
        "Bytes of small writes that a mount acknowledged before it sent them";
    KEPT_RUNS = Counter "nacre_writeback_runs_total",
        "Larger writes that a mount put together from small ones";
    KEPT_REFUSED = Counter "nacre_writeback_refusals_total",
        "Small writes that were sent at once because the OSTs had no room to promise";
    RESTING = Gauge "nacre_open_cache_handles",
        "Handles that programs have closed and a mount keeps open";
    REOPENS = Counter "nacre_open_cache_opens_total", "Opens of a mount that used such a handle";
    AHEAD_SERIES = Counter "nacre_statahead_series_total",
        "Series of names that a mount asked for ahead";
    AHEAD_WRONG = Counter "nacre_statahead_wrong_series_total",
        "Series that ended because of misses";
    AHEAD_NAMES = Counter "nacre_statahead_names_total", "Names that a mount asked for ahead";
    AHEAD_SIZES = Counter "nacre_statahead_sizes_total",
        "Files whose objects a mount asked for their size ahead";
    AHEAD_HITS = Counter "nacre_statahead_hits_total",
        "Names looked up that had been asked for ahead";
    AHEAD_MISSES = Counter "nacre_statahead_misses_total",
        "Names of a series looked up that had not been asked for ahead";

    STATS = Counter "lustre_stats_total", "Number of operations the filesystem has performed.";
    READS = Counter "lustre_read_samples_total",
        "Total number of transfers that have been recorded.";
    READ_MIN = Gauge "lustre_read_minimum_size_bytes", "The minimum transfer size in bytes.";
    READ_MAX = Gauge "lustre_read_maximum_size_bytes", "The maximum transfer size in bytes.";
    READ_BYTES = Counter "lustre_read_bytes_total",
        "The total number of bytes that have been transferred.";
    WRITES = Counter "lustre_write_samples_total",
        "Total number of transfers that have been recorded.";
    WRITE_MIN = Gauge "lustre_write_minimum_size_bytes", "The minimum transfer size in bytes.";
    WRITE_MAX = Gauge "lustre_write_maximum_size_bytes", "The maximum transfer size in bytes.";
    WRITE_BYTES = Counter "lustre_write_bytes_total",
        "The total number of bytes that have been transferred.";

    JOB_STATS = Counter "lustre_job_stats_total",
        "Number of operations the filesystem has performed.";
    JOB_READS = Counter "lustre_job_read_samples_total",
        "Total number of transfers that have been recorded.";
    JOB_READ_BYTES = Counter "lustre_job_read_bytes_total",
        "The total number of bytes that have been transferred.";
    JOB_WRITES = Counter "lustre_job_write_samples_total",
        "Total number of transfers that have been recorded.";
    JOB_WRITE_BYTES = Counter "lustre_job_write_bytes_total",
        "The total number of bytes that have been transferred.";

    JOB_REQUESTS = Counter "nacre_job_requests_total",
        "Requests of a job that a target has answered";
    JOB_WAIT = Counter "nacre_job_wait_seconds_total",
        "Time from the arrival of a job's requests to their start";

    CLIENT_REQUESTS = Counter "nacre_client_requests_total",
        "Requests of a client node that a target has answered";
    CLIENT_WAIT = Counter "nacre_client_wait_seconds_total",
        "Time from the arrival of a client node's requests to their start";
    CLIENT_READ_BYTES = Counter "nacre_client_read_bytes_total",
        "Bytes that a client node has read from a target";
    CLIENT_WRITE_BYTES = Counter "nacre_client_write_bytes_total",
        "Bytes that a client node has written to a target";

    REQUESTS = Counter "nacre_requests_total", "Requests that a service has handled";
    REQUEST_SECONDS = Counter "nacre_request_seconds_total",
        "Time that a service took to handle requests, without their wait";
    REQUEST_MAX = Gauge "nacre_request_maximum_seconds",
        "Longest time that a service took to handle a request";
    WAITS = Counter "nacre_request_waits_total", "Requests that a service has started";
    WAIT_SECONDS = Counter "nacre_request_wait_seconds_total",
        "Time from the arrival of requests to their start";
    WAIT_MAX = Gauge "nacre_request_wait_maximum_seconds",
        "Longest time from the arrival of a request to its start";
    WAIT_TIMES = Histogram "nacre_request_wait_times_seconds",
        "Times from the arrival of requests to their start";
    HANDLING_TIMES = Histogram "nacre_request_times_seconds",
        "Times that a service took to handle requests, without their wait";
    SERVICE_SAMPLES = Counter "nacre_service_samples_total",
        "Samples of another counter of a service";
    SERVICE_SUM = Counter "nacre_service_sum_total", "Sum of another counter of a service";
    SERVICE_MAX = Gauge "nacre_service_maximum", "Largest sample of another counter of a service";
    BY_CPT = Counter "nacre_cpt_requests_total", "Requests that a CPU partition has handled";

    NRS_QUEUED = Gauge "nacre_nrs_queued_requests", "Requests that a policy holds";
    NRS_ACTIVE = Gauge "nacre_nrs_active_requests",
        "Requests that left a policy and are handled now";
    NRS_STARTED = Counter "nacre_nrs_started_requests_total", "Requests that left a policy";
    NRS_FORCED = Counter "nacre_nrs_forced_requests_total",
        "Requests that left a policy against its limits, because they were overdue";
    NRS_WAIT = Counter "nacre_nrs_wait_seconds_total",
        "Time from the arrival of requests until they left a policy";
    NRS_WAIT_MAX = Gauge "nacre_nrs_wait_maximum_seconds",
        "Longest time from the arrival of a request until it left a policy";

    SENT = Counter "lustre_send_count_total", "Total number of messages that have been sent";
    SENT_BYTES = Counter "lustre_send_bytes_total", "Total number of bytes sent";
    RECEIVED = Counter "lustre_receive_count_total",
        "Total number of messages that have been received";
    RECEIVED_BYTES = Counter "lustre_receive_bytes_total", "Total number of bytes received";
    PEERS = Gauge "nacre_lnet_peers", "Peers that are known";
    INTERFACE_CREDITS = Gauge "nacre_lnet_interface_credits",
        "Credits for messages: at rest, now, and the lowest ever; below zero is a queue";
    PEER_CREDITS = Gauge "nacre_lnet_peer_credits",
        "Credits for messages: at rest, now, and the lowest ever; below zero is a queue";
    PEER_QUEUE = Gauge "nacre_lnet_peer_queue_bytes", "Bytes of messages that are not sent";
}
