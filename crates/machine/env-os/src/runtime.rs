//! Executors: a tokio runtime that belongs to one thread.
//!
//! It is tokio's `LocalRuntime` and not a `LocalSet` in a runtime. In a `LocalSet`, a task that the
//! I/O driver wakes first wakes the set, which writes to the driver's eventfd. So every batch of
//! events would cost one more system call.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::thread::JoinHandle;

use env::Env;
use types::Span;

use crate::body::OsBody;
use crate::lnd::Lnd;
use crate::{OsConfig, bind, idle};

/// Runs `main` on an executor of the calling thread and drops all its tasks when `main` is done.
///
/// # Panics
/// When the kernel gives no descriptors for epoll, and inside another executor.
pub fn run<T, F: Future<Output = T>>(config: OsConfig, main: impl FnOnce(Env) -> F) -> T {
    bind::to_cpus(&config.cpus);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time();
    let window = config.linger;
    if window > Span::ZERO {
        builder.on_thread_park(idle::before_park).on_thread_unpark(idle::after_park);
    }
    let runtime = builder
        .build_local(Default::default())
        .expect("the kernel gives an epoll descriptor to a starting node");
    let lnd = Rc::new(Lnd::start(config));
    let body = Rc::new(OsBody::new(Rc::clone(&lnd)));
    let result = runtime.block_on(async move {
        let _lingering = idle::Lingering::start(window);
        main(Env::new(body)).await
    });
    drop(runtime); // its tasks hang up
    lnd.stop();
    result
}

/// A further environment on the running executor, with settings and counters of its own: several
/// nodes in one process. Its links have no threads of their own.
///
/// # Panics
/// Later, when it is used outside of [`run`].
#[must_use]
pub fn another(config: OsConfig) -> Env {
    Env::new(Rc::new(OsBody::new(Rc::new(Lnd::start(OsConfig { lnd_threads: 0, ..config })))))
}

/// Runs `main` on an executor of a fresh thread.
pub fn spawn_thread<T, F>(
    name: &str,
    config: OsConfig,
    main: impl FnOnce(Env) -> F + Send + 'static,
) -> io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(move || run(config, main))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_of_its_own_thread_gives_its_result() {
        let thread = spawn_thread(
            "worker",
            OsConfig { cpus: vec![0, 4_000_000], ..OsConfig::default() },
            |env| async move {
                let (tx, rx) = tokio::sync::oneshot::channel();
                env.spawn("answer", async move {
                    tx.send(6 * 7).expect("the asker waits");
                });
                rx.await.expect("the task answers")
            },
        );
        assert_eq!(thread.expect("a thread").join().expect("no panic"), 42);
    }

    #[test]
    fn a_sleep_of_zero_is_over_at_once_and_a_timeout_fires() {
        run(OsConfig::default(), |env| async move {
            env.sleep(Span::ZERO).await;
            let before = env.now();
            assert_eq!(env.timeout(Span::millis(20), std::future::pending::<()>()).await, None);
            assert!(env.now() - before >= Span::millis(20));
            assert_ne!(env.random(), env.random());
            assert!(env.wall().sec > 1_600_000_000);
        });
    }

    #[test]
    fn an_aborted_task_is_dropped() {
        run(OsConfig::default(), |env| async move {
            let (tx, rx) = tokio::sync::oneshot::channel::<()>();
            let task = env.spawn("endless", async move {
                let _held = tx;
                std::future::pending::<()>().await;
            });
            task.abort();
            assert!(rx.await.is_err());
        });
    }
}
