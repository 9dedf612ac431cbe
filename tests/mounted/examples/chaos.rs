//! `cargo xtask chaos` runs this program in namespaces of its own:
//! `--minutes N --seed S --out DIR`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mounted::chaos::{self, Options};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

fn main() -> ExitCode {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the handler only stores to an atomic
    unsafe {
        libc::signal(libc::SIGINT, interrupt as *const () as libc::sighandler_t);
    }
    // threads that wait for a frozen mount cannot be waited for
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        std::process::exit(101);
    }));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag).expect("every flag is given");
        args.get(at + 1).expect("a flag has a value").as_str()
    };
    let minutes: f64 = value("--minutes").parse().expect("a number of minutes");
    let options = Options {
        time: Duration::from_secs_f64(minutes * 60.0),
        seed: value("--seed").parse().expect("a seed"),
        out: PathBuf::from(value("--out")),
        interrupted: &INTERRUPTED,
    };
    let verdict = chaos::run(&options);
    println!("{}", verdict.text());
    verdict.keep(&options.out).expect("the verdict is kept");
    if verdict.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
