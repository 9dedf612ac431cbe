//! The connection to a node's self-test.

use std::rc::Rc;

use endpoint::{Endpoint, EndpointConfig, Remote, Resolve};
use env::Env;
use lst::limits;
use types::{ClientId, Nid, NidAddr, Span, TargetId};

/// Written bytes are not kept once they are answered, so that there is nothing to bound.
const UNSTABLE_BYTES_MAX: u64 = u64::MAX / 2;

/// A connection of its own: tests and control do not share one.
pub(crate) struct Peer {
    endpoint: Rc<Endpoint>,
    pub(crate) remote: Rc<Remote>,
}

struct At(NidAddr);

impl Resolve for At {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

impl Peer {
    /// To the node at `at`; connects with the first call. An attempt is given up after `attempt`.
    pub(crate) fn new(env: &Env, own: Option<Nid>, at: NidAddr, attempt: Span) -> Rc<Peer> {
        let config = EndpointConfig {
            import: endpoint::ImportConfig {
                client: ClientId((u128::from(env.random()) << 64) | u128::from(env.random())),
                name: "lst".to_owned(),
                is_server: true, // nobody's recovery waits for it
                attempt,
                rpcs_in_flight: limits::CONCURRENCY_MAX,
                ..Default::default()
            },
            nid: own.filter(|own| own.net() == at.nid.net()),
            inline_bytes: 0, // every transfer has its bulk phase
            unstable_bytes_max: UNSTABLE_BYTES_MAX,
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(env, config, Rc::new(At(at)));
        let remote = endpoint.remote(TargetId::LST);
        Rc::new(Peer { endpoint, remote })
    }

    /// Hangs up in good order.
    pub(crate) async fn shutdown(&self) {
        self.endpoint.shutdown().await;
    }
}
