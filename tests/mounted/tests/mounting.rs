//! Ways to mount: `mount -t nacre`, fstab, and an ordinary user with `fusermount3`. Each runs in a
//! mount namespace of its own, so that the machine's `/sbin`, `/dev/fuse` and list of mounts do not
//! change.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mounted::{Scratch, Up, nacre_bin, posix, until};
use types::NidAddr;

/// What `script` prints as root in a mount namespace of its own. `$S` is the file system, `$B` the
/// binary, `$W` scratch.
fn alone(up: &Up, work: &Path, script: &str) -> Vec<String> {
    alone_with(&up.address(), work, script)
}

fn alone_with(address: &str, work: &Path, script: &str) -> Vec<String> {
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-euc", script])
        .env("S", address)
        .env("B", nacre_bin())
        .env("W", work)
        .env_remove("NACRE_RUN") // a user has a run directory of his own
        .output()
        .expect("unshare starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success(),
        "{}: {text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().map(str::to_owned).collect()
}

/// Makes `mount -t nacre` find the binary: a layer over `/usr/sbin` that holds the link.
const HELPER: &str = r#"
    mkdir -p "$W/layer" "$W/a" "$W/b"; mount -t tmpfs none "$W/layer"; mkdir "$W/layer/up" "$W/layer/work"
    mount -t overlay none -o "lowerdir=$(readlink -f /sbin),upperdir=$W/layer/up,workdir=$W/layer/work" "$(readlink -f /sbin)"
    for name in mount.nacre mount.fuse.nacre umount.nacre umount.fuse.nacre; do ln -sf "$B" "/sbin/$name"; done
"#;

#[test]
fn mount_and_fstab_know_the_type() {
    let mut up = Up::new("mounting");
    let work = Scratch::new("mounting-work");
    let lines = alone(
        &up,
        work.path(),
        &format!(
            r#"{HELPER}
            mount -f -t nacre "$S" "$W/a" -o nid=127.0.0.71@tcp
            grep -c " $W/a fuse.nacre " /proc/mounts || true
            mount -t nacre "$S" "$W/a" -o nid=127.0.0.71@tcp
            echo hello > "$W/a/f"
            grep -c " $W/a fuse.nacre rw," /proc/mounts
            umount "$W/a"; grep -c " $W/a fuse.nacre " /proc/mounts || true
            echo "$S $W/a nacre defaults,_netdev,nofail,noauto,nid=127.0.0.71@tcp 0 0" > "$W/fstab"
            echo "$S $W/b nacre ro,_netdev,x-systemd.automount,nid=127.0.0.72@tcp 0 0" >> "$W/fstab"
            mount -T "$W/fstab" -a -O no_netdev; grep -c " $W/. fuse.nacre " /proc/mounts || true
            mount -T "$W/fstab" -a -O _netdev; grep -c " $W/b fuse.nacre ro," /proc/mounts
            cat "$W/b/f"; touch "$W/b/g" 2>&1 | grep -o "Read-only file system"
            mount -T "$W/fstab" "$W/a"; touch "$W/a/g"; ls "$W/b"
            umount "$W/a" "$W/b"; grep -c " $W/. fuse.nacre " /proc/mounts || true
            mount -t nacre "$S" "$W/a" -o nid=127.0.0.71@tcp,noexec,sync,noatime
            grep -c " $W/a fuse.nacre rw,sync,noexec" /proc/mounts
            cp /bin/true "$W/a/true"; "$W/a/true" 2>/dev/null || echo "not run"; umount "$W/a"
            mount -t nacre "$S" "$W/a" -o nid=127.0.0.71@tcp,wrong 2>/dev/null || echo "a wrong option"
            "#
        ),
    );
    let right = [
        "0",
        "1",
        "0",
        "0",
        "1",
        "hello",
        "Read-only file system",
        "f",
        "g",
        "0",
        "1",
        "not run",
        "a wrong option",
    ]
    .map(str::to_owned);
    assert_eq!(lines, right);
    up.stop();
}

/// Runs `script` with `$W/a` mounted by `mount -t nacre` as NID `127.0.0.<last>@tcp`, with more
/// options.
fn mounted_alone(name: &str, last: u8, options: &str, script: &str) -> Vec<String> {
    let mut up = Up::new(name);
    let work = Scratch::new(&format!("{name}-work"));
    let script = format!(
        r#"{HELPER}
        mount -t nacre "$S" "$W/a" -o nid=127.0.0.{last}@tcp{options}; cd "$W/a"
        {script}
        cd /; umount "$W/a""#
    );
    let lines = alone(&up, work.path(), &script);
    up.stop();
    lines
}

#[test]
fn a_remount_changes_flags_and_nothing_else() {
    let lines = mounted_alone(
        "remount",
        74,
        "",
        r#"
        shown() { grep " $W/a fuse.nacre " /proc/mounts | cut -d" " -f4 | sed 's/,user_id.*//'; }
        echo hello > f; cp /bin/true true
        mount -o remount,ro "$W/a"; shown
        touch g 2>&1 | grep -o "Read-only file system"; echo more 2>/dev/null >> f || cat f
        mount -o remount,rw,noatime,nosuid,nodev,noexec "$W/a"; shown
        touch g; ls; ./true 2>/dev/null || echo "not run"
        mount -t nacre -o remount,relatime,nid=127.0.0.74@tcp "$S" "$W/a"; shown; ./true && echo run
        mount -o remount,soft "$W/a" 2>&1 | grep -o "'soft' cannot change .*: unmount it and mount it again" | sed "s,$W,W,"
        exec 3>> f; mount -o remount,ro "$W/a" 2>&1 | grep -o "files are open for writing"; exec 3>&-; shown
        "$B" mount "$S" "$W/b" -o remount,ro 2>&1 | grep -o "is not a Nacre mount"
        "#,
    );
    let right = [
        "ro,relatime",
        "Read-only file system",
        "hello",
        "rw,nosuid,nodev,noexec,noatime",
        "f",
        "g",
        "true",
        "not run",
        "rw,relatime",
        "run",
        "'soft' cannot change while W/a is mounted: unmount it and mount it again",
        "files are open for writing",
        "rw,relatime",
        "is not a Nacre mount",
    ]
    .map(str::to_owned);
    assert_eq!(lines, right);
}

/// Looks whether reading moves access times. What is said of directories and symbolic links reaches
/// the MDT a moment later, so a time that is to move is waited for.
const LOOK: &str = r#"
        at() { sleep 0.1; stat -c %x "$1"; }
        look() {
            wanted=$1; of=$2; shift 2; before=$(at "$of"); "$@" > "$W/out"
            for turn in $(seq 300); do
                if [ "$before" != "$(at "$of")" ]; then echo "$of moved"; return; fi
                if [ "$wanted" = same ]; then break; fi
            done
            echo "$of same"
        }
        all() {
            echo "$1"; look "$2" f cat f; look "$3" f cat f; look "$4" d ls d; look "$5" d ls d
            look "$6" l readlink l; look "$7" l readlink l
        }
        echo x > f; mkdir d; touch d/e; ln -s f l
"#;

/// What is wanted of [`LOOK`]: a word for the options, and one for each look.
type Wanted = [&'static str; 7];

const NOATIME: Wanted = ["noatime", "same", "same", "same", "same", "same", "same"];
const RELATIME: Wanted = ["relatime", "moved", "same", "moved", "same", "moved", "same"];
/// Of a mount that was made without `strictatime`: its kernel keeps what symbolic links say.
const STRICTATIME: Wanted = ["strictatime", "moved", "moved", "moved", "moved", "moved", "same"];
const NODIRATIME: Wanted = ["nodiratime", "moved", "moved", "same", "same", "moved", "same"];
const READ_ONLY: Wanted = ["ro", "same", "same", "same", "same", "same", "same"];
const STRICT: Wanted = ["strictatime", "moved", "moved", "moved", "moved", "moved", "moved"];

/// The line that looks.
fn all(wanted: Wanted) -> String {
    format!("all {}", wanted.join(" "))
}

/// What it prints.
fn told(wanted: Wanted) -> Vec<String> {
    let names = ["", "f", "f", "d", "d", "l", "l"];
    let lines = names.iter().zip(wanted);
    lines.map(|(name, word)| format!("{name} {word}").trim().to_owned()).collect()
}

#[test]
fn access_times_are_kept_as_the_options_say() {
    let [first, second, third, fourth, fifth] =
        [NOATIME, RELATIME, STRICTATIME, NODIRATIME, READ_ONLY].map(all);
    let script = format!(
        r#"{LOOK}
        {first}
        mount -o remount,relatime "$W/a"; {second}
        mount -o remount,strictatime "$W/a"; {third}
        mount -o remount,strictatime,nodiratime "$W/a"; {fourth}
        mount -o remount,strictatime,ro "$W/a"; {fifth}
        mount -o remount,rw,relatime "$W/a"; echo y >> f
        exec 3< f; look moved f head -c 1 <&3; touch -a -d @5 f; exec 3<&-; sleep 0.2; stat -c %X f
        "#
    );
    let lines = mounted_alone("atime", 75, ",noatime", &script);
    let mut right = [NOATIME, RELATIME, STRICTATIME, NODIRATIME, READ_ONLY].map(told).concat();
    right.extend(["f moved", "5"].map(str::to_owned));
    assert_eq!(lines, right);
    let lines = mounted_alone("strict", 77, ",strictatime", &format!("{LOOK}{}", all(STRICT)));
    assert_eq!(lines, told(STRICT));
}

#[test]
fn an_ordinary_user_mounts_for_himself() {
    let mut up = Up::with(Scratch::new("mounting-user"), None, &["--trust-local-users"]);
    let work = Scratch::new("mounting-user-work");
    std::fs::set_permissions(up.mount(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("chmod of the root");
    std::fs::write(up.at("roots"), b"").expect("create");
    let lines = alone(
        &up,
        work.path(),
        r#"
        chmod 755 "$W"; mkdir -p "$W/dev" "$W/mine" "$W/theirs"; chown 65534 "$W/mine"
        cp "$B" "$W/nacre"
        mknod "$W/dev/fuse" c 10 229; chmod 666 "$W/dev/fuse"; mount --bind "$W/dev/fuse" /dev/fuse
        mkdir "$W/run"; chown 65534 "$W/run"; export XDG_RUNTIME_DIR="$W/run"
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        user "$W/nacre" mount "$S" "$W/mine" -o nid=127.0.0.73@tcp
        grep -c " $W/mine fuse.nacre rw,nosuid,nodev,.*user_id=65534" /proc/mounts
        user sh -ec 'cd "$W/mine"; echo text > f; cat f; stat -c "%u %a" f; ln f g; rm f; ls'
        user sh -c 'echo x > "$W/mine/roots"' 2>/dev/null || echo "another one's file"
        user chown 0 "$W/mine/g" 2>/dev/null || echo "not given away"
        ls "$W/mine" 2>/dev/null || echo "root is kept out"
        setpriv --reuid=65534 --regid=65534 --clear-groups \
            sh -c 'cd "$W/mine" && touch "$W/run/in" && exec sleep 60' > /dev/null 2>&1 & busy=$!
        until test -e "$W/run/in"; do sleep 0.1; done
        user "$W/nacre" umount "$W/mine" 2>/dev/null || echo "it is in use"
        grep -c " $W/mine " /proc/mounts; kill $busy; wait $busy || true
        user "$W/nacre" umount "$W/mine"; grep -c " $W/mine " /proc/mounts || true
        user "$W/nacre" mount "$S" "$W/theirs" -o nid=127.0.0.73@tcp 2>/dev/null || echo "another one's directory"
        "#,
    );
    let right = [
        "1",
        "text",
        "65534 644",
        "g",
        "roots",
        "another one's file",
        "not given away",
        "root is kept out",
        "it is in use",
        "1",
        "0",
        "another one's directory",
    ]
    .map(str::to_owned);
    assert_eq!(lines, right);
    up.stop();
}

/// The root directory belongs to the user that made the file system.
#[test]
fn an_ordinary_user_writes_in_a_file_system_of_his_own() {
    let work = Scratch::new("mounting-own");
    let lines = alone_with(
        "",
        work.path(),
        r#"
        chmod 755 "$W"; mkdir -p "$W/dev" "$W/own" "$W/run"; chown 65534:65534 "$W/own" "$W/run"
        cp "$B" "$W/nacre"
        mknod "$W/dev/fuse" c 10 229; chmod 666 "$W/dev/fuse"; mount --bind "$W/dev/fuse" /dev/fuse
        export XDG_RUNTIME_DIR="$W/run"; cd "$W/own"
        setpriv --reuid=65534 --regid=65534 --clear-groups \
            "$W/nacre" up --data data --mount mnt --run 'touch x; stat -c "%u %n" . x'
        stat -c "%u %a" data/up.json
        "#,
    );
    assert_eq!(lines, ["65534 .", "65534 x", "65534 600"]);
}

const NOBODY: u32 = 65_534;
/// `lctl ping` waits this long for an answer.
const PING_WAIT: Duration = Duration::from_secs(10);

/// What a node says first on a connection, as a real one says it.
fn a_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("127.0.0.1:{}@tcp", listener.local_addr().expect("bound").port());
    let mut ping =
        Command::new(nacre_bin()).args(["lctl", "ping", &to]).spawn().expect("nacre starts");
    let (mut stream, _) = listener.accept().expect("it connects");
    let mut hello = vec![0; 4_096];
    let len = stream.read(&mut hello).expect("it speaks first");
    drop(stream);
    assert!(!ping.wait().expect("our child").success(), "nobody answered it");
    hello.truncate(len);
    hello
}

/// Sockets of this machine are root's, the server's user's, or a stranger's. One that was closed is
/// nobody's, though the kernel shows it as root's.
#[test]
fn other_users_of_the_machine_are_refused_at_once() {
    let mut up = Up::new("mounting-local");
    let address = up.address();
    let nid = address.split(":/").next().expect("NID:/fsname");
    let at = nid.parse::<NidAddr>().expect("a NID");
    let at = SocketAddrV4::new(at.nid.addr(), at.port);
    let hello = a_hello();

    let start = Instant::now();
    let ping = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let refused = Command::new("setpriv")
        .args(ping)
        .arg(nacre_bin())
        .args(["lctl", "ping", nid])
        .output()
        .expect("setpriv starts");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("--trust-local-users"), "{text}");
    assert!(start.elapsed() < PING_WAIT, "at once");
    // a program of the native library says the same, with the wait that it has by default
    let start = Instant::now();
    let bench = ["bench", "mdtest", "--native", &address, "-F", "-C", "-n", "1"];
    let refused = Command::new("setpriv").args(ping).arg(nacre_bin()).args(bench).output();
    let refused = refused.expect("setpriv starts");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("--trust-local-users"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(30), "long before a mount gives up");

    posix::as_user(NOBODY, NOBODY, || {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(at).expect("it listens");
            stream.write_all(&hello).expect("a fresh socket takes it");
        }
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.write_all(&hello).expect("a fresh socket takes it");
        stream.shutdown(Shutdown::Write).expect("half closed");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it closes");
        assert!(answer.len() <= hello.len(), "one HELLO, which refuses");
    });
    // more than there are places for connections of one address that have said nothing
    let silent: Vec<TcpStream> = posix::as_user(NOBODY, NOBODY, || {
        (0..600).map(|_| TcpStream::connect(at).expect("it listens")).collect()
    });
    let start = Instant::now();
    let root = Command::new(nacre_bin()).args(["lctl", "ping", nid]).status();
    assert!(root.expect("nacre starts").success(), "root is let in");
    assert!(start.elapsed() < PING_WAIT, "strangers take none of its places");
    drop(silent);
    until("each of 22 refusals is told", || {
        let log = std::fs::read_to_string(up.data().join("log/MGS.log")).expect("a log");
        log.matches("only root and user 0 may connect").count() >= 22
    });
    up.stop();
}

#[test]
fn a_bind_mount_of_a_file_goes_while_the_mount_stays() {
    let script = r#"echo hello > f; touch "$W/bound"; mount --bind f "$W/bound"; cat "$W/bound"
        timeout 20 umount "$W/bound" && echo gone; cat f"#;
    let lines = mounted_alone("mounting-bind", 78, "", script);
    assert_eq!(lines, ["hello", "gone", "hello"]);
}

/// The MGS answers, so that there is nothing to wait a minute for.
#[test]
fn a_name_that_the_mgs_does_not_know_is_told_soon() {
    let mut up = Up::new("mounting-nofs");
    let scratch = Scratch::new("mounting-nofs-work");
    let dir = scratch.path().join("m");
    std::fs::create_dir(&dir).expect("a mount point");
    let wrong = up.address().replace(":/testfs", ":/nofs");
    let start = Instant::now();
    let mount = Command::new(nacre_bin()).args(["mount", &wrong]).arg(&dir).output();
    let mount = mount.expect("nacre starts");
    assert!((10..30).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let text = String::from_utf8_lossy(&mount.stderr);
    assert!(!mount.status.success() && text.contains("ENOENT"), "{text}");
    let waits = text.split_once("nacre mount: waiting for").expect("it says for what").1;
    assert!(waits.contains("knows no MDT of nofs so far"), "the MGS has answered: {text}");
    up.stop();
}

#[test]
fn an_interrupted_mount_leaves_no_daemon_behind() {
    let scratch = Scratch::new("mounting-interrupted");
    let dir = scratch.path().join("m");
    std::fs::create_dir(&dir).expect("a mount point");
    // nobody listens there
    let mut mount = Command::new(nacre_bin())
        .args(["mount", "127.0.0.99:3999@tcp:/nofs"])
        .arg(&dir)
        .args(["-o", "wait=0,nid=127.0.0.75@tcp"])
        .spawn()
        .expect("nacre starts");
    let daemon = || {
        mounted::processes().into_iter().find(|(_, words)| {
            words.iter().any(|word| word == "--daemon")
                && words.iter().any(|word| Path::new(word) == dir)
        })
    };
    let wait = |what: &str, is_done: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < mounted::PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait("no daemon was started", &|| daemon().is_some());
    mounted::kill(mount.id(), libc::SIGTERM);
    assert!(mounted::wait_bounded(&mut mount).is_some_and(|status| !status.success()));
    wait("the daemon goes on", &|| daemon().is_none());
}
