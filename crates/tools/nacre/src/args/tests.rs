//! Tests of the command line.

use super::*;

#[test]
fn the_declarations_hold_together() {
    Nacre::command().debug_assert();
}

#[test]
fn a_tool_prints_its_own_name_with_the_version() {
    for line in ["nacre --version", "lfs --version", "nacre lctl --version", "lst -V"] {
        let tool = line.split(' ').rev().nth(1).expect("a tool");
        let args = line.split(' ').map(std::ffi::OsString::from).collect();
        let printed = Nacre::try_parse_from(crate::by_name(args)).expect_err("it ends here");
        let wanted = format!("{tool} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(printed.to_string(), wanted, "{line}");
    }
}

#[test]
fn a_daemon_can_start_the_guard_of_its_mount() {
    let args = Nacre::try_parse_from(["nacre", daemons::mount::GUARD]).expect("understood");
    assert!(matches!(args.command, Command::MountGuard));
}

#[test]
fn a_port_that_no_server_can_listen_on_is_refused() {
    let up = |port: &str| Nacre::try_parse_from(["nacre", "up", "--port", port]).is_ok();
    assert!(up("3988") && up("65535"));
    assert!(!up("0") && !up("65536"));
}

/// Command lines under `Example` in a help text, without remarks.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Example"));
    let lines = lines.skip(1).take_while(|line| line.starts_with("  ") || line.is_empty());
    let lines = lines.map(|line| line.trim().split("   ").next().unwrap_or_default().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// The words of a line for `sh`, up to what is not an argument any more.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.chars().chain([' ']) {
        match (letter, quote) {
            ('\'', None) => quote = Some('\''),
            ('\'', Some(_)) => quote = None,
            ('|' | '>' | '&' | ';', None) => break,
            (' ', None) if word.is_empty() => {}
            (' ', None) => words.push(std::mem::take(&mut word)),
            (letter, _) => word.push(letter),
        }
    }
    words
}

#[test]
fn every_help_has_examples_and_they_are_understood() {
    for (name, command) in every_command().into_iter().filter(|(_, it)| !it.is_hide_set()) {
        let help = command.get_after_long_help().or(command.get_after_help());
        let examples = examples(&help.map(ToString::to_string).unwrap_or_default());
        let shown = name.replace('-', " ");
        assert!(!examples.is_empty(), "`{shown} --help` has no example");
        for line in examples {
            let typed = words(&line);
            let tool = typed.iter().position(|word| {
                word == "nacre" || Tool::ALL.iter().any(|tool| word == tool.name())
            });
            let Some(tool) = tool else { continue };
            let args = typed[tool..].iter().map(std::ffi::OsString::from).collect();
            let parsed = Nacre::try_parse_from(crate::spelled(crate::by_name(args)));
            assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.expect_err("refused"));
        }
    }
}

/// Every subcommand with the words that lead to it.
fn every_command() -> Vec<(String, clap::Command)> {
    let mut all = Vec::new();
    let mut todo: Vec<(String, clap::Command)> = Vec::new();
    let mut root = Nacre::command().term_width(100);
    root.build();
    todo.push(("nacre".to_owned(), root));
    while let Some((name, command)) = todo.pop() {
        let below = command.get_subcommands().filter(|sub| sub.get_name() != "help");
        todo.extend(below.map(|sub| (format!("{name}-{}", sub.get_name()), sub.clone())));
        all.push((name, command));
    }
    all
}

/// `NACRE_UPDATE=1 cargo test -p nacre` writes what is there now.
#[test]
fn every_help_says_what_it_said() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let update = std::env::var_os("NACRE_UPDATE").is_some();
    let mut known: std::collections::BTreeSet<String> = std::fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    for (name, mut command) in every_command() {
        let shown: String = command
            .render_long_help()
            .to_string()
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        let path = dir.join(format!("{name}.txt"));
        if update {
            std::fs::create_dir_all(&dir).expect("a directory");
            std::fs::write(&path, &shown).expect("written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == shown,
            "{} is not what `{} --help` says now:\n{shown}",
            path.display(),
            name.replace('-', " ")
        );
        known.remove(&format!("{name}.txt"));
    }
    known
        .iter()
        .filter(|_| update)
        .for_each(|gone| std::fs::remove_file(dir.join(gone)).expect("removed"));
    assert!(update || known.is_empty(), "no such commands any more: {known:?}");
}

#[test]
fn pages_and_completions_know_every_command_and_option() {
    let dir = std::env::temp_dir().join(format!("nacre-man-{}", std::process::id()));
    pages::man(&dir, Tool::ALL.iter().map(|tool| tool.command()).collect()).expect("written");
    let mut completion = Vec::new();
    clap_complete::generate(
        clap_complete::Shell::Bash,
        &mut Nacre::command(),
        "nacre",
        &mut completion,
    );
    let completion = String::from_utf8(completion).expect("text");
    for (name, command) in every_command().into_iter().filter(|(_, command)| !command.is_hide_set())
    {
        // `nacre lfs df` has the page lfs-df
        let tool = |tool: &&str| name.starts_with(&format!("nacre-{tool}-"));
        let is_tool = ["lfs", "lctl", "lst"].iter().any(tool) && name != "nacre-lst-node";
        let page = if is_tool { &name["nacre-".len()..] } else { name.as_str() };
        let page = std::fs::read_to_string(dir.join(format!("{page}.1")))
            .unwrap_or_else(|error| panic!("{page}.1: {error}"));
        for long in
            command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long)
        {
            assert!(page.contains(&long.replace('-', "\\-")), "--{long} is not in {name}.1");
            assert!(
                completion.contains(&format!("--{long}")),
                "--{long} of {name} is not completed"
            );
        }
    }
    for page in ["lfs.1", "lctl-set_param.1", "lst-stat.1", "mkfs.nacre.8", "mount.nacre.8"] {
        assert!(dir.join(page).exists(), "{page}");
    }
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn what_the_readme_says_is_understood() {
    for line in [
        "nacre up",
        "nacre up --mount /mnt/nacre",
        "nacre up --separate --run true",
        "nacre up --executors 2 --mdts 2",
        "nacre up --data d --mount m --fsname testfs --mdts 4 --osts 4 --device-dir e",
        "nacre format --fsname testfs --mgs --mdt --index 0 d",
        "nacre format --fsname testfs --mdt --index 255 --mgsnode 127.0.0.2@tcp d",
        "nacre format --mgs d",
        "nacre format --fsname testfs --ost --index 1 --mgsnode 127.0.0.2@tcp,127.0.0.3@tcp --reformat d",
        "nacre tune --mgsnode 127.0.0.2@tcp,127.0.0.3@tcp a b",
        "nacre serve a b --listen 127.0.0.2:1988@tcp",
        "nacre serve a b --listen 127.0.0.2@tcp --listen 127.0.0.3@tcp[0] --assign OST0000@127.0.0.3@tcp",
        "nacre serve a --listen 127.0.0.2:1988@tcp[0,1] --cpu-npartitions 4 --cpu-virtual --mds-num-cpts [2,3]",
        "nacre serve a --cpu-pattern N --portal-rotor ON --lnd-threads 2 --metrics 127.0.0.2:9169",
        "nacre up --cpu-pattern X[0] --metrics 9169",
        "nacre mount 127.0.0.2@tcp:/testfs DIR -o nid=127.0.0.11@tcp",
        "nacre umount -l d",
        "nacre status",
        "nacre status --json --watch",
        "nacre status --watch 5 --json",
        "nacre top --interval 5",
        "nacre top --from mds1:9169,10.0.0.2:9169,[::1]:9169",
        "nacre doctor --data d --port 3988 --json",
        "nacre export-meta testfs-MDT0000 -o f",
        "nacre import-meta f d --objects a --objects b --mgsnode 127.0.0.2@tcp --reformat",
        "nacre check-meta d --objects a",
        "nacre fsck",
        "nacre fsck --data d --repair --zero-lost --json",
        "nacre fsck --repair --live --json",
        "nacre fsck mdt0 ost0 ost1",
        "nacre list-objects testfs-OST0000",
        "nacre lfs setstripe -c -1 -S 1M -i -1 f",
        "nacre lfs getstripe -c f g",
        "nacre lfs df -h m",
        "nacre lfs fid2path testfs [0x200000401:0x1:0x0]",
        "nacre lctl get_param -n version ost.*.*",
        "nacre lctl set_param ost.OSS.ost_io.threads_max=64",
        "nacre lctl list_param -R *",
        "nacre lctl ping 127.0.0.2@tcp 5",
        "nacre lctl set_param -P lod.*.stripecount=2",
        "nacre lctl set_param -P -d lod.*.stripecount",
        "nacre lfs setstripe -o 2,0,5-7 f",
        "nacre lfs find . --name *.dat --not --type d --size +1G --maxdepth 2 --print0",
        "nacre lfs mkdir -c 4 -i 0,1,2,3 d",
        "nacre lfs mkdir -c 4 -D d",
        "nacre lfs mkdir -i 2 d",
        "nacre lfs setdirstripe -D -c 1 -i -1 --max-inherit -1 --max-inherit-rr 3 d",
        "nacre lfs setdirstripe -d d",
        "nacre lfs getdirstripe -c -i -H -r d",
        "nacre lfs getdirstripe -D d",
        "nacre lfs find . --type d --mdt-count +1 --mdt-hash crush2 --mdt 0,MDT0001",
        "nacre lfs path2fid -p f",
        "nacre lfs check mds m",
        "nacre lctl conf_param testfs-MDT000[0-3].lod.dom_stripesize=4M",
        "nacre lfs getname -n m",
        "nacre lfs check all m",
        "nacre lfs check servers",
        "nacre lctl dl -t",
        "nacre lst new_session rw",
        "nacre lst add_group servers 10.0.0.[8,10,12-16]@tcp",
        "nacre lst add_test --batch b --loop -1 --concurrency 8 --distribute 2:1 --from r --to s brw read check=simple size=1M",
        "nacre lst update_group g --clean down --refresh --remove 10.0.0.1@tcp",
        "nacre lst list_group --active --busy --down --unknown --all g",
        "nacre lst list_batch b --test 1 --server",
        "nacre lst query --test 1 --server --timeout 5 b",
        "nacre lst stop --force b",
        "nacre lst stat --bw --rate --read --write --max --min --avg --mbs --timeout 5 --delay 1 --count 3 servers",
        "nacre lst stat --rpc 10.0.0.1@tcp",
        "nacre lst show_error --session g",
        "nacre lst ping --group g",
        "nacre lst-node --nid 127.0.1.[1-8]@tcp --port 1988 --insecure",
        "nacre completion bash",
        "nacre completion zsh --for lfs",
    ] {
        let parsed = Nacre::try_parse_from(line.split_whitespace());
        assert!(
            parsed.is_ok(),
            "{line}: {}",
            parsed.err().map_or_else(String::new, |error| error.to_string())
        );
    }
}

#[test]
fn a_wrong_line_is_refused_before_anything_is_done() {
    for line in [
        "nacre up --osts 0",
        "nacre up --mdts 0",
        "nacre up --mdts 257",
        "nacre up --executors 0",
        "nacre up --executors 2 --separate",
        "nacre up --fsname waytoolongname",
        "nacre format --fsname f --mdt --index 70000 d",
        "nacre serve",
        "nacre serve a --assign OST0000",
        "nacre serve a --assign x@127.0.0.3@tcp",
        "nacre tune d",
        "nacre tune --mgsnode 127.0.0.2@tcp",
        "nacre lfs mkdir -i two d",
        "nacre lfs mkdir -c 257 d",
        "nacre lfs mkdir --max-inherit 3 d",
        "nacre lfs setdirstripe -d -c 4 d",
        "nacre lfs getdirstripe",
        "nacre status --watch 0",
        "nacre top --interval 0",
        "nacre top --from mds1",
        "nacre top --from :9169",
        "nacre doctor --port 0",
        "nacre mount x",
        "nacre lctl ping 10.0.0",
        "nacre lst add_test --concurrency 1025 --from a --to b ping",
        "nacre lst add_test --from a ping",
        "nacre lst update_group --clean active g",
        "nacre lst-node --nid 10.0.0.1",
    ] {
        assert!(Nacre::try_parse_from(line.split_whitespace()).is_err(), "{line}");
    }
}
