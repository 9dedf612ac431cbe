//! The limit: one socket, one epoll, the same bytes both ways, without looking at them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::{Case, REPLY_BYTES, REQUEST_BYTES, Test, server};

/// Answers one connection after another. A connection starts with the sizes of request and reply.
pub(super) fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    server::announce(listener.local_addr()?.port())?;
    loop {
        let (mut stream, _) = listener.accept()?;
        let mut sizes = [0; 8];
        stream.read_exact(&mut sizes)?;
        let word = |at: usize| {
            u32::from_le_bytes([sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]]) as usize
        };
        let mut pump = Pump::new(stream, word(0), word(4), 0)?;
        while pump.turn()? {}
    }
}

/// Exchanges per second with `case.inflight` requests under way.
pub(super) fn measure(case: Case, port: u16) -> anyhow::Result<f64> {
    let (request, reply) = match case.test {
        Test::Ping => (REQUEST_BYTES, REPLY_BYTES),
        Test::Read => (REQUEST_BYTES, REPLY_BYTES + case.bytes),
        Test::Write => (REQUEST_BYTES + case.bytes, REPLY_BYTES),
    };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    for size in [request, reply] {
        stream.write_all(&u32::try_from(size)?.to_le_bytes())?;
    }
    let mut pump = Pump::new(stream, reply, request, case.inflight as usize)?;
    pump.run(case.span / 10)?;
    let (before, started) = (pump.done, Instant::now());
    pump.run(case.span)?;
    Ok((pump.done - before) as f64 / started.elapsed().as_secs_f64())
}

/// One end: for each unit that came in, one goes out.
struct Pump {
    stream: TcpStream,
    epoll: OwnedFd,
    unit_in: usize,
    unit_out: usize,
    part_in: usize, // of the unit that is coming
    owed: usize,    // bytes to write
    done: u64,      // units that came
    waits_out: bool,
    source: Vec<u8>,
    sink: Vec<u8>,
}

impl Pump {
    fn new(
        stream: TcpStream,
        unit_in: usize,
        unit_out: usize,
        start: usize,
    ) -> anyhow::Result<Pump> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &stream, EventData::new_u64(0), EventFlags::IN)?;
        let (source, sink) = (vec![1; 256 << 10], vec![0; 256 << 10]);
        let owed = start * unit_out;
        Ok(Pump {
            stream,
            epoll,
            unit_in,
            unit_out,
            part_in: 0,
            owed,
            done: 0,
            waits_out: false,
            source,
            sink,
        })
    }

    fn run(&mut self, span: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        self.write()?;
        while started.elapsed() < span {
            anyhow::ensure!(self.turn()?, "the bare server went away");
        }
        Ok(())
    }

    /// Waits, reads, answers. Says whether the connection is still there.
    fn turn(&mut self) -> anyhow::Result<bool> {
        let mut events = Vec::with_capacity(4);
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait))?;
        for event in events {
            let flags = event.flags; // the kernel's struct is packed
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
                && !self.read()?
            {
                return Ok(false);
            }
        }
        self.write()?;
        Ok(true)
    }

    fn read(&mut self) -> io::Result<bool> {
        let count = match self.stream.read(&mut self.sink) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error),
        };
        let units = (self.part_in + count) / self.unit_in;
        self.part_in = (self.part_in + count) % self.unit_in;
        self.done += units as u64;
        self.owed += units * self.unit_out;
        Ok(true)
    }

    fn write(&mut self) -> anyhow::Result<()> {
        while self.owed > 0 {
            let len = self.owed.min(self.source.len());
            match self.stream.write(&self.source[..len]) {
                Ok(count) => self.owed -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                    ) =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.waits_out != (self.owed > 0) {
            self.waits_out = self.owed > 0;
            let flags =
                if self.waits_out { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &self.stream, EventData::new_u64(0), flags)?;
        }
        Ok(())
    }
}
