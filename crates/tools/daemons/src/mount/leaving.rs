//! The end of a mount: waits until acknowledged work is durable, and reports which servers it waits
//! for. It gives up on request, or when `unmount_wait` is over.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use client::{Client, TargetState, Unconfirmed};
use env::Env;
use tokio::sync::{Notify, watch};
use types::{Instant, Span};

/// How often it looks whether what it waits for has changed.
const LOOK_EVERY: Span = Span::secs(1);

/// How long the process stays for an asker who wants to hear what was given up.
const TOLD_WAIT: Span = Span::secs(1);

/// Shared by the mount and those who ask about it.
pub(super) struct Leaving {
    env: Env,
    client: Client,
    hurry: watch::Sender<bool>,
    ended: watch::Sender<Option<Vec<String>>>,
    was_asked: Cell<bool>,
    told: Notify,
}

impl Leaving {
    pub(super) fn new(env: &Env, client: &Client) -> Rc<Leaving> {
        Rc::new(Leaving {
            env: env.clone(),
            client: client.clone(),
            hurry: watch::channel(false).0,
            ended: watch::channel(None).0,
            was_asked: Cell::new(false),
            told: Notify::new(),
        })
    }

    /// For an asker: at the end, or in between.
    pub(super) async fn report(&self) -> ctl::Leaving {
        self.was_asked.set(true);
        match self.env.timeout(LOOK_EVERY, self.end()).await {
            Some(given_up) => ctl::Leaving::Ended(given_up),
            None => ctl::Leaving::Waits(self.waits()),
        }
    }

    /// An asker wants no wait.
    pub(super) async fn give_up(&self) -> ctl::Leaving {
        self.was_asked.set(true);
        self.hurry.send_replace(true);
        ctl::Leaving::Ended(self.end().await)
    }

    /// Completes when an asker wants no wait.
    pub(super) async fn hurried(&self) {
        let mut hurry = self.hurry.subscribe();
        let _ours = hurry.wait_for(|hurry| *hurry).await;
    }

    async fn end(&self) -> Vec<String> {
        let mut ended = self.ended.subscribe();
        let lines = ended.wait_for(Option::is_some).await.map(|lines| lines.clone());
        self.told.notify_one();
        lines.ok().flatten().unwrap_or_default()
    }

    /// Until all is durable, the time is over, `signal` comes, or an asker wants no more; tells
    /// what was given up.
    pub(super) async fn wait(
        &self,
        finish: impl Future<Output = ()>,
        signal: impl Future<Output = &'static str>,
        say: fn(&str),
    ) -> Vec<String> {
        let settled = async {
            finish.await;
            self.client.settle().await;
        };
        tokio::select! {
            biased;
            () = settled => {}
            () = self.hurried() => {}
            signal = signal => say(&format!("{signal}: waiting no longer")),
            () = self.patience(say) => say("unmount_wait is over"),
        }
        let given_up = self.client.give_up().await;
        self.ended.send_replace(Some(given_up.clone()));
        if self.was_asked.get() && !given_up.is_empty() {
            let _nobody_asks = self.env.timeout(TOLD_WAIT, self.told.notified()).await;
        }
        given_up
    }

    /// As long as the mount is to wait, which may be changed meanwhile; says for what.
    async fn patience(&self, say: fn(&str)) {
        let start = self.env.now();
        let mut said = Vec::new();
        while let Some(rest) = self.rest(start) {
            self.env.sleep(rest.min(LOOK_EVERY)).await;
            let waits = self.waits();
            if waits != said {
                waits.iter().for_each(|of| say(&format!("waiting for {of}")));
                said = waits;
            }
        }
    }

    fn rest(&self, start: Instant) -> Option<Span> {
        let (wait, gone) = (self.client.unmount_wait(), self.env.now() - start);
        (gone < wait).then(|| Span(wait.0 - gone.0))
    }

    /// "testfs-OST0001: 3 files, 12 MiB (not connected)".
    fn waits(&self) -> Vec<String> {
        let states = [self.client.mdts(), self.client.osts(), self.client.data_targets()].concat();
        self.client.unconfirmed().iter().map(|of| text(of, &states)).collect()
    }
}

fn text(of: &Unconfirmed, states: &[TargetState]) -> String {
    let is_away = states.iter().any(|state| state.id == of.id && !state.connected);
    let away = if is_away { " (not connected)" } else { "" };
    let files = if of.files == 1 { "1 file".to_owned() } else { format!("{} files", of.files) };
    format!("{}: {files}, {}{away}", of.name, amount(of.bytes))
}

/// In the unit in which it is a small number, rounded up.
fn amount(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use types::TargetId;

    use super::*;

    #[test]
    fn a_line_names_the_target_and_how_much_it_has() {
        let id = TargetId::ost(1);
        let state = |connected| TargetState {
            id,
            name: String::new(),
            state: String::new(),
            connected,
            active: true,
            nid: String::new(),
        };
        let of = |files, bytes| Unconfirmed {
            id,
            name: "testfs-OST0001".into(),
            files,
            bytes,
            changes: 9,
        };
        assert_eq!(text(&of(3, 12 << 20), &[state(true)]), "testfs-OST0001: 3 files, 12 MiB");
        assert_eq!(
            text(&of(1, 1_025), &[state(false)]),
            "testfs-OST0001: 1 file, 2 KiB (not connected)"
        );
        assert_eq!(text(&of(0, 7), &[]), "testfs-OST0001: 0 files, 7 bytes");
    }
}
