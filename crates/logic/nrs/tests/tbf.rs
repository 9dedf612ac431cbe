//! `tbf` against its slow model: when each request leaves, when the head is to be asked again, the
//! answers of commands, and each rule's number of classes. The tests cover partitions, both heads,
//! scopes, removals and promotions. Rules come, change and go while classes still wait for the
//! rules before them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use crate::common::{Chance, HELD_MAX, Req, Service};
use crate::slow_tbf::{Answer, Command, Expr, Pairs, Rate, SECOND, Scope, Slow};
use nrs::{Dequeued, Handle, Moment, Removal, TbfNode, TbfParam, promote};
use types::Instant;
use wire::Opcode;

const MS: u64 = 1_000_000;
const PARTITIONS: usize = 3;
/// Requests queued at most: the slow one looks at all of them.
const QUEUED_MAX: usize = 250;

/// 10^6 operations in release, enough for each kind of step in debug.
const STEPS: u64 = if cfg!(debug_assertions) { 8_000 } else { 45_000 };
const SEEDS: u64 = if cfg!(debug_assertions) { 12 } else { 25 };

const OPCODES: [Opcode; 3] = [Opcode::OstRead, Opcode::OstWrite, Opcode::OstPunch];
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "default"];

struct World {
    seed: u64,
    step: u64,
    now: u64,
    fields: (bool, bool),
    chance: Chance,
    wave: u64, // how much more comes than goes, in percent
    service: Service<Req>,
    slow: Slow,
    queued: BTreeMap<u64, (usize, usize, Handle, Req)>,
    left: u64,
    forced: u64,
    waited: u64,
    refused: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let (arg, fields) =
            [("nid", (true, false)), ("opcode", (false, true)), ("nid+opcode", (true, true))]
                [seed as usize % 3];
        let attach_step = [256, 1, 2, 7][seed as usize % 4];
        let node = Rc::new(TbfNode::with_attach_step(attach_step));
        let idle_max = [4, 16, 8_192][seed as usize / 3 % 3];
        node.set(TbfParam::IdleClasses, &idle_max.to_string()).expect("in range");
        let mut service = Service::new(PARTITIONS as u32, &[node.descriptor()]);
        let now = 1_000 * SECOND + seed;
        service
            .all()
            .select(&format!("tbf {arg}"), Moment { now: Instant(now), seed })
            .expect("starts");
        World {
            seed,
            step: 0,
            now,
            fields,
            chance: Chance::new(seed),
            wave: 50,
            service,
            slow: Slow::new(fields, PARTITIONS, idle_max, attach_step),
            queued: BTreeMap::new(),
            left: 0,
            forced: 0,
            waited: 0,
            refused: 0,
        }
    }

    fn at(&self) -> String {
        format!("seed {}, step {}, now {}", self.seed, self.step, self.now)
    }

    fn step(&mut self) {
        if self.step.is_multiple_of(500) {
            self.wave = 20 + self.chance.below(60);
        }
        match self.chance.below(1_000) {
            0..860 if self.chance.below(100) < self.wave => self.send(),
            0..860 => self.ask(),
            860..885 => self.remove(),
            885..905 => self.promote(),
            905..925 => self.command(),
            925..928 => self.tune(),
            928..932 => self.compare_rules(),
            _ => self.pass_time(),
        }
    }

    fn pass_time(&mut self) {
        let scale = match self.chance.below(100) {
            0..60 => MS / 10,
            60..88 => MS,
            88..96 => 30 * MS,
            96..99 => SECOND,
            _ => 60 * SECOND,
        };
        let factor = if self.chance.one_in(15) { 20 } else { 1 };
        self.now += self.chance.below(factor * scale);
    }

    fn some_head(&mut self) -> (usize, usize) {
        (usize::from(self.chance.one_in(4)), self.chance.below(PARTITIONS as u64) as usize)
    }

    fn head(&mut self, head: usize, partition: usize) -> &mut nrs::Head<Req> {
        if head == 0 { &mut self.service.reg[partition] } else { &mut self.service.hp[partition] }
    }

    fn send(&mut self) {
        if self.queued.len() == QUEUED_MAX {
            return;
        }
        self.now += 1; // no two latest times are equal
        let client = 1 + self.chance.below(12).min(self.chance.below(12));
        let bytes = [0, 4_096, 1 << 20, 5 << 20][self.chance.below(4) as usize];
        let opcode = OPCODES[self.chance.below(3) as usize];
        let request =
            Req { opcode, range: (0, bytes), ..Req::new(self.step, client) }.at(Instant(self.now));
        let (head, partition) = self.some_head();
        self.enqueue(head, partition, request);
    }

    fn enqueue(&mut self, head: usize, partition: usize, request: Req) {
        let (number, now) = (request.number, self.now);
        let key = (request.client, request.opcode as u32);
        let leave_by = request.at.0 + HELD_MAX.0;
        self.slow.enqueue(head, partition, (number, key, request.range.1, leave_by), now);
        let handle = self.head(head, partition).enqueue(request.clone(), Instant(now));
        self.queued.insert(number, (head, partition, handle, request));
    }

    fn ask(&mut self) {
        let (head, partition) = self.some_head();
        let now = self.now;
        let got = match self.head(head, partition).dequeue(Instant(now)) {
            Dequeued::Taken(taken) => {
                self.head(head, partition).finished(taken.policy, Instant(now));
                Answer::Request(taken.request.number, taken.forced)
            }
            Dequeued::NotBefore(until) => Answer::NotBefore(until.0),
            Dequeued::Empty => Answer::Empty,
        };
        let want = self.slow.dequeue(head, partition, now);
        assert_eq!(got, want, "{}", self.at());
        match want {
            Answer::Request(number, forced) => {
                assert!(self.queued.remove(&number).is_some(), "{}", self.at());
                self.left += 1;
                self.forced += u64::from(forced);
            }
            Answer::NotBefore(until) => {
                self.waited += 1;
                if self.chance.one_in(20) {
                    self.now = until - self.chance.below(2); // just before, or in time
                }
            }
            Answer::Empty => {}
        }
        let queued = self.head(head, partition).len();
        assert_eq!(queued, self.slow.len(head, partition), "{}", self.at());
    }

    fn some_queued(&mut self) -> Option<u64> {
        let at = self.chance.below(self.queued.len().max(1) as u64) as usize;
        self.queued.keys().nth(at).copied()
    }

    fn remove(&mut self) {
        let Some(number) = self.some_queued() else { return };
        let (head, partition, handle, _) = self.queued.remove(&number).expect("just seen");
        let now = Instant(self.now);
        assert!(
            self.head(head, partition).remove(handle, now, Removal::Gone).is_some(),
            "{}",
            self.at()
        );
        assert!(self.slow.remove(head, partition, number, now.0), "{}", self.at());
    }

    fn promote(&mut self) {
        let Some(number) = self.some_queued() else { return };
        let (head, partition, handle, request) = self.queued[&number].clone();
        if head == 1 {
            return;
        }
        let (reg, hp) = (&mut self.service.reg[partition], &mut self.service.hp[partition]);
        let moved = promote(reg, hp, handle, Instant(self.now)).expect("it is queued");
        assert!(self.slow.remove(0, partition, number, self.now), "{}", self.at());
        let (key, leave_by) = ((request.client, request.opcode as u32), request.at.0 + HELD_MAX.0);
        self.slow.enqueue(1, partition, (number, key, request.range.1, leave_by), self.now);
        self.queued.insert(number, (1, partition, moved, request));
    }

    fn some_name(&mut self) -> String {
        NAMES[self.chance.below(NAMES.len() as u64) as usize].to_owned()
    }

    fn some_expr(&mut self) -> Expr {
        let by_client = if self.fields == (true, true) || self.chance.one_in(30) {
            self.chance.one_in(2)
        } else {
            self.fields.0
        };
        if by_client {
            let first = 1 + self.chance.below(12);
            return Expr::Clients(first, first + self.chance.below(2) * self.chance.below(6));
        }
        let mut opcodes = OPCODES.to_vec();
        opcodes.rotate_left(self.chance.below(3) as usize);
        opcodes.truncate(1 + self.chance.below(2) as usize);
        Expr::Opcodes(opcodes)
    }

    fn some_conds(&mut self) -> Vec<Vec<Expr>> {
        let mut conds = vec![vec![self.some_expr()]];
        if self.chance.one_in(3) {
            conds[0].push(self.some_expr());
        }
        if self.chance.one_in(3) {
            conds.push(vec![self.some_expr()]);
        }
        conds
    }

    fn some_pairs(&mut self) -> Pairs {
        let mut pairs = Pairs::default();
        let chance = &mut self.chance;
        if chance.one_in(2) {
            let milli = [100, 999, 7_000, 100_000, 3_333_333][chance.below(5) as usize];
            let bytes = [100_000, 5 << 20, 50_000_000][chance.below(3) as usize];
            pairs.rate = Some(if chance.one_in(3) {
                Rate::Bytes(bytes)
            } else {
                Rate::Milli(1 + chance.below(2 * milli))
            });
        }
        pairs.depth = chance.one_in(4).then(|| 1 + chance.below(9));
        pairs.realtime = chance.one_in(4).then(|| chance.one_in(2));
        pairs.scope = chance
            .one_in(4)
            .then(|| [Scope::Cpt, Scope::Service, Scope::Node][chance.below(3) as usize]);
        pairs.class = chance
            .one_in(6)
            .then(|| [(true, false), (false, true), (true, true)][chance.below(3) as usize]);
        pairs.total = chance.one_in(5).then(|| chance.one_in(2));
        if chance.one_in(4) {
            pairs.rank = Some(self.some_name());
        }
        pairs
    }

    fn command(&mut self) {
        let name = self.some_name();
        let command = match self.chance.below(5) {
            0..2 => Command::Start(name, self.some_conds(), self.some_pairs()),
            2..4 => {
                let mut pairs = self.some_pairs();
                // a change changes something
                pairs.depth = pairs.depth.or((!says_anything(&pairs)).then_some(2));
                Command::Change(name, pairs)
            }
            _ => Command::Stop(name),
        };
        let (word, heads) =
            [("", 0..2), ("reg ", 0..1), ("hp ", 1..2)][self.chance.below(3) as usize].clone();
        let text = format!("{word}{}", print(&command));
        let want = heads.clone().try_for_each(|head| self.slow.check(head, &command));
        let moment = Moment { now: Instant(self.now), seed: 0 };
        let got =
            self.service.all().set("nrs_tbf_rule", &text, moment).map_err(|refusal| refusal.errno);
        assert_eq!(got, want, "{}: {text}", self.at());
        match want {
            Ok(()) => heads.for_each(|head| self.slow.apply(head, &command, self.now)),
            Err(_) => self.refused += 1,
        }
    }

    fn tune(&mut self) {
        let moment = Moment { now: Instant(self.now), seed: 0 };
        if self.chance.one_in(4) {
            self.service.all().set("nrs_tbf_reset", "1", moment).expect("its only value");
            (0..2).for_each(|head| self.slow.reset(head, self.now));
        } else {
            let ms = self.chance.below(2_000);
            self.service
                .all()
                .set("nrs_tbf_rt_lag", &format!("hp_rt_lag:{ms}ms"), moment)
                .expect("in range");
            self.slow.set_rt_lag(1, ms * MS, self.now);
        }
    }

    fn compare_rules(&mut self) {
        let mut want = String::new();
        for (head, title) in ["regular_requests", "high_priority_requests"].into_iter().enumerate()
        {
            let _ = writeln!(want, "{title}:");
            for partition in 0..PARTITIONS {
                let _ = writeln!(want, "CPT {partition}:");
                for (name, refs) in self.slow.refs(head, partition) {
                    let _ = writeln!(want, "{name} ref {refs}");
                }
            }
        }
        let shown = self.service.all().get("nrs_tbf_rule", Instant(self.now)).expect("it runs");
        let mut got = String::new();
        for line in shown.lines() {
            match (line.split_once(' '), line.split_once(", ref ")) {
                (Some((name, _)), Some((_, rest))) => {
                    let refs = rest.split(' ').next().unwrap_or_default();
                    let _ = writeln!(got, "{name} ref {refs}");
                }
                _ => got.extend([line, "\n"]),
            }
        }
        assert_eq!(got, want, "{}:\n{shown}", self.at());
    }
}

fn says_anything(pairs: &Pairs) -> bool {
    let Pairs { rate, depth, realtime, scope, class, total, rank } = pairs;
    rate.is_some()
        || depth.is_some()
        || realtime.is_some()
        || scope.is_some()
        || class.is_some()
        || total.is_some()
        || rank.is_some()
}

fn print(command: &Command) -> String {
    match command {
        Command::Start(name, conds, pairs) => {
            let conds: Vec<String> = conds
                .iter()
                .map(|conj| conj.iter().map(print_expr).collect::<Vec<_>>().join("&"))
                .collect();
            format!("start {name} {}{}", conds.join(","), print_pairs(pairs))
        }
        Command::Change(name, pairs) => format!("change {name}{}", print_pairs(pairs)),
        Command::Stop(name) => format!("stop {name}"),
    }
}

fn print_expr(expr: &Expr) -> String {
    match expr {
        Expr::Clients(first, last) if first == last => format!("nid={{0.0.0.{first}@tcp}}"),
        Expr::Clients(first, last) => format!("nid={{0.0.0.[{first}-{last}]@tcp}}"),
        Expr::Opcodes(all) => {
            let names = all.iter().map(|opcode| match opcode {
                Opcode::OstRead => "ost_read",
                Opcode::OstWrite => "ost_write",
                _ => "ost_punch",
            });
            format!("opcode={{{}}}", names.collect::<Vec<_>>().join(" "))
        }
    }
}

fn print_pairs(pairs: &Pairs) -> String {
    let mut out = String::new();
    let Pairs { rate, depth, realtime, scope, class, total, rank } = pairs;
    let _ = match rate {
        Some(Rate::Milli(milli)) => write!(out, " rate={}.{:03}", milli / 1_000, milli % 1_000),
        Some(Rate::Bytes(bytes)) => write!(out, " bps={bytes}B/s"),
        None => Ok(()),
    };
    let mut pair = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(out, " {name}={value}");
        }
    };
    let bit = |bit: bool| u8::from(bit).to_string();
    pair("depth", depth.map(|depth| depth.to_string()));
    pair("realtime", realtime.map(bit));
    let scopes = |scope| match scope {
        Scope::Cpt => "cpt".to_owned(),
        Scope::Service => "service".to_owned(),
        Scope::Node => "node".to_owned(),
    };
    pair("scope", scope.map(scopes));
    let fields = |class| match class {
        (true, false) => "nid".to_owned(),
        (false, _) => "opcode".to_owned(),
        (true, true) => "nid+opcode".to_owned(),
    };
    pair("class", class.map(fields));
    pair("total", total.map(bit));
    pair("rank", rank.clone());
    out
}

#[test]
fn tbf_gives_each_request_when_its_slow_self_does() {
    let (mut left, mut forced, mut waited, mut refused) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.step = step;
            world.step();
        }
        for head in world.service.reg.iter_mut().chain(&mut world.service.hp) {
            assert_eq!(head.take_disabled(), [], "seed {seed}");
        }
        left += world.left;
        forced += world.forced;
        waited += world.waited;
        refused += world.refused;
    }
    let all = SEEDS * STEPS;
    assert!(
        left > all / 5 && waited > all / 40 && refused > all / 1_000,
        "{left} left, {waited} waits, {refused} refused"
    );
    assert!(forced > SEEDS, "{forced} forced");
}
