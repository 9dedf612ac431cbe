//! The parameters of services and of adaptive timeouts, under Lustre's names.

use std::rc::{Rc, Weak};

use nrs::Refusal;
use params::{ParamRefusal, ParamTree, parse_within};
use ptlrpc::AtConfig;
use types::{Errno, Span};

use crate::node::Node;
use crate::services::{HeadScope, Service};
use crate::threads::{Threads, ThreadsError};
use crate::{ServiceSpec, limits};

type Shown = Result<String, ParamRefusal>;
type Done = Result<(), ParamRefusal>;

/// Registers parameters of the node and of `services` in `tree`.
pub(crate) fn register(node: &Rc<Node>, tree: &ParamTree, services: &[&'static ServiceSpec]) {
    register_times(node, tree);
    register_memory(node, tree);
    for param in nrs::TbfParam::ALL {
        let (shown, set) = (Rc::clone(&node.tbf), Rc::clone(&node.tbf));
        let write = move |value: &str| set.set(param, value).map_err(refused);
        tree.register_fallible_rw(param.name(), move || Ok(shown.get(param).to_string()), write);
    }
    for spec in services {
        let params = Params { node: Rc::downgrade(node), tree, spec };
        params.threads();
        params.statistics();
        params.scheduler();
        params.tunables(node);
    }
}

impl Node {
    /// Registers parameters of the node and of `services` in `tree`.
    pub fn register_params(self: &Rc<Self>, tree: &ParamTree, services: &[&'static ServiceSpec]) {
        register(self, tree, services);
    }

    /// Partitions that have served nothing for longer than `at_unhealthy_factor` allows although
    /// requests wait, a line each.
    #[must_use]
    pub fn starved(&self) -> String {
        let (now, longest) = (self.env.now(), self.terms.at.get().starved_after());
        let mut out = String::new();
        for service in self.services.borrow().iter() {
            for partition in service.in_use() {
                let since = partition.starves_since().map_or(Span::ZERO, |since| now - since);
                if since > longest {
                    let secs = since.0 / 1_000_000_000;
                    out.push_str(&format!(
                        "{}: partition {} has served nothing for {secs} s, and requests wait\n",
                        service.spec.path,
                        partition.name()
                    ));
                }
            }
        }
        out
    }

    /// Settings of adaptive timeouts.
    pub fn adaptive_timeouts(&self) -> AtConfig {
        self.terms.at.get()
    }
}

fn gone() -> ParamRefusal {
    ParamRefusal::new(Errno::ESHUTDOWN, "the node stops")
}

fn refused(refusal: Refusal) -> ParamRefusal {
    ParamRefusal::new(refusal.errno, refusal.text)
}

fn threads_refused(error: ThreadsError) -> ParamRefusal {
    match error {
        ThreadsError::Invalid(why) => ParamRefusal::invalid(why),
        ThreadsError::Range(why) => ParamRefusal::new(Errno::ERANGE, why),
    }
}

struct Params<'a> {
    node: Weak<Node>,
    tree: &'a ParamTree,
    spec: &'static ServiceSpec,
}

impl Params<'_> {
    fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.spec.path)
    }

    fn shown(&self, name: &str, read: impl Fn(&Rc<Node>, &Rc<Service>) -> Shown + 'static) {
        self.tree.register_fallible(self.name(name), self.reader(read));
    }

    fn set(
        &self,
        name: &str,
        read: impl Fn(&Rc<Node>, &Rc<Service>) -> Shown + 'static,
        write: impl Fn(&Rc<Node>, &Rc<Service>, &str) -> Done + 'static,
    ) {
        let (node, spec) = (self.node.clone(), self.spec);
        let write = move |value: &str| {
            let node = node.upgrade().ok_or_else(gone)?;
            let service = node.service(spec);
            write(&node, &service, value)
        };
        self.tree.register_fallible_rw(self.name(name), self.reader(read), write);
    }

    fn reader<T: 'static>(
        &self,
        read: impl Fn(&Rc<Node>, &Rc<Service>) -> Result<T, ParamRefusal> + 'static,
    ) -> impl Fn() -> Result<T, ParamRefusal> + 'static {
        let (node, spec) = (self.node.clone(), self.spec);
        move || {
            let node = node.upgrade().ok_or_else(gone)?;
            let service = node.service(spec);
            read(&node, &service)
        }
    }

    fn threads(&self) {
        type With = fn(Threads, &ServiceSpec, u32, &str) -> Result<Threads, ThreadsError>;
        let writer = |with: With| {
            move |node: &Rc<Node>, service: &Rc<Service>, value: &str| {
                let threads = with(service.threads.get(), service.spec, partitions(service), value)
                    .map_err(threads_refused)?;
                service.set_threads(threads);
                node.run_all(service);
                Ok(())
            }
        };
        let total = |each: u32, service: &Service| Ok((each * partitions(service)).to_string());
        self.set(
            "threads_min",
            move |_, service| total(service.threads.get().min, service),
            writer(Threads::with_min),
        );
        self.set(
            "threads_max",
            move |_, service| total(service.threads.get().max, service),
            writer(Threads::with_max),
        );
        self.shown("threads_started", |_, service| {
            Ok(service
                .in_use()
                .iter()
                .map(|partition| partition.slots.count())
                .sum::<u32>()
                .to_string())
        });
        self.set(
            "high_priority_ratio",
            |_, service| Ok(service.partitions[0].pick.borrow().ratio().to_string()),
            |_, service, value| {
                let ratio = parse_within(value, 0, u32::MAX)?;
                service
                    .in_use()
                    .iter()
                    .for_each(|partition| partition.pick.borrow_mut().set_ratio(ratio));
                Ok(())
            },
        );
    }

    fn statistics(&self) {
        let (node, spec) = (self.node.clone(), self.spec);
        let service = move || Ok::<_, ParamRefusal>(node.upgrade().ok_or_else(gone)?.service(spec));
        let read = service.clone();
        let cleared = service.clone();
        let clear = move || {
            *service()?.stats.borrow_mut() = crate::stats::Stats::default();
            Ok(())
        };
        self.tree.register_table(
            self.name("stats"),
            move || Ok(read()?.stats.borrow().table()),
            Some(Rc::new(clear)),
        );
        self.tree.register_typed_rw(
            self.name("req_histograms"),
            self.reader(|_, service| Ok(Some(service.stats.borrow().histograms()))),
            move |_| {
                cleared()?.stats.borrow_mut().clear_histograms();
                Ok(())
            },
        );
        self.shown("timeouts", |node, service| Ok(timeouts(node, service)));
        self.shown("req_history", |_, service| Ok(service.history.borrow().print()));
        self.shown("req_buffer_history_len", |_, service| {
            Ok(service.history.borrow().len().to_string())
        });
        self.set(
            "req_buffer_history_max",
            |_, service| Ok(service.history.borrow().max().to_string()),
            |_, service, value| {
                let max = parse_within(value, 0, limits::HISTORY_MAX)?;
                service.history.borrow_mut().set_max(max);
                Ok(())
            },
        );
        self.set(
            "req_buffers_max",
            |_, service| Ok(service.buffers_max.get().to_string()),
            |_, service, value| {
                service.buffers_max.set(parse_within(value, 0, limits::BUFFERS_MAX)?);
                Ok(())
            },
        );
    }

    fn scheduler(&self) {
        let (node, spec) = (self.node.clone(), self.spec);
        let write = move |value: String| {
            let node = node.upgrade();
            async move { node.ok_or_else(gone)?.nrs_select(spec, &value).await.map_err(refused) }
        };
        self.tree.register_waiting(
            self.name("nrs_policies"),
            self.reader(move |node, _| Ok(node.nrs_policies(spec))),
            write,
        );
        let stats = self.reader(move |node, _| Ok(Some(node.nrs_stats(spec))));
        self.tree.register_typed(self.name("nrs_stats"), stats);
        self.set(
            "nrs_log",
            |_, service| Ok(if service.log.get() { "on" } else { "off" }.to_owned()),
            |_, service, value| {
                match value.trim() {
                    "on" | "1" => service.set_log(true),
                    "off" | "0" => service.set_log(false),
                    _ => return Err(ParamRefusal::invalid("expected on or off")),
                }
                Ok(())
            },
        );
        self.set(
            "nrs_head_scope",
            |_, service| Ok(service.scope.get().name().to_owned()),
            move |node, _, value| {
                let scope = HeadScope::from_name(value.trim())
                    .ok_or_else(|| ParamRefusal::invalid("expected service, target or cpt"))?;
                node.set_head_scope(spec, scope).map_err(refused)
            },
        );
    }

    fn tunables(&self, node: &Rc<Node>) {
        let spec = self.spec;
        let service = node.service(spec);
        let mine = service
            .policies
            .iter()
            .filter(|policy| policy.service.is_none_or(|only| only == spec.name));
        for tunable in mine.flat_map(|policy| policy.tunables) {
            let name = tunable.parameter;
            let read =
                move |node: &Rc<Node>, _: &Rc<Service>| node.nrs_get(spec, name).map_err(refused);
            if tunable.writable {
                self.set(name, read, move |node, _, value| {
                    node.nrs_set(spec, name, value).map_err(refused)
                });
            } else {
                self.shown(name, read);
            }
        }
    }
}

fn partitions(service: &Service) -> u32 {
    u32::try_from(service.partitions.len()).expect("partitions are bounded")
}

/// `service : cur 5 worst 31 (at <epoch>, 1210s ago) 5 5 5 5`, seconds, one line per partition.
fn timeouts(node: &Node, service: &Service) -> String {
    let (now, wall, config) = (node.env.now(), node.env.wall(), node.terms.at.get());
    let secs = |span: Span| span.0.div_ceil(1_000_000_000);
    let mut out = String::new();
    for partition in service.in_use() {
        let mut estimate = partition.estimate.borrow_mut();
        let current = estimate.current(now, &config);
        let (worst, worst_at) = estimate.worst();
        let ago = (now - worst_at).0 / 1_000_000_000;
        let bins = estimate.bins().map(|bin| secs(bin).to_string()).join(" ");
        let at = wall.sec.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX));
        out.push_str(&format!(
            "service : cur {} worst {} (at {at}, {ago}s ago) {bins}\n",
            secs(current),
            secs(worst)
        ));
    }
    out
}

fn register_times(node: &Rc<Node>, tree: &ParamTree) {
    type Field = fn(&mut AtConfig) -> &mut Span;
    let all: [(&str, u64, Field); 5] = [
        ("at_min", 0, |at| &mut at.min),
        ("at_max", 0, |at| &mut at.max),
        ("at_history", 8, |at| &mut at.history),
        ("at_early_margin", 1, |at| &mut at.early_margin),
        ("at_extra", 1, |at| &mut at.extra),
    ];
    for (name, least, field) in all {
        let (shown, set) = (Rc::downgrade(node), Rc::downgrade(node));
        let read = move || {
            let mut at = shown.upgrade().map(|node| node.terms.at.get()).unwrap_or_default();
            (field(&mut at).0 / 1_000_000_000).to_string()
        };
        let write = move |value: &str| {
            let secs = parse_within(value, least, limits::AT_SECS_MAX)?;
            let Some(node) = set.upgrade() else { return Ok(()) };
            let mut at = node.terms.at.get();
            *field(&mut at) = Span::secs(secs);
            if at.max != Span::ZERO && at.min > at.max {
                return Err("at_min is not above at_max".to_owned());
            }
            node.terms.at.set(at);
            node.look_at_all();
            Ok(())
        };
        tree.register_rw(name, read, write);
    }
    register_unhealthy(node, tree);
}

/// `req_bytes_max`, and what is held of it.
fn register_memory(node: &Rc<Node>, tree: &ParamTree) {
    let (shown, set, held) = (Rc::downgrade(node), Rc::downgrade(node), Rc::downgrade(node));
    let read = move || Ok(Some(shown.upgrade().map_or(0, |node| node.req_bytes_max.get())));
    let write = move |value: &str| {
        let bytes = parse_within(value, limits::REQ_BYTES_MIN, limits::REQ_BYTES_MAX)?;
        if let Some(node) = set.upgrade() {
            node.req_bytes_max.set(bytes);
        }
        Ok(())
    };
    tree.register_typed_rw("req_bytes_max", read, write);
    tree.register_number("req_bytes", move || held.upgrade().map_or(0, |node| node.memory.total()));
}

fn register_unhealthy(node: &Rc<Node>, tree: &ParamTree) {
    let (shown, set) = (Rc::downgrade(node), Rc::downgrade(node));
    let read = move || {
        shown
            .upgrade()
            .map(|node| node.terms.at.get())
            .unwrap_or_default()
            .unhealthy_factor
            .to_string()
    };
    let write = move |value: &str| {
        let unhealthy_factor = parse_within(value, 1, limits::UNHEALTHY_FACTOR_MAX)?;
        if let Some(node) = set.upgrade() {
            node.terms.at.set(AtConfig { unhealthy_factor, ..node.terms.at.get() });
        }
        Ok(())
    };
    tree.register_rw("at_unhealthy_factor", read, write);
}
