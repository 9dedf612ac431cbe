//! The space of targets as one client finds it, on a cluster on which nothing else happens: how
//! long it waits for an OST, and which OSTs count as silent.

use client::{Client, TargetState};
use cluster::{Cluster, Scenario};
use env_sim::{Control, NodeHandle};
use types::{Span, TargetId, TargetKind};

/// Longer than `statfs` waits for a target that is known to be away.
const LATE: Span = Span::secs(2);

/// Names of targets that do not tell their space, and how long it took to find that out.
fn silent(cluster: &Cluster, who: &(NodeHandle, Client)) -> (Vec<String>, Span) {
    let begin = cluster.sim.now();
    let spaces = cluster.run(who, async |client| Ok(client.df().await));
    let silent = spaces.into_iter().filter(|target| target.space.is_none());
    (silent.map(|target| target.target.name).collect(), cluster.sim.now() - begin)
}

#[test]
fn an_ost_that_accepts_late_is_not_silent() {
    let (cluster, [one, _other]) = Cluster::with_two_clients(&Scenario::calm());
    let is_new = |ost: TargetState| ost.state == "NEW";
    assert!(one.1.osts().into_iter().all(is_new), "a session begins with the first request");
    cluster.cut_off_from(&one.0, TargetId::ost(0));
    let (control, env) = (Control::clone(&cluster.sim), one.0.env());
    one.0.env().spawn("accepts", async move {
        env.sleep(LATE).await;
        control.heal_all();
    });
    let (silent, took) = silent(&cluster, &one);
    assert!(silent.is_empty(), "{silent:?}");
    assert!(took > LATE, "it was waited for: {took:?}");
}

#[test]
fn an_ost_that_is_known_to_be_away_is_waited_for_half_a_second() {
    let (cluster, [one, _other]) = Cluster::with_two_clients(&Scenario::calm());
    assert!(silent(&cluster, &one).0.is_empty());
    cluster.cut_off_from(&one.0, TargetId::ost(0));
    cluster.break_links(&one.0, TargetKind::Ost);
    cluster.sim.run_for(Span::millis(10)); // all other OSTs are connected again
    let (silent, took) = silent(&cluster, &one);
    assert_eq!(silent, ["testfs-OST0000"]);
    assert!(took < Span::secs(1), "{took:?}");
}
