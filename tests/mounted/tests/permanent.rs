//! `lctl set_param -P`: stored by the MGS, applied by running, restarted and new nodes.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mounted::{PATIENCE, Up, nacre_bin};

fn lctl(words: &[&str]) -> Output {
    Command::new(nacre_bin()).arg("lctl").args(words).output().expect("nacre starts")
}

fn good(words: &[&str]) -> String {
    let output = lctl(words);
    assert!(output.status.success(), "lctl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn lines(name: &str) -> Vec<String> {
    let output = lctl(&["get_param", "-n", name]);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Until every match of `name` (at least one) reads `value`.
fn wait_for(name: &str, value: &str) {
    let start = Instant::now();
    loop {
        let found = lines(name);
        if !found.is_empty() && found.iter().all(|line| line == value) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{name} is {found:?}, not {value}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Until OSTs have both rules, for both kinds of requests.
fn wait_for_rules() {
    let start = Instant::now();
    loop {
        let found = lines("ost.OSS.ost_io.nrs_tbf_rule").join("\n");
        let count = |rule: &str| found.matches(rule).count();
        if count("one nid={10.0.0.1@tcp} 100") >= 2 && count("two nid={10.0.0.2@tcp} 200") >= 2 {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{found}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_permanent_parameter_holds_everywhere_and_over_restarts() {
    let mut up = Up::new("permanent");
    let set = good(&[
        "set_param",
        "-P",
        "lod.*.stripecount=2",
        "obdfilter.*.commit_interval_ms=700",
        "jobid_name=%u",
    ]);
    assert!(set.contains("testfs: lod.*.stripecount=2\n"), "{set}");
    wait_for("lod.*.stripecount", "2");
    wait_for("obdfilter.testfs-OST0001.commit_interval_ms", "700");
    wait_for("jobid_name", "%u");
    up.second_mount(77);
    wait_for("jobid_name", "%u"); // both
    std::fs::write(up.at("two"), "x").expect("written");
    assert_eq!(up.tool(&["lfs", "getstripe", "-c", "two"]).trim(), "2");

    good(&[
        "set_param",
        "-P",
        "ost.OSS.ost_io.nrs_tbf_rule=start one nid={10.0.0.1@tcp} rate=100",
        "ost.OSS.ost_io.nrs_tbf_rule=start two nid={10.0.0.2@tcp} rate=200",
        "ost.OSS.ost_io.nrs_policies=tbf nid",
    ]);
    wait_for_rules();

    up.kill_server("OST0001");
    assert!(up.server("OST0001") > 0);
    wait_for("obdfilter.testfs-OST0001.commit_interval_ms", "700");
    up.kill_everything();
    up.start_again(&["--crashes-max", "1000"]);
    wait_for("lod.*.stripecount", "2");
    wait_for("obdfilter.testfs-OST0003.commit_interval_ms", "700");
    wait_for_rules();
    assert!(good(&["get_param", "permanent"]).contains("\nlod.*.stripecount=2\n"));

    good(&["set_param", "-P", "-d", "lod.*.stripecount"]);
    up.kill_everything();
    up.start_again(&["--crashes-max", "1000"]);
    wait_for("obdfilter.testfs-OST0003.commit_interval_ms", "700");
    wait_for("lod.*.stripecount", "1");

    for (words, part) in [
        (&["set_param", "-P", "lod.*.stripecount="][..], "has no value"),
        (&["set_param", "-P", "bogus.name=1"], "no daemon has a parameter of that name"),
        (&["set_param", "-P", "obdfilter.*.kbytesfree=1"], "it is read-only"),
        (&["set_param", "-P", "-d", "at_max"], "nothing of that name is permanent"),
        (&["set_param", "-P", "mds.MDS.mdt.nrs_policies=delay"], "mounts would wait"),
        (&["set_param", "-P", "--fsname", "other", "a.b=1"], "No such file or directory"),
    ] {
        let output = lctl(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(part), "{words:?}: {stderr}");
    }
    up.stop();
}

#[test]
fn a_file_system_is_mounted_with_the_slowest_values_that_are_permanent() {
    const DEVICE: &str = "flash,sync_us=990000";
    const RULE: &str = "start all nid={*@tcp} rate=1";
    let mut up = Up::new("permanent-slow");
    for too_slow in [
        format!("mdt.*.device={DEVICE},write_us=20000"),
        format!("mds.*.*.nrs_tbf_rule={RULE} total=1"),
    ] {
        let output = lctl(&["set_param", "-P", &too_slow]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("mounts would wait"), "{too_slow}: {stderr}");
    }
    good(&[
        "set_param",
        "-P",
        &format!("mdt.*.device={DEVICE}"),
        "mds.MDS.mdt.nrs_policies=tbf nid",
        &format!("mds.MDS.mdt.nrs_tbf_rule={RULE}"),
    ]);
    wait_for("mdt.testfs-MDT0000.device", DEVICE);
    up.kill_everything();
    up.start_again(&["--crashes-max", "1000"]);
    wait_for("mdt.testfs-MDT0000.device", DEVICE);
    let second = up.second_mount(31);
    fs::write(second.join("f"), "x").expect("written");
    good(&["set_param", "mdt.*.device=off", "mds.MDS.mdt.nrs_policies=fifo now"]);
    up.stop();
}

#[test]
fn an_ost_that_is_taken_out_of_use_gets_no_new_files() {
    let mut up = Up::new("inactive");
    assert_eq!(good(&["conf_param", "testfs-OST0002.osc.active=0"]), "");
    wait_for("osc.testfs-OST0002-*.active", "0");
    let start = Instant::now();
    let mut file = 0;
    // The MDT hears of it on its own.
    let last = loop {
        let name = format!("f{file}");
        assert_eq!(up.tool(&["lfs", "setstripe", "-c", "-1", &name]), "");
        let count = up.tool(&["lfs", "getstripe", "-c", &name]);
        if count.trim() == "3" {
            break name;
        }
        file += 1;
        assert!(start.elapsed() < PATIENCE, "still on {count} OSTs");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(up.tool(&["lfs", "getstripe", "-O", "2", &last]), "");
    good(&["conf_param", "-d", "testfs-OST0002.osc.active"]);
    wait_for("osc.testfs-OST0002-*.active", "1");
    good(&["conf_param", "testfs.lov.qos_maxage=9"]);
    wait_for("lod.*.qos_maxage", "9");
    let wrong = lctl(&["conf_param", "testfs.nothing.x=1"]);
    assert!(
        !wrong.status.success()
            && String::from_utf8_lossy(&wrong.stderr).contains("TARGET.SUBSYSTEM.NAME")
    );
    up.stop();
}

/// One server for all targets of an `up` that has ended.
fn serve(up: &Up, log: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(nacre_bin());
    command.arg("serve").args(["MGS", "MDT0000", "OST0000"].map(|name| up.target(name)));
    command.args(["--listen", "127.0.0.77@tcp", "--log"]).arg(log).args(more);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nacre starts")
}

fn wait_until_said(log: &Path, what: &str) {
    let start = Instant::now();
    while !fs::read_to_string(log).is_ok_and(|text| text.contains(what)) {
        assert!(start.elapsed() < PATIENCE, "no '{what}' in {}", log.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(mut server: Child) {
    mounted::kill(server.id(), libc::SIGTERM);
    let status = mounted::wait_bounded(&mut server).expect("it ends");
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_without_permanent_values_and_one_whose_log_is_moved() {
    let mut up = Up::new("no-permanent");
    good(&["set_param", "-P", "at_max=500"]);
    wait_for("at_max", "500");
    up.stop();
    let log = up.data().join("one.log");
    let server = serve(&up, &log, &["--no-permanent"]);
    wait_until_said(&log, "testfs-OST0000: registered with the MGS");
    // a server takes values over within seconds of its registration
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(lines("at_max"), ["600"]);
    assert_eq!(good(&["get_param", "-n", "permanent"]).trim(), "at_max=500", "it is kept");
    end(server);

    let log = up.data().join("two.log");
    let server = serve(&up, &log, &[]);
    wait_for("at_max", "500");
    let moved = up.data().join("moved.log");
    for (signal, to) in [(libc::SIGHUP, &moved), (libc::SIGUSR1, &up.data().join("later.log"))] {
        fs::rename(&log, to).expect("moved");
        mounted::kill(server.id(), signal);
        let start = Instant::now();
        while !log.exists() {
            assert!(start.elapsed() < PATIENCE, "no log after signal {signal}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    end(server);
    wait_until_said(&log, "testfs-OST0000: stopped");
    let before = fs::read_to_string(&moved).expect("it is there");
    assert!(!before.contains("SIGTERM") && before.contains("registered"), "{before}");
}
