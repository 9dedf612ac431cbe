//! Several MDTs on a mount: remote and striped directories under programs, `lfs` on them, restarts
//! that keep everything, and one MDT killed while another serves.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use mounted::line::{good, nacre, refused};
use mounted::{Scratch, Up, nacre_bin, shell};

/// A file system with so many MDTs, each in a process of its own. Directories are on the MDT of
/// their parent.
fn up(name: &str, mdts: &str) -> Up {
    let up = spread(name, mdts);
    good(&up, "lfs setdirstripe -d .");
    up
}

/// The same as it is made: directories near the root are spread over the MDTs.
fn spread(name: &str, mdts: &str) -> Up {
    Up::with(Scratch::new(name), None, &["--crashes-max", "1000", "--mdts", mdts])
}

fn mdt_of(up: &Up, path: &str) -> u32 {
    good(up, &format!("lfs getstripe -d -m {path}")).trim().parse().expect("an index")
}

#[test]
fn the_lines_of_the_talk_spread_directories() {
    let mut up = up("mdts-talk", "4");
    good(&up, "lfs mkdir -c 4 -i 0,1,2,3 unique");
    good(&up, "lfs mkdir -c 4 -D unique");
    good(&up, "lfs mkdir -i 2 two");
    good(&up, "lctl conf_param testfs-MDT000[0-3].lod.dom_stripesize=4M");
    let shown = good(&up, "lfs getdirstripe unique");
    let mut lines = shown.lines();
    let head = "lmv_stripe_count: 4 lmv_stripe_offset: 0 lmv_hash_type: crush2";
    assert_eq!(lines.next(), Some(head));
    assert_eq!(lines.next(), Some("mdtidx\t\t FID[seq:oid:ver]"));
    for (mdt, line) in lines.enumerate() {
        assert!(line.starts_with(&format!("{mdt:>6}\t\t [0x2000")), "{line}");
        assert!(line.ends_with(":0x0]\t\t"), "{line}");
    }
    assert_eq!(shown.lines().count(), 6);
    let default = "lmv_stripe_count: 4 lmv_stripe_offset: -1 lmv_hash_type: crush2 \
        lmv_max_inherit: 3 lmv_max_inherit_rr: 0\n";
    assert_eq!(good(&up, "lfs getdirstripe -D unique"), default);
    fs::create_dir(up.at("unique/rank0")).expect("made");
    assert_eq!(good(&up, "lfs getdirstripe -c unique/rank0"), "4\n");
    let handed_on = good(&up, "lfs getdirstripe -D --max-inherit unique/rank0");
    assert_eq!(handed_on, "2\n");
    let plain = "lmv_stripe_count: 0 lmv_stripe_offset: 2 lmv_hash_type: none\n";
    assert_eq!(good(&up, "lfs getdirstripe two"), plain);
    let limits = "lod.testfs-MDT000[0-3]-mdtlov.dom_stripesize";
    mounted::until("each MDT has its limit", || {
        good(&up, &format!("lctl get_param -n {limits}")) == "4194304\n".repeat(4)
    });

    for number in 0..100 {
        fs::write(up.at(&format!("unique/rank0/f{number}")), b"x").expect("written");
    }
    assert_eq!(fs::read_dir(up.at("unique/rank0")).expect("reads").count(), 100);
    let on: Vec<usize> = (0..4)
        .map(|mdt| good(&up, &format!("lfs find unique/rank0 -type f -m {mdt}")).lines().count())
        .collect();
    assert_eq!(on.iter().sum::<usize>(), 100);
    assert!(on.iter().all(|files| *files > 5), "names are spread: {on:?}");
    assert_eq!(good(&up, "lfs find . -mdt-count 4"), "./unique\n./unique/rank0\n");
    let space = good(&up, "lfs df -i .");
    for mdt in 0..4 {
        let name = format!("testfs-MDT{mdt:04x}_UUID");
        let line = space.lines().find(|line| line.starts_with(&name)).expect("a line of each MDT");
        let used = line.split_whitespace().nth(2).and_then(|used| used.parse::<u64>().ok());
        assert!(used.is_some_and(|used| used > 0), "{space}");
    }
    assert_eq!(good(&up, "lfs find . -type d ! -mdt-hash crush2"), ".\n./two\n");
    good(&up, "lfs setdirstripe -d unique");
    fs::create_dir(up.at("unique/rank1")).expect("made");
    assert_eq!(good(&up, "lfs getdirstripe -c unique/rank1"), "0\n");
    fs::remove_dir_all(up.at("unique")).expect("removed");
    shards_that_share_mdts(&up);
    up.stop();
}

/// On four MDTs.
fn shards_that_share_mdts(up: &Up) {
    good(up, "lfs mkdir -C -2 twice");
    assert_eq!(good(up, "lfs getdirstripe -c twice"), "8\n");
    assert_eq!(good(up, "lfs getdirstripe -H twice"), "crush2,overstriped\n");
    for number in 0..100 {
        fs::write(up.at(&format!("twice/f{number}")), b"x").expect("written");
    }
    assert_eq!(fs::read_dir(up.at("twice")).expect("reads").count(), 100);
    shell(up.mount(), "cp -a twice copy && diff -r twice copy && rm -r twice copy");
    refused(up, "lfs mkdir -C 2 -i 0,1 twice", 22, "name the first one only");
}

#[test]
fn a_new_file_system_with_several_mdts_spreads_directories_near_the_root() {
    let mut up = spread("mdts-spread", "2");
    let default = "lmv_stripe_count: 1 lmv_stripe_offset: -1 lmv_hash_type: crush2 \
        lmv_max_inherit: -1 lmv_max_inherit_rr: 3\n";
    assert_eq!(good(&up, "lfs getdirstripe -D ."), default);
    for number in 0..6 {
        fs::create_dir(up.at(&format!("{number}"))).expect("made");
    }
    let on = |mdt: u32| good(&up, &format!("lfs find . -maxdepth 1 -type d -mdt {mdt}"));
    assert_eq!([0, 1].map(|mdt| on(mdt).lines().count()), [4, 3], "the root and six directories");
    for number in 0..6 {
        fs::create_dir_all(up.at(&format!("{number}/a/b/c/d/e"))).expect("made");
        let deep = ["d", "d/e"].map(|tail| mdt_of(&up, &format!("{number}/a/b/c/{tail}")));
        assert_eq!(deep[0], deep[1], "deep ones stay");
        assert_eq!(
            good(&up, &format!("lfs getdirstripe -D --max-inherit-rr {number}/a/b/c/d")),
            "0\n"
        );
    }
    shell(up.mount(), "cp -a 0 copy && diff -r 0 copy && mv 1 2/moved && rm -rf 0 2 copy");
    up.stop();
}

#[test]
fn programs_work_in_a_directory_of_another_mdt() {
    let mut up = up("mdts-programs", "2");
    good(&up, "lfs mkdir -i 1 -m 750 far");
    assert_eq!((mdt_of(&up, "far"), mdt_of(&up, ".")), (1, 0));
    shell(
        up.mount(),
        "test $(stat -c %a far) = 750
         mkdir -p near/a/b far/sub
         for n in $(seq 50); do echo $n > near/a/b/$n; done
         ln -s b near/a/link
         cp -a near far/copy && diff -r near far/copy
         test $(ls far/copy/a/b | wc -l) = 50
         cd far && git init -q repo && cd repo
         git config user.email a@example.org && git config user.name A
         for n in $(seq 20); do echo $n > f$n; done
         git add . && git commit -qm one && git gc -q && git fsck --strict
         test -z \"$(git status --porcelain)\"",
    );
    assert_eq!(mdt_of(&up, "far/repo/f1"), 1, "files are with their directory");

    // names cross from one MDT to the other; the files stay where they are
    shell(
        up.mount(),
        "mv near/a/b/1 far/one && test $(cat far/one) = 1 && ! test -e near/a/b/1
         mv -T near/a far/a && test $(cat far/a/b/7) = 7 && test $(readlink far/a/link) = b
         echo old > far/victim && mv near/../far/a/b/9 near/nine && mv near/nine far/victim
         test $(cat far/victim) = 9
         ln far/one near/two && test $(stat -c %h far/one) = 2
         test $(stat -c %i far/one) = $(stat -c %i near/two)
         ! mv far far/repo/loop 2>/dev/null",
    );
    assert_eq!((mdt_of(&up, "far/one"), mdt_of(&up, "far/a")), (0, 0));
    let fid = good(&up, "lfs path2fid far/one");
    let mut paths: Vec<String> =
        good(&up, &format!("lfs fid2path -n testfs {fid}")).lines().map(str::to_owned).collect();
    paths.sort();
    assert_eq!(paths, ["one", "two"]);
    let far = good(&up, "lfs path2fid far");
    assert!(good(&up, "lfs path2fid -p far/one").contains(&format!("{}/one", far.trim())));
    let deep = good(&up, "lfs path2fid far/a/b/7");
    assert_eq!(good(&up, &format!("lfs fid2path testfs {deep}")), "far/a/b/7\n");

    let other = up.second_mount(201);
    assert_eq!(fs::read(other.join("far/victim")).expect("reads"), b"9\n");
    shell(up.mount(), "rm -rf far near; test -z \"$(ls -A)\"");
    assert_eq!(fs::read_dir(&other).expect("reads").count(), 0);
    up.stop();
}

/// Names over three MDTs.
const FILL: &str = "nacre lfs mkdir -c 3 -i 2,0,1 big; nacre lfs mkdir -i 1 one
    for n in $(seq 40); do echo $n > big/$n; done; echo x > one/f; mv one/f big/x";
const CHECK: &str = "test $(ls big | wc -l) = 41; test $(cat big/*[0-9] | sort -n | tail -1) = 40
    test $(nacre lfs getdirstripe -c big) = 3; test $(nacre lfs getstripe -m big/x) = 1
    test $(nacre lfs mdts . | wc -l) = 4; ! ls one/f 2>/dev/null";

fn with_binary(script: &str) -> String {
    script.replace("nacre", &nacre_bin().display().to_string())
}

#[test]
fn several_mdts_keep_everything_over_a_restart() {
    let mut up = up("mdts-restart", "3");
    shell(up.mount(), &with_binary(FILL));
    let before = good(&up, "lfs getdirstripe big");
    up.stop();
    up.fsck();
    up.start_again(&[]); // it knows how many there are
    assert_eq!(good(&up, "lfs getdirstripe big"), before);
    shell(up.mount(), &with_binary(CHECK));
    up.kill_everything();
    up.start_again(&[]);
    shell(up.mount(), &with_binary(CHECK));
    up.stop();
}

#[test]
fn several_mdts_of_one_process_keep_everything_over_a_restart() {
    let scratch = Scratch::new("mdts-one-process");
    let run = |args: &[&str], script: &str| {
        let done = Command::new(nacre_bin())
            .args(["up", "--data", "data", "--mount", "mnt", "--run"])
            .arg(format!("set -e\n{}", with_binary(script)))
            .args(args)
            .current_dir(scratch.path())
            .output()
            .expect("nacre starts");
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{script}: {text}");
    };
    let count = |mdts: u32| format!("test $(nacre lfs mdts . | grep -c _UUID) = {mdts}");
    run(&[], &format!("{}; nacre lfs mkdir -i 1 old; echo x > old/f", count(2)));
    run(&["--mdts", "3"], &format!("{FILL}\ntest $(cat old/f) = x"));
    run(&[], CHECK);
}

#[test]
fn an_existing_file_system_keeps_its_number_of_mdts() {
    let scratch = Scratch::new("mdts-kept");
    let run = |args: &[&str], mdts: u32| {
        let script = format!("test $(nacre lfs mdts . | grep -c _UUID) = {mdts}");
        let done = Command::new(nacre_bin())
            .args(["up", "--data", "data", "--mount", "mnt", "--osts", "1"])
            .args(args)
            .args(["--run", &with_binary(&script)])
            .current_dir(scratch.path())
            .output()
            .expect("nacre starts");
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{args:?}: {text}");
    };
    run(&["--mdts", "1"], 1);
    run(&[], 1);
    run(&["--separate"], 1);
    run(&["--mdts", "2"], 2);
    run(&["--separate"], 2);
}

#[test]
fn an_up_that_failed_before_the_mount_stood_leaves_the_spreading_to_the_next_one() {
    let scratch = Scratch::new("mdts-first");
    fs::write(scratch.path().join("file"), "no mount point").expect("written");
    let run = |mount: &str, script: &str| {
        let done = Command::new(nacre_bin())
            .args(["up", "--data", "data", "--mount", mount, "--osts", "1"])
            .args(["--run", &with_binary(script)])
            .current_dir(scratch.path())
            .output()
            .expect("nacre starts");
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (is_up, text) = run("file", "true");
    assert!(!is_up && text.contains("a new file system"), "{text}");
    let (is_up, text) = run("mnt", "test $(nacre lfs getdirstripe -D --max-inherit-rr .) = 3");
    assert!(is_up && !text.contains("a new file system"), "{text}");
}

#[test]
fn a_killed_mdt_keeps_nobody_from_the_others() {
    let mut up = up("mdts-killed", "2");
    good(&up, "lfs mkdir -i 1 far");
    fs::write(up.at("far/kept"), b"kept").expect("written");
    shell(up.mount(), "sync");
    let pid = up.server("MDT0001");
    mounted::kill(pid, libc::SIGSTOP);
    let start = Instant::now();
    for number in 0..50 {
        fs::create_dir(up.at(&format!("near{number}"))).expect("the first MDT serves");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    mounted::kill(pid, libc::SIGKILL);
    assert_eq!(fs::read(up.at("far/kept")).expect("it is back"), b"kept");
    up.kill_server("MDT0000");
    fs::write(up.at("far/more"), b"more").expect("the second MDT serves");
    fs::create_dir(up.at("far/sub")).expect("the second MDT serves");
    assert_eq!(fs::read_dir(up.mount()).expect("it is back").count(), 51);

    refused(&up, "lfs mkdir -i 7 x", libc::ENODEV, "MDT index 7 does not exist in testfs");
    refused(&up, "lfs mkdir -c 3 -i 0,1 x", libc::EINVAL, "doesn't match the number of MDTs: 2");
    refused(&up, "lfs mkdir -i 0 near7", libc::EEXIST, "File exists");
    up.stop();
}

#[test]
fn an_mdt_comes_to_a_running_file_system() {
    let mut up = up("mdts-more", "1");
    let other = up.second_mount(201);
    let address = up.address();
    let (mgs, _) = address.split_once(":/").expect("NID:/FSNAME");
    let dir = up.data().join("more");
    let shown = dir.display();
    good(&up, &format!("format --fsname testfs --mdt --index 5 --mgsnode {mgs} {shown}"));
    let serve = || {
        let mut server = Command::new(nacre_bin());
        server.args(["serve", "--listen", "127.0.249.5@tcp"]).arg(&dir);
        server.spawn().expect("nacre starts")
    };
    let end = |mut server: Child| {
        mounted::kill(server.id(), libc::SIGTERM);
        assert!(server.wait().expect("our child").success());
    };
    let server = serve();
    mounted::until("both mounts know the MDT", || {
        [up.mount(), &other].iter().all(|mount| {
            let shown = nacre(mount, "lfs mdts .");
            String::from_utf8_lossy(&shown.stdout).contains("5: testfs-MDT0005_UUID ACTIVE")
        })
    });
    good(&up, "lfs mkdir -i 5 new");
    fs::write(other.join("new/f"), b"x").expect("written");
    assert_eq!(fs::read(up.at("new/f")).expect("reads"), b"x");
    assert_eq!(mdt_of(&up, "new/f"), 5);
    fs::rename(up.at("new/f"), up.at("f")).expect("moved");
    fs::remove_dir(up.at("new")).expect("removed");
    assert_eq!(fs::read(other.join("f")).expect("reads"), b"x");
    fs::remove_file(other.join("f")).expect("removed");

    // a directory that names an MDT which is away is refused without a wait for it
    end(server);
    let line = "lfs mkdir -i 5 away";
    mounted::until("the mount knows that the MDT is away", || {
        nacre(up.mount(), line).status.code() == Some(libc::ENOTCONN)
    });
    let start = Instant::now();
    refused(&up, line, libc::ENOTCONN, "testfs-MDT0005 is away");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let server = serve();
    mounted::until("it is back", || {
        nacre(up.mount(), line).status.success() || up.at("away").exists()
    });
    assert_eq!(mdt_of(&up, "away"), 5);
    up.stop();
    end(server);
}
