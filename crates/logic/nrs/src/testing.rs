//! A service with some partitions on virtual time, for the tests of policies that use time.

use types::{CptIndex, Instant, Nid, Span};
use wire::Opcode;

use crate::{
    Dequeued, Descriptor, Handle, Head, HeadKind, ID_NONE, Moment, Refusal, Request, ServiceHeads,
};

#[derive(Clone, Debug)]
pub(crate) struct Req {
    pub(crate) number: u64,
    pub(crate) nid: Nid,
    pub(crate) opcode: Opcode,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) projid: u32,
    pub(crate) jobid: String,
    pub(crate) bytes: u64,
    pub(crate) at: Instant,
}

impl Default for Req {
    fn default() -> Req {
        Req {
            number: 0,
            nid: Nid(2 << 48 | 7),
            opcode: Opcode::OstWrite,
            uid: 500,
            gid: 500,
            projid: ID_NONE,
            jobid: String::new(),
            bytes: 1 << 20,
            at: Instant(0),
        }
    }
}

impl Req {
    pub(crate) fn job(jobid: &str) -> Req {
        Req { jobid: jobid.to_owned(), ..Req::default() }
    }
}

impl Request for Req {
    fn nid(&self) -> Nid {
        self.nid
    }
    fn export(&self) -> Option<u64> {
        Some(self.nid.0)
    }
    fn opcode(&self) -> Opcode {
        self.opcode
    }
    fn uid(&self) -> u32 {
        self.uid
    }
    fn gid(&self) -> u32 {
        self.gid
    }
    fn projid(&self) -> u32 {
        self.projid
    }
    fn jobid(&self) -> &str {
        &self.jobid
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn arrival(&self) -> Instant {
        self.at
    }
    fn leave_by(&self) -> Instant {
        self.at + Span::secs(595)
    }
}

/// A request that left.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) number: u64,
    pub(crate) jobid: String,
    pub(crate) partition: usize,
    pub(crate) bytes: u64,
    pub(crate) at: Instant,
}

pub(crate) struct Server {
    pub(crate) heads: Vec<Head<Req>>,
    pub(crate) now: Instant,
    /// Each request that leaves is followed by one like it: the backlog never ends.
    pub(crate) refill: bool,
    seed: u64,
}

pub(crate) fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

impl Server {
    pub(crate) fn new(partitions: u32, policies: &[Descriptor<Req>]) -> Server {
        let head = |cpt| Head::new("ost_io", HeadKind::Reg, CptIndex(cpt), policies);
        Server {
            heads: (0..partitions).map(head).collect(),
            now: Instant(0),
            refill: false,
            seed: 1,
        }
    }

    pub(crate) fn control(&mut self) -> (ServiceHeads<'_, Req>, Moment) {
        self.seed += 1;
        let moment = Moment { now: self.now, seed: self.seed };
        (ServiceHeads { reg: self.heads.iter_mut().collect(), hp: Vec::new() }, moment)
    }

    pub(crate) fn select(&mut self, value: &str) -> Result<(), Refusal> {
        let (mut partitions, moment) = self.control();
        partitions.select(value, moment).map(drop)
    }

    pub(crate) fn set(&mut self, parameter: &str, value: &str) -> Result<(), Refusal> {
        let (mut partitions, moment) = self.control();
        partitions.set(parameter, value, moment)
    }

    pub(crate) fn get(&mut self, parameter: &str) -> String {
        let (mut partitions, moment) = self.control();
        partitions.get(parameter, moment.now).unwrap_or_else(|error| panic!("{parameter}: {error}"))
    }

    pub(crate) fn put(&mut self, partition: usize, request: Req) -> Handle {
        let now = self.now;
        self.heads[partition].enqueue(Req { at: now, ..request }, now)
    }

    pub(crate) fn enqueue(&mut self, partition: usize, request: Req) {
        self.put(partition, request);
    }

    /// Serves until `end`: partitions are looked at when they say so and on each millisecond,
    /// always in the same order, at most `per_ms` requests a millisecond and partition.
    pub(crate) fn run(&mut self, end: Instant, per_ms: u64) -> Vec<Left> {
        let mut out = Vec::new();
        while self.now < end {
            for partition in 0..self.heads.len() {
                self.serve(partition, per_ms, &mut out);
            }
            self.now = self.now + Span::millis(1);
        }
        out
    }

    fn serve(&mut self, partition: usize, per_ms: u64, out: &mut Vec<Left>) {
        for _ in 0..per_ms {
            let now = self.now;
            let Dequeued::Taken(taken) = self.heads[partition].dequeue(now) else { break };
            let request = taken.request;
            self.heads[partition].finished(taken.policy, now);
            let (number, bytes) = (request.number, request.bytes);
            out.push(Left { number, jobid: request.jobid.clone(), partition, bytes, at: now });
            if self.refill {
                self.enqueue(partition, request);
            }
        }
    }
}
