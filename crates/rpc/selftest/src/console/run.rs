//! Batches and their tests: how they are added, started, stopped and queried.

use std::fmt::Write as _;
use std::rc::Rc;

use lst::command::Answer;
use lst::{BookError, Test, limits};
use types::{Errno, Nid, Span};
use wire::lst::{Ask, At, TestSpec, Told};

use super::{Console, Heard, error, said};

/// Pause between two looks at loops that are to end.
const STOP_LOOK: Span = Span::secs(1);

/// Loops that have not ended after this wait for requests that will not be answered: their timeout,
/// and some.
const STOP_LOOKS_MAX: u64 = limits::RPC_TIMEOUT.as_millis() / STOP_LOOK.as_millis() + 6;

impl Console {
    pub(super) fn list_batch(
        &self,
        name: Option<&str>,
        test: Option<u32>,
        all: bool,
        server: bool,
    ) -> Result<Answer, BookError> {
        let book = self.book.borrow();
        let Some(name) = name else { return Ok(said(book.list_batches())) };
        let text = if all || server {
            book.list_batch_nodes(name, test, server)
        } else {
            book.list_batch(name, test)
        };
        text.map(said)
    }

    pub(super) async fn add_test(
        self: &Rc<Self>,
        batch: &str,
        spec: TestSpec,
        distribute: &str,
        from: &str,
        to: &str,
    ) -> Result<Answer, BookError> {
        let distribute = distribute
            .parse()
            .map_err(|bad: lst::ParseDistributeError| error(Errno::EINVAL, bad.to_string()))?;
        let number = self.book.borrow_mut().add_test(batch, spec, from, to, distribute)?;
        let test = self.book.borrow().batch(batch)?.tests[number as usize - 1].clone();
        let heard = self.tell_all(self.parts(batch, number, &test), limits::CONTROL_TIMEOUT).await;
        let (err, failures) = Console::complaints("add test", &heard);
        if failures > 0 {
            self.book.borrow_mut().drop_test(batch);
            let text = format!("{err}Failed to add test to {failures} of {} nodes", heard.len());
            return Err(error(Errno::EIO, text));
        }
        Ok(said("Test was added successfully\n".to_owned()))
    }

    /// What each node of a test is told: destinations first, so that they serve before anybody
    /// asks.
    fn parts(&self, batch: &str, number: u32, test: &Test) -> Vec<(Nid, Ask)> {
        let ask = |with: Vec<At>| Ask::AddTest {
            batch: batch.to_owned(),
            test: number,
            spec: test.spec,
            with,
        };
        let served = test
            .destinations
            .iter()
            .filter(|nid| !test.sources.contains(nid))
            .map(|nid| (*nid, ask(Vec::new())));
        let mut parts: Vec<_> = served.collect();
        for (index, nid) in test.sources.iter().enumerate() {
            let with = test.distribute.of(index, test.destinations.len());
            let at = |index: usize| At { nid: test.destinations[index].0, port: self.config.port };
            parts.push((*nid, ask(with.map(at).collect())));
        }
        parts
    }

    pub(super) async fn run(
        self: &Rc<Self>,
        batch: &str,
        patience: Span,
    ) -> Result<Answer, BookError> {
        let (sources, destinations) = self.book.borrow().batch(batch)?.nodes(0);
        if sources.is_empty() {
            return Err(error(Errno::ENODATA, format!("Batch {batch} has no tests")));
        }
        let ask = Ask::Run { batch: batch.to_owned() };
        let mut heard =
            self.ask_within(destinations.difference(&sources).copied(), &ask, patience).await;
        heard.extend(self.ask_within(sources, &ask, patience).await);
        let (err, failures) = Console::complaints("run batch", &heard);
        if failures == heard.len() {
            return Err(error(Errno::EIO, format!("{err}Failed to start {batch}")));
        }
        self.book.borrow_mut().set_running(batch, true);
        let status = if failures > 0 { Errno::EIO.raw() } else { 0 };
        Ok(Answer { err, status, ..said(format!("{batch} is running now\n")) })
    }

    pub(super) async fn stop(
        self: &Rc<Self>,
        batch: &str,
        force: bool,
    ) -> Result<Answer, BookError> {
        let (sources, destinations) = self.book.borrow().batch(batch)?.nodes(0);
        let ask = Ask::Stop { batch: batch.to_owned(), force };
        let heard = self.ask_each(sources.union(&destinations).copied(), &ask).await;
        let (err, _) = Console::complaints("stop batch", &heard);
        let mut answer = Answer { err, ..Answer::default() };
        self.book.borrow_mut().set_running(batch, false);
        for _ in 0..STOP_LOOKS_MAX {
            let query = Ask::Query { batch: batch.to_owned(), test: 0 };
            let running = loops(&self.ask_each(sources.iter().copied(), &query).await).0;
            if running == 0 {
                answer.out += "Batch is stopped\n";
                return Ok(answer);
            }
            let _ = writeln!(answer.out, "{running} batch in stopping");
            self.env.sleep(STOP_LOOK).await;
        }
        Err(error(
            Errno::ETIMEDOUT,
            format!("{}Loops of {batch} do not end; try --force", answer.err),
        ))
    }

    pub(super) async fn query(
        self: &Rc<Self>,
        batch: &str,
        test: u32,
        server: bool,
        all: bool,
        patience: Span,
    ) -> Result<Answer, BookError> {
        if test as usize > self.book.borrow().batch(batch)?.tests.len() {
            return Err(error(Errno::ENOENT, format!("Can't find test {test} of {batch}")));
        }
        let (sources, destinations) = self.book.borrow().batch(batch)?.nodes(test);
        let nodes = if server { destinations } else { sources };
        if nodes.is_empty() {
            return Ok(said("Batch or test is empty\n".to_owned()));
        }
        let heard =
            self.ask_within(nodes, &Ask::Query { batch: batch.to_owned(), test }, patience).await;
        if all {
            return Ok(said(heard.iter().map(|(nid, heard)| self.one_line(*nid, heard)).collect()));
        }
        let (running, idle, unknown) = loops(&heard);
        let mut out = format!("{batch} [{test}] ");
        if unknown > 0 {
            let _ = write!(out, "{unknown} of {} nodes are unknown, ", heard.len());
        }
        match (running, idle) {
            (0, _) => out += "is stopped\n",
            (_, 0) => out += "is running\n",
            _ => {
                let _ = writeln!(out, "stopped: {idle} , running: {running}, failed: {unknown}");
            }
        }
        Ok(said(out))
    }

    fn one_line(&self, nid: Nid, heard: &Heard) -> String {
        let state = self.book.borrow().nodes().get(&nid).map_or("Unknown", |state| state.name());
        let what = match heard {
            Ok(Told::Running(0)) => "Idle".to_owned(),
            Ok(Told::Running(_)) => "Running".to_owned(),
            Ok(_) => "Unknown".to_owned(),
            Err(why) => why.clone(),
        };
        format!("12345-{nid} [{state}]: {what}\n")
    }
}

/// Nodes where loops run, where none does, and that did not say.
fn loops(heard: &[(Nid, Heard)]) -> (usize, usize, usize) {
    let count = |is: fn(&Heard) -> bool| heard.iter().filter(|(_, heard)| is(heard)).count();
    let running = count(|heard| matches!(heard, Ok(Told::Running(loops)) if *loops > 0));
    let idle = count(|heard| matches!(heard, Ok(Told::Running(0))));
    (running, idle, heard.len() - running - idle)
}
