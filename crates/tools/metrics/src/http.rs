//! The part of HTTP/1.1 that a scrape needs: one GET, one answer, end of connection. `/health`
//! answers load balancers and supervisors by its status.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use env::{Env, LocalFuture, Task};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use types::Span;

use crate::text::Part;

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Scrapers served at once. One more takes the place of the oldest, which is hung up on. So
/// scrapers that say nothing, or do not take their answers, keep no other one out.
const SCRAPERS_MAX: usize = 32;

/// Time that a scraper has to ask and to take its answer.
const SCRAPE_MAX: Span = Span::secs(10);

/// An endpoint; ends with the value.
pub struct Endpoint {
    addr: SocketAddr,
    task: Task,
}

impl Endpoint {
    /// Where it listens, with the port that was drawn.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers `GET /metrics` at `at` with the text of `page`, and `GET /health` by its verdict.
pub(crate) async fn serve(
    env: &Env,
    at: SocketAddr,
    page: impl Fn() -> LocalFuture<'static, Part> + 'static,
) -> io::Result<Endpoint> {
    let listener = TcpListener::bind(at).await?;
    let addr = listener.local_addr()?;
    let (env2, page, seats) = (env.clone(), Rc::new(page), Rc::new(Seats::default()));
    let task = env.spawn("metrics", async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                env2.sleep(Span::millis(100)).await; // out of descriptors: others give theirs back
                continue;
            };
            let (env3, page, seat) = (env2.clone(), Rc::clone(&page), seats.seat());
            let number = seat.number;
            let scraper = env2.spawn("scraper", async move {
                // it went away, or is too slow: its loss
                let _ = env3.timeout(SCRAPE_MAX, answer(stream, &*page)).await;
                drop(seat);
            });
            seats.give(number, scraper);
        }
    });
    Ok(Endpoint { addr, task })
}

/// The scrapers that are served, oldest first, by their numbers.
#[derive(Default)]
struct Seats {
    given: Cell<u64>,
    taken: RefCell<VecDeque<(u64, Task)>>,
}

impl Seats {
    /// The seat of a new scraper.
    fn seat(self: &Rc<Seats>) -> Seat {
        let number = self.given.get();
        self.given.set(number + 1);
        Seat { seats: Rc::clone(self), number }
    }

    /// Seats it. Where all seats are taken, the oldest scraper is hung up on.
    fn give(&self, number: u64, scraper: Task) {
        let oldest = {
            let mut taken = self.taken.borrow_mut();
            taken.push_back((number, scraper));
            if taken.len() > SCRAPERS_MAX { taken.pop_front() } else { None }
        };
        if let Some((_, oldest)) = oldest {
            oldest.abort();
        }
    }
}

/// A scraper's seat until it ends.
struct Seat {
    seats: Rc<Seats>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken.borrow_mut().retain(|(number, _)| *number != self.number);
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    page: &dyn Fn() -> LocalFuture<'static, Part>,
) -> io::Result<()> {
    let Some(head) = head(&mut stream).await? else {
        return respond(&mut stream, "431 Request Header Fields Too Large", "", true).await;
    };
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let with_body = method == "GET";
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let text = page().await.to_string();
            respond(&mut stream, "200 OK", &text, with_body).await
        }
        ("GET" | "HEAD", "/health") => {
            let (status, body) = health(page().await.is_well);
            respond(&mut stream, status, body, with_body).await
        }
        ("GET" | "HEAD", _) => {
            let pages = "the metrics are at /metrics, and the health is at /health\n";
            respond(&mut stream, "404 Not Found", pages, with_body).await
        }
        _ => respond(&mut stream, "405 Method Not Allowed", "GET /metrics\n", true).await,
    }
}

/// Status and body for load balancers and supervisors.
fn health(is_well: bool) -> (&'static str, &'static str) {
    match is_well {
        true => ("200 OK", "healthy\n"),
        false => ("503 Service Unavailable", "not healthy: see lctl get_param health_check\n"),
    }
}

/// The request's head; nothing if it is too long or ends too early.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        if bytes.len() >= REQUEST_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

async fn respond(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    body: &str,
    with_body: bool,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if with_body {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::net::TcpStream;

    use super::*;
    use crate::families::BUILD;
    use crate::text::Exposition;

    /// End of the text of `page`.
    const LAST: &str = "nacre_metrics_dropped_series 0\n";

    fn page(is_well: bool) -> LocalFuture<'static, Part> {
        let mut out = Exposition::of(None);
        out.is_well = is_well;
        out.add(BUILD, &[], 1.0);
        Box::pin(std::future::ready(out.finish()))
    }

    fn up() -> LocalFuture<'static, Part> {
        page(true)
    }

    async fn asked(endpoint: &Endpoint, request: &str) -> String {
        let mut stream = TcpStream::connect(endpoint.addr()).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        // a refused request that was not read to its end resets
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).expect("text")
    }

    #[test]
    fn scrapers_that_say_nothing_keep_no_other_one_out() {
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let at = "127.0.0.1:0".parse().expect("an address");
            let endpoint = serve(&env, at, up).await.expect("a port");
            let mut silent = VecDeque::new();
            for _ in 0..SCRAPERS_MAX {
                silent.push_back(TcpStream::connect(endpoint.addr()).await.expect("it listens"));
            }
            for _ in 0..3 {
                let answer = asked(&endpoint, "GET /metrics HTTP/1.1\r\n\r\n").await;
                assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(LAST), "{answer}");
            }
            let mut oldest = silent.pop_front().expect("all of them");
            let end = env.timeout(Span(SCRAPE_MAX.0 / 2), oldest.read(&mut [0])).await;
            assert!(matches!(end, Some(Ok(0))), "it was hung up on: {end:?}");
        });
    }

    #[test]
    fn a_scrape_is_answered_and_nonsense_is_refused() {
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let at = "127.0.0.1:0".parse().expect("an address");
            let endpoint = serve(&env, at, up).await.expect("a port");
            let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "y".repeat(REQUEST_BYTES_MAX));
            let length = up().await.to_string().len();
            let head = format!("Length: {length}\r\nConnection: close\r\n\r\n");
            for (request, status, body) in [
                ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200", LAST),
                ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200", LAST),
                ("HEAD /metrics HTTP/1.1\r\n\r\n", "200", &head),
                ("GET /health HTTP/1.1\r\n\r\n", "200", "\r\n\r\nhealthy\n"),
                ("GET / HTTP/1.1\r\n\r\n", "404", "/health\n"),
                ("POST /metrics HTTP/1.1\r\n\r\n", "405", "GET /metrics\n"),
                (&long, "431", ""),
            ] {
                let answer = asked(&endpoint, request).await;
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(body),
                    "{answer}"
                );
            }
            let ill = serve(&env, at, || page(false)).await.expect("a port");
            let answer = asked(&ill, "GET /health HTTP/1.1\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        });
    }

    /// Whether a request is answered with the metrics: only a GET or HEAD of `/metrics` is. The
    /// answer is whole.
    fn accepts(input: &[u8]) -> bool {
        const WORDS: &[&str] = &[
            "GET", "HEAD", "POST", " ", " ", "/metrics", "/", "?x=1", "HTTP/1.1", "\r\n", "\r\n",
            "\r\n\r\n", "Host: x", "\n", "\0", "\u{fffd}",
        ];
        let word = |byte: &u8| WORDS[usize::from(*byte) % WORDS.len()];
        let request: String = input.iter().map(word).collect();
        let mut out = Vec::new();
        let stream = tokio::io::join(request.as_bytes(), &mut out);
        let done = {
            let mut answering = std::pin::pin!(answer(stream, &up));
            answering.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        assert!(matches!(done, std::task::Poll::Ready(Ok(()))));
        let out = String::from_utf8(out).expect("text");
        let (head, body) = out.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 "));
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(body.is_empty() || head.contains(&length), "{out}");
        let is_ok = head.starts_with("HTTP/1.1 200 ");
        if is_ok {
            let mut words = request.split_whitespace();
            assert!(matches!(words.next(), Some("GET" | "HEAD")), "{request}");
            assert!(words.next().is_some_and(|path| path.starts_with("/metrics")));
        }
        is_ok
    }

    /// Fuzz target: any request has one answer.
    #[test]
    fn requests() {
        assert!(accepts(&[0, 3, 5, 3, 8, 11]), "GET /metrics HTTP/1.1");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=24);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
