//! `nacre top`: live rates and waiting times by client, job, target and service, in a terminal.
//!
//! | step | module |
//! |---|---|
//! | asks the daemons for parameters, or those of other machines for metrics | `status::ask`, `scrape` |
//! | reads counters | `counters` |
//! | makes a sample of all answers | [`sample`] |
//! | makes rates of two samples, and finds the slowest service | [`rates`] |
//! | draws a page | `page` |
//!
//! Only [`run`] and `scrape` touch the operating system.

mod counters;
mod page;
pub mod rates;
pub mod sample;
mod scrape;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

pub use counters::Count;
use page::{Page, View};
use rates::{Order, Rates};
use sample::Sample;

/// Shows rates until `q` or Ctrl-C, with a new sample after each pause: of the daemons that answer
/// Prometheus at these addresses, or of this machine's. Returns the exit status.
pub fn run(pause: Duration, from: &[String]) -> Result<u8> {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(is_terminal, "top needs a terminal; nacre status does not");
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let done = show(&mut terminal, pause, from);
    ratatui::restore();
    done.map(|()| 0)
}

fn look(from: &[String]) -> Sample {
    if from.is_empty() {
        return Sample::of(&status::ask::ask(sample::PATTERNS));
    }
    scrape::ask(from)
}

fn show(terminal: &mut DefaultTerminal, pause: Duration, from: &[String]) -> Result<()> {
    let (mut view, mut rates) = (View::default(), Rates::default());
    let mut last: Option<(Instant, Sample)> = None;
    loop {
        let (at, sample) = (Instant::now(), look(from));
        if let Some((before, older)) = &last {
            rates = Rates::between(older, &sample, (at - *before).as_secs_f64());
        }
        last = Some((at, sample));
        let next = Instant::now() + pause;
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            terminal.draw(|frame| page::draw(frame, &view, &rates)).context("the terminal")?;
            if !event::poll(left).context("the terminal")? {
                break;
            }
            match event::read().context("the terminal")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match pressed(view, key) {
                    Some(changed) => view = changed,
                    None => return Ok(()),
                },
                _ => {}
            }
        }
    }
}

/// The view after a key; none to end.
fn pressed(view: View, key: KeyEvent) -> Option<View> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => None,
        KeyCode::Char('q') | KeyCode::Esc => None,
        KeyCode::Tab => Some(View { page: view.page.next(), ..view }),
        KeyCode::Char(letter) => {
            let page = Page::of_key(letter).unwrap_or(view.page);
            Some(View { page, order: Order::of_key(letter).unwrap_or(view.order) })
        }
        _ => Some(view),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_choose_pages_and_order_and_end() {
        let press = |view, code| pressed(view, KeyEvent::new(code, KeyModifiers::NONE));
        let start = View::default();
        let jobs = press(start, KeyCode::Char('3')).expect("it goes on");
        assert_eq!(jobs.page, Page::Jobs);
        let bytes = press(jobs, KeyCode::Char('b')).expect("it goes on");
        assert_eq!((bytes.page, bytes.order), (Page::Jobs, Order::Bytes));
        let wait = press(bytes, KeyCode::Char('w')).map(|view| view.order);
        assert_eq!(wait, Some(Order::Wait));
        assert_eq!(press(bytes, KeyCode::Char('o')), Some(jobs));
        assert_eq!(press(jobs, KeyCode::Tab).map(|view| view.page), Some(Page::Targets));
        assert_eq!(press(jobs, KeyCode::Char('x')), Some(jobs));
        assert_eq!(press(jobs, KeyCode::Up), Some(jobs));
        assert_eq!(press(jobs, KeyCode::Char('c')), Some(jobs), "without Ctrl");
        assert_eq!(press(jobs, KeyCode::Char('q')), None);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(pressed(jobs, interrupt), None);
    }
}
