//! Tasks of a benchmark as processes of their own, as under `mpirun -np`.
//!
//! A task is this program again, with the same arguments followed by `--task N`. It reads one order
//! per line (JSON) from its standard input, carries it out, and writes one answer per line. A task
//! ends when its input ends, so that tasks never outlive the benchmark.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Running tasks. All are idle between two calls of [`Tasks::all`].
pub(crate) struct Tasks(Vec<Task>);

struct Task {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What a task writes when an order is done.
#[derive(Serialize, Deserialize)]
enum Answer<T> {
    Done(T),
    Failed(String),
}

impl Tasks {
    /// Starts `count` tasks of this process' own command line.
    pub(crate) fn start(count: u32) -> Result<Tasks> {
        let program = std::env::current_exe().context("this program's own path")?;
        let mut tasks = Vec::new();
        for task in 0..count {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).args(["--task", &task.to_string()]);
            tasks.push(Task::start(command)?);
        }
        Ok(Tasks(tasks))
    }

    /// Gives each task its order, all at once, and waits for all answers.
    ///
    /// # Errors
    /// A task failed or ended. All answers of this round were read before.
    pub(crate) fn all<O: Serialize, A: DeserializeOwned>(
        &mut self,
        orders: &[O],
    ) -> Result<Vec<A>> {
        assert_eq!(orders.len(), self.0.len(), "each task has one order");
        let lines: Vec<String> =
            orders.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        for (task, line) in self.0.iter_mut().zip(lines) {
            let orders = task.orders.as_mut().expect("closed by the end of a task only");
            writeln!(orders, "{line}").context("a task takes no orders any more")?;
        }
        let answers: Vec<Result<A>> = self.0.iter_mut().map(Task::answer).collect();
        answers.into_iter().collect()
    }
}

impl Task {
    fn start(mut command: Command) -> Result<Task> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a task does not start")?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it is a pipe"));
        Ok(Task { process, orders, answers })
    }

    fn answer<A: DeserializeOwned>(&mut self) -> Result<A> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("a task ended with {}", self.process.wait()?);
        }
        match serde_json::from_str(&line).context("a task's answer")? {
            Answer::Done(answer) => Ok(answer),
            Answer::Failed(error) => bail!("{error}"),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ended = self.process.wait();
    }
}

/// The task's side: does what it is told until its input ends.
pub(crate) fn serve<O: DeserializeOwned, A: Serialize>(
    mut perform: impl FnMut(O) -> Result<A>,
) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let order = serde_json::from_str(&line?).context("an order")?;
        let answer = match perform(order) {
            Ok(answer) => Answer::Done(answer),
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Tasks {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Tasks(vec![Task::start(command).expect("sh starts")])
    }

    #[test]
    fn an_order_goes_out_and_its_answer_comes_back() {
        let mut tasks = shell(r#"while read line; do echo "{\"Done\":$line}"; done"#);
        for order in [7_u64, 9] {
            let answers: Vec<u64> = tasks.all(&[order]).expect("it echoes");
            assert_eq!(answers, [order]);
        }
    }

    #[test]
    fn a_failure_is_told_with_its_reason() {
        let mut tasks = shell(r#"read line; echo '{"Failed":"no space"}'"#);
        let error = tasks.all::<u64, u64>(&[1]).expect_err("it failed");
        assert_eq!(error.to_string(), "no space");
    }

    #[test]
    fn a_task_that_ends_is_an_error() {
        let mut tasks = shell("read line; exit 3");
        let error = tasks.all::<u64, u64>(&[1]).expect_err("it ended");
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
