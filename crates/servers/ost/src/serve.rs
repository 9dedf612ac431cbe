//! The part of an OST in the service's `Target` trait.

use std::rc::Rc;

use env::LocalFuture;
use service::spec::OST;
use service::{Class, ClientRecord, Direction, Exports, Incoming, ObjectIo, Session, Target};
use types::{Errno, Extent, Fid, Instant, TargetId};
use wire::body::{OstAttr, OstIoReq};
use wire::{Reply, Request, RequestFlags};

use crate::op::{self, Head};
use crate::target::Ost;

impl Ost {
    /// A request that began at `began` is answered.
    fn count(&self, incoming: &Incoming, reply: &Reply, began: Instant) {
        let now = self.env.now();
        let row = op::row(incoming.request.opcode()).filter(|_| reply.errno().is_none());
        let done = row.map(|row| {
            let bytes = u64::from(match row.moves {
                Some(Direction::Read) => reply.body::<OstAttr>().length,
                Some(Direction::Write) => incoming.request.body::<OstIoReq>().length,
                None => 0,
            });
            if let Some(direction) = row.moves {
                self.sizes.borrow_mut().add(direction, bytes, now - began);
            }
            (row.kind, bytes)
        });
        let (nid, job) = (incoming.peer(), incoming.request.header.jobid);
        self.tally.count(now, nid, job, Some(incoming.waited()), done);
    }

    async fn execute(self: Rc<Self>, incoming: Incoming) -> Reply {
        let began = self.env.now();
        let done = op::execute(&self, &incoming).await;
        let mut reply = done.unwrap_or_else(|errno| Reply::error(&incoming.request.header, errno));
        let wants_sync = incoming.request.has(RequestFlags::SYNC) && !reply.transno().is_none();
        if wants_sync && let Err(errno) = self.commit_upto(reply.transno()).await {
            reply = Reply::error(&incoming.request.header, errno);
        }
        self.count(&incoming, &reply, began);
        self.store.failure().unless_over(reply).await
    }
}

fn object_io(direction: Direction, body: &OstIoReq) -> ObjectIo {
    let bytes = u64::from(body.length);
    let end = body.offset.checked_add(bytes);
    let range = end.and_then(|end| Extent::new(body.offset, end));
    ObjectIo { direction, object: body.object.into(), range, bytes }
}

impl Target for Ost {
    fn id(&self) -> TargetId {
        TargetId::ost(self.config.index)
    }

    fn failed(&self) -> LocalFuture<'static, String> {
        self.store.failure().happened()
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn class(&self, request: &Request) -> Class {
        let Some(row) = op::row(request.opcode()) else {
            return Class::of(op::queue(&OST, self.id()));
        };
        let io = row.moves.map(|direction| object_io(direction, &request.body()));
        let service = op::queue(row.service, self.id());
        let high_priority = row.head == Head::HighPriority;
        Class { service, high_priority, io, answer_bytes: op::answer_bytes(row, request) }
    }

    fn locate(self: Rc<Self>, object: Fid, range: Extent) -> LocalFuture<'static, Option<u64>> {
        Box::pin(async move { self.objects.locate(object, range).await.ok().flatten() })
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(self.execute(incoming))
    }

    fn remember_client(
        self: Rc<Self>,
        record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(async move {
            let remembered = async {
                self.apply(&target::remember(&record)).await?;
                if !record.is_server {
                    self.tombstones.borrow_mut().session_began(record.session);
                }
                self.store.commit().await.map_err(|error| error.errno())
            };
            let remembered = remembered.await;
            self.store.failure().unless_over(remembered).await
        })
    }

    fn note_clients(
        self: Rc<Self>,
        records: Vec<ClientRecord>,
        commits: bool,
    ) -> LocalFuture<'static, bool> {
        Box::pin(async move {
            let note = || {
                let set = target::note(&*self.store.meta().running()?, &records)?;
                Ok(self.store.meta().apply(&set)?)
            };
            let mut noted = self.persist(note).await.map(|()| self.changed(0));
            if commits && noted.is_ok() {
                noted = self.store.commit().await.map_err(|error| error.errno());
            }
            let is_noted = noted.is_ok();
            if let Err(errno) = noted {
                tracing::warn!(target_id = %self.exports.name(), %errno, "records of clients do not name silent ones");
            }
            is_noted
        })
    }

    fn sessions_ended(
        self: Rc<Self>,
        sessions: Vec<Rc<Session>>,
        evicted: bool,
    ) -> LocalFuture<'static, ()> {
        for session in &sessions {
            self.reserved.borrow_mut().end(session.id);
        }
        Box::pin(async move {
            if let Err(error) = self.forget_clients(&sessions, evicted).await {
                let clients = sessions.len();
                tracing::warn!(target_id = %self.exports.name(), clients, %error, "records stay until the next start");
            }
            self.store.failure().unless_over(()).await;
        })
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        // Objects have no opens; locks live as long as an operation.
        self.mdts.borrow_mut().recovered();
        Box::pin(async {})
    }
}
